"""A transformer block that returns fewer tokens than it receives."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from torch.utils.hooks import RemovableHandle

from khot.kernels.availability import is_plain
from khot.vision.tokens.reduction import Attention, TokenReduction

__all__ = [
    "Architecture",
    "Place",
    "ReducedBlock",
    "agrees",
    "attention_with_bias",
    "has_parts",
    "patch",
    "unpatch",
]


@dataclass
class Place:
    """The place of a block: its number, whether it is the last, and the number of its stage, if any."""

    reduction: TokenReduction
    number: int
    last: bool
    stage: int | None
    captured: dict[str, Tensor] = field(default_factory=lambda: dict[str, Tensor]())
    handles: list[RemovableHandle] = field(default_factory=lambda: list[RemovableHandle]())


@dataclass
class _Capture:
    """A hook that keeps what a projection gave, so that it is not computed twice."""

    place: Place
    name: str

    def hook(self, module: nn.Module, inputs: object, output: Tensor) -> None:
        self.place.captured[self.name] = output


class ReducedBlock(nn.Module):
    """A mixin before a block's own class; subclasses know the names of its parts.

    A block is x + attention, then x + MLP. Tokens are removed between the two.
    """

    token_place: Place
    parts: ClassVar[tuple[str, ...]] = ()
    """Paths of the modules that it looks for in a block."""
    plain_inputs: ClassVar[tuple[Any, ...]] = ()
    """What a block must be given beside the tokens, when there is no mask."""
    returns_tuple: ClassVar[bool] = False

    def projections(self) -> dict[str, nn.Module]:
        """The modules whose outputs contain queries and keys."""
        raise NotImplementedError

    def attended(self, x: Tensor, bias: Tensor | None, further: dict[str, Any]) -> Tensor:
        """The attention branch; ``bias`` (B, N) is added to the logits of each key."""
        raise NotImplementedError

    def transformed(self, x: Tensor) -> Tensor:
        """The MLP branch."""
        raise NotImplementedError

    def queries_and_keys(self, captured: dict[str, Tensor], rows: slice) -> Attention:
        """Queries and keys from the captured projections; only these rows of the queries."""
        raise NotImplementedError

    def given_mask(self, inputs: tuple[Any, ...], further: dict[str, Any]) -> Tensor | None:
        """The attention mask that the model passes to the block, (B, 1, N or 1, N), if any."""
        raise NotImplementedError

    def forward(self, x: Tensor, *inputs: Any, **further: Any) -> Any:
        """The block, with fewer tokens after the attention if it is a stage."""
        place = self.token_place
        reduction = place.reduction
        flow = reduction.flow
        if place.number == 0 or flow is None:
            flow = reduction.begin(x, _valid(self.given_mask(inputs, further)))
        stage = place.stage
        here = flow.indices.shape[1]
        if stage is not None and reduction.count(stage, flow.patches) >= here:
            flow.kept += (flow.indices,)
            flow.lengths += (here,)
            stage = None
        bias = reduction.key_bias(flow, x.dtype)
        if stage is None and (bias is None or flow.masked_by_model):
            x = first(super().forward(x, *inputs, **further))  # as it is, to the last bit
        else:
            x = x + self.attended(x, bias, further)
            if stage is not None:
                x = reduction.reduce(x, stage, flow, self._attention(place, reduction))
            x = x + self.transformed(x)
        place.captured.clear()
        x = reduction.finish(x, flow) if place.last else x
        return (x,) if self.returns_tuple else x

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """A copy, deep or on disk, is made of the two classes: nobody could find the one made of them."""
        kind, own = type(self).__bases__
        state: Any = self.__getstate__() if hasattr(self, "__getstate__") else self.__dict__  # Python 3.10
        return _empty_block, (kind, own), state

    def _attention(self, place: Place, reduction: TokenReduction) -> Attention:
        one_row = reduction.has_cls or reduction.mode == "merge"  # which compares keys alone
        return self.queries_and_keys(place.captured, slice(0, 1) if one_row else slice(None))


class Architecture(NamedTuple):
    """The structure of a model.

    It holds the blocks, the number of tokens at the front that are not patches, whether CLS is the first of
    them, the width of a token, and the class that knows the names of the blocks' parts.
    """

    blocks: list[nn.Module]
    num_prefix_tokens: int
    has_cls: bool
    width: int
    kind: type[ReducedBlock]


def attention_with_bias(
    queries: Tensor, keys: Tensor, values: Tensor, bias: Tensor, scale: float, dropout: float
) -> Tensor:
    """Fused attention of (B, H, N, d) with a bias (B, N) for the keys; heads concatenated, (B, N, H·d)."""
    mask = bias.to(queries.dtype)[:, None, None, :]
    mixed = scaled_dot_product_attention(queries, keys, values, mask, dropout, scale=scale)
    return mixed.transpose(1, 2).flatten(2)


def _valid(mask: Tensor | None) -> Tensor | None:
    """Which keys (B, N) a mask lets through; it must be the same for every query."""
    if mask is None:
        return None
    allowed = mask if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min / 2
    if allowed.dim() == 4:
        allowed = allowed[:, 0]
    keys = allowed[:, 0]
    if is_plain(allowed) and not bool((allowed == keys.unsqueeze(1)).all()):
        raise ValueError("reduce_tokens: the attention mask must be one of padding, the same for every query")
    return keys


@functools.cache
def _reduced_class(kind: type[ReducedBlock], own: type[nn.Module]) -> type[nn.Module]:
    return cast("type[nn.Module]", type(f"TokenReduced{own.__name__}", (kind, own), {}))


def _empty_block(kind: type[ReducedBlock], own: type[nn.Module]) -> nn.Module:
    """A reduced block without anything in it yet."""
    reduced = _reduced_class(kind, own)
    return reduced.__new__(reduced)


def has_parts(block: nn.Module, kind: type[ReducedBlock]) -> bool:
    """Whether the block has all parts that ``kind`` needs."""
    try:
        return all(block.get_submodule(path) is not None for path in kind.parts)  # pyright: ignore[reportUnnecessaryComparison]
    except AttributeError:
        return False


def patch(block: nn.Module, kind: type[ReducedBlock], place: Place) -> None:
    """Turn a block into a reduced block, in place: parameters and names stay, and it can be copied."""
    block.__class__ = _reduced_class(kind, type(block))
    reduced = cast("ReducedBlock", block)
    reduced.token_place = place
    if place.stage is not None:
        for name, projection in reduced.projections().items():
            place.handles.append(projection.register_forward_hook(_Capture(place, name).hook))


def unpatch(block: nn.Module) -> None:
    """Undo :func:`patch`."""
    reduced = cast("ReducedBlock", block)
    for handle in reduced.token_place.handles:
        handle.remove()
    del reduced.token_place
    block.__class__ = type(block).__bases__[1]


def agrees(block: nn.Module, kind: type[ReducedBlock], width: int) -> bool:
    """Whether ``kind`` agrees with the block's own class, with and without a bias, on a few tokens."""
    weight = next(block.parameters())
    if weight.is_meta:
        return True
    x = torch.arange(5 * width, device=weight.device).sin().view(1, 5, width).to(weight.dtype)
    own_class, modes = type(block), [(module, module.training) for module in block.modules()]
    block.eval()
    try:
        with torch.no_grad():
            own = first(block(x, *kind.plain_inputs))
            block.__class__ = _reduced_class(kind, own_class)  # for its parts; its forward is not called
            reduced = cast("ReducedBlock", block)
            half = weight.dtype in (torch.float16, torch.bfloat16)
            tolerance = (5e-2 if half else 1e-4) * own.abs().max().item()
            for bias in (None, x.new_zeros(1, 5)):
                y = x + reduced.attended(x, bias, {})
                y = y + reduced.transformed(y)
                if not torch.allclose(y, own, rtol=0, atol=tolerance):
                    return False
    finally:
        block.__class__ = own_class
        for module, training in modes:
            module.training = training
    return True


def first(result: Any) -> Tensor:
    """The first item if the result is a tuple, as in older versions of transformers."""
    return cast("Tensor", result[0] if isinstance(result, tuple) else result)
