"""Reduce the tokens in a vision transformer, and undo it."""

from __future__ import annotations

import itertools
import numbers
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import nn

from khot.estimators import Estimator
from khot.nn.sampled import SampledTopK
from khot.relaxations._arguments import check_temperature
from khot.relaxations._plain_arguments import check_choice, check_generator, check_switch
from khot.relaxations.facade import checked_options
from khot.relaxations.hard import Order, check_order
from khot.relaxations.registry import Relaxation, get
from khot.vision.tokens._block import Architecture, Place, ReducedBlock, agrees, patch, unpatch
from khot.vision.tokens._huggingface_naming import describe_huggingface
from khot.vision.tokens._timm_naming import describe_timm
from khot.vision.tokens.reduction import Mode, TokenReduction

__all__ = ["MODES", "reduce_tokens", "restore_tokens"]

MODES: tuple[Mode, ...] = ("hard", "soft", "straight_through", "sampled", "merge")
_RELAXED = ("soft", "straight_through")
_READ_BY: dict[str, tuple[str, ...]] = {
    "method": _RELAXED,
    "design": ("sampled",),
    "estimator": ("sampled",),
    "generator": (*_RELAXED, "sampled"),
}


def reduce_tokens(
    model: nn.Module,
    keep_rate: float | Sequence[float] = 0.7,
    locations: Sequence[int] | None = None,
    *,
    mode: Mode = "straight_through",
    method: str | Relaxation | None = None,
    temperature: float = 1.0,
    order: Order = "score",
    fuse: bool = False,
    design: str | None = None,
    estimator: str | Estimator | None = None,
    generator: torch.Generator | None = None,
    num_prefix_tokens: int | None = None,
    **options: Any,
) -> TokenReduction:
    r"""Make a vision transformer keep only its most attended tokens, in place; `restore_tokens` undoes it.

    .. math:: X \leftarrow \operatorname{top-k}(X, s), \qquad
        s_i = \log \tfrac1H \textstyle\sum_h \mathrm{attention}_h(\mathrm{CLS}, i)

    In each block of ``locations``, between attention and MLP, the k tokens with the largest scores are kept.
    The prefix (CLS, registers) is always kept. In ``eval()`` the selection is hard in all modes (except
    ``"merge"``). In ``train()`` the mode decides how a gradient reaches the scores:

    - ``"hard"``: not at all;
    - ``"straight_through"``: the same k tokens, with the gradient of the soft selection by ``method``;
    - ``"soft"`` and a method with weights only (``"sigmoid"``): all tokens stay, and log y is added to the
      attention logits of their keys, so that a token of weight 0 has no effect;
    - ``"soft"`` and a method with rows (``"successive_halving"``, ``"softsort"``): k blends of the tokens;
    - ``"sampled"``: k tokens drawn by an estimator of :mod:`khot.estimators`, from any of its designs;
    - ``"merge"``: no token is dropped, similar tokens are merged (in ``eval()`` too).

    The model can be copied and saved as a whole (``copy.deepcopy``, ``torch.save``), and its ``state_dict``
    does not change. Cost: later blocks process fewer tokens; use :func:`count_flops` to measure it.

    Args:
        model: a vision transformer with the attribute names of timm (``blocks[i].attn.qkv``), or of
            transformers: ViT, DeiT, DINOv2, or the vision tower of CLIP or SigLIP, alone or in a larger
            model. Gradient checkpointing must be off, because a block cannot be recomputed on its own.
        keep_rate: r in (0, 1]; stage s keeps the share r^s of the patches, rounded down, at least one. Or a
            share for each stage.
        locations: the blocks of the stages, from 0, increasing; by default at one, two and three quarters of
            the depth, (3, 6, 9) of 12.
        mode: one of the modes above.
        method: for ``"straight_through"`` and ``"soft"``: the relaxation, by default ``"sigmoid"``.
        temperature: > 0, in units of the scores, which are logarithms of attention.
        order: order the kept tokens by decreasing ``"score"`` or by ``"position"``; not for merging.
        fuse: append EViT's fused token, the sum of the dropped tokens weighted by their attention.
        design: for ``"sampled"``: the design to draw from, if the estimator accepts one; see
            :func:`khot.sample`.
        estimator: for ``"sampled"``: a name in ``khot.estimators.names()``, or an estimator with options from
            ``khot.estimators.get``; by default ``"sampled_straight_through"``.
        generator: source of randomness for ``"sampled"`` or a random method.
        num_prefix_tokens: the number of tokens at the front that are not patches, if the model does not tell.
        options: further options of the method or of the estimator.

    Returns:
        :class:`khot.vision.tokens.TokenReduction`, also as ``model.token_reduction``. After a forward pass
        its ``kept`` has the indices of the patches kept by each stage.

    Example:
        >>> from khot.vision import VisionTransformer, preset
        >>> model = VisionTransformer(preset("mnist", model="vit"))
        >>> reduction = reduce_tokens(model.eval(), keep_rate=0.5, locations=(1, 2))
        >>> model(torch.zeros(2, 1, 28, 28)).shape
        torch.Size([2, 10])
        >>> reduction.tokens_per_stage, reduction.kept[1].shape
        ((24, 12), torch.Size([2, 12]))
        >>> restore_tokens(model)

    Reference: Haurum et al. (2023), Which Tokens to Use?, arXiv:2308.04657.
    """
    name = "reduce_tokens"
    if isinstance(getattr(model, "token_reduction", None), TokenReduction):
        raise ValueError(f"{name}: the model's tokens are reduced already; call restore_tokens(model) before")
    blocks, prefix, has_cls, width, kind = _described(name, model)
    rates, places = _stages(name, keep_rate, locations, len(blocks))
    check_choice(name, "mode", mode, MODES)
    _check_read_by_mode(name, mode, method=method, design=design, estimator=estimator, generator=generator)
    relaxation = get("sigmoid" if method is None else method, name)
    options = _checked_options(name, mode, relaxation, generator, options)
    drawing = None
    if mode == "sampled":
        drawing = _estimator(name, estimator or "sampled_straight_through", design, options)
    check_switch(name, "fuse", fuse)
    if fuse and mode in ("soft", "merge"):
        raise ValueError(f"{name}: fuse needs a mode that drops tokens, got mode {mode!r}")
    check_temperature(name, temperature)
    check_order(name, order)
    if num_prefix_tokens is not None:
        if not _is_whole(num_prefix_tokens) or num_prefix_tokens < has_cls:
            raise ValueError(
                f"{name}: num_prefix_tokens must be an integer, at least {int(has_cls)}, "
                f"got {num_prefix_tokens!r}"
            )
        prefix = num_prefix_tokens
    if not all(agrees(block, kind, width) for block in blocks):
        raise TypeError(
            f"{name}: a block of {type(model).__name__} has the names of a pre-norm transformer but does not "
            "compute x + attention(norm(x)), then x + mlp(norm(x))"
        )
    reduction = TokenReduction(
        rates,
        places,
        mode,
        method=relaxation.name if method is None or isinstance(method, str) else method,
        temperature=temperature,
        options=options,
        order=order,
        fuse=fuse,
        estimator=drawing,
        generator=generator,
        num_prefix_tokens=prefix,
        has_cls=has_cls,
    )
    stage_of = {block: stage for stage, block in enumerate(places)}
    for i, block in enumerate(blocks):
        patch(block, kind, Place(reduction, i, i == len(blocks) - 1, stage_of.get(i)))
    model.token_reduction = reduction.train(model.training)
    return reduction


def restore_tokens(model: nn.Module) -> None:
    """Undo `reduce_tokens`.

    Args:
        model: a model changed by `reduce_tokens`; it is restored in place.

    Returns:
        None.

    Example:
        >>> from khot.vision import VisionTransformer, preset
        >>> model = VisionTransformer(preset("digits", model="vit"))
        >>> reduction = reduce_tokens(model, 0.5, locations=(1,))
        >>> restore_tokens(model)
        >>> hasattr(model, "token_reduction")
        False
    """
    if not isinstance(getattr(model, "token_reduction", None), TokenReduction):
        raise ValueError(f"restore_tokens: the tokens of this {type(model).__name__} are not reduced")
    for block in [module for module in model.modules() if isinstance(module, ReducedBlock)]:
        unpatch(block)
    del model.token_reduction


def _described(name: str, model: nn.Module) -> Architecture:
    described = describe_timm(model) or describe_huggingface(model)
    if described is None:
        raise TypeError(
            f"{name}: {type(model).__name__} is no vision transformer with known names; looked for "
            "blocks[i].norm1, attn.qkv, norm2 and mlp (timm), and for ViT, DeiT, DINOv2, CLIP and SigLIP of "
            "transformers"
        )
    flags = ("grad_checkpointing", "gradient_checkpointing")
    if any(getattr(module, flag, False) for module in model.modules() for flag in flags):
        raise ValueError(f"{name}: gradient checkpointing must be off, a block alone cannot be done again")
    return described


def _stages(
    name: str, keep_rate: float | Sequence[float], locations: Sequence[int] | None, depth: int
) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """The rates and places of the stages."""
    places = _places(name, locations, depth)
    shares = list(keep_rate) if isinstance(keep_rate, Sequence) and not isinstance(keep_rate, str) else None
    given: list[Any] = [keep_rate] if shares is None else shares
    if any(isinstance(rate, bool) or not isinstance(rate, numbers.Real) for rate in given):
        raise TypeError(
            f"{name}: keep_rate must be a number, or a sequence of one for each location, got {keep_rate!r}"
        )
    if shares is not None and len(shares) != len(places):
        raise ValueError(
            f"{name}: keep_rate must be a number or one for each of {len(places)} locations, got {keep_rate}"
        )
    rates = [float(rate) for rate in given]
    if any(not 0 < rate <= 1 for rate in rates):
        raise ValueError(f"{name}: keep_rate must be in (0, 1], got {keep_rate}")
    if shares is None:
        rates = [rates[0] ** (stage + 1) for stage in range(len(places))]
    return tuple(rates), places


def _places(name: str, locations: Sequence[int] | None, depth: int) -> tuple[int, ...]:
    if locations is None:
        return tuple(sorted({quarter * depth // 4 for quarter in (1, 2, 3)}))
    if not isinstance(locations, Iterable) or isinstance(locations, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{name}: locations must be a sequence of block numbers, got {locations!r}")
    places = tuple(locations)
    if not all(_is_whole(place) for place in places):
        raise TypeError(f"{name}: locations must be integers, got {places}")
    if any(not 0 <= place < depth for place in places):
        raise ValueError(f"{name}: locations must be in [0, {depth - 1}], the depth is {depth}, got {places}")
    if not places or any(b <= a for a, b in itertools.pairwise(places)):
        raise ValueError(f"{name}: locations must be increasing, at least one, got {places}")
    return tuple(int(place) for place in places)


def _is_whole(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, numbers.Integral)


def _check_read_by_mode(name: str, mode: Mode, **given: object) -> None:
    """Raise if something is given that this mode does not read."""
    for argument, value in given.items():
        if value is not None and mode not in _READ_BY[argument]:
            modes = " and ".join(repr(reader) for reader in _READ_BY[argument])
            raise TypeError(f"{name}: {argument} is for mode {modes}, got it with mode {mode!r}")


def _checked_options(
    name: str,
    mode: Mode,
    relaxation: Relaxation,
    generator: torch.Generator | None,
    options: dict[str, Any],
) -> dict[str, Any]:
    """The options, with the generator of a random relaxation; those of an estimator are checked by it."""
    check_generator(name, generator)
    if mode in _RELAXED:
        checked_options(name, relaxation, options, relaxation.matrix)
        if generator is not None and not relaxation.stochastic:
            raise TypeError(f"{name}: generator is for a random method, {relaxation.name!r} is none")
        return {**options, "generator": generator} if relaxation.stochastic else options
    if options and mode != "sampled":
        raise TypeError(f"{name}: mode {mode!r} has no option {next(iter(options))!r}; it has none")
    return options


def _estimator(
    name: str, estimator: str | Estimator, design: str | None, options: dict[str, Any]
) -> Estimator:
    """The estimator with its options, made by the layer that checks them."""
    try:
        return SampledTopK(1, design=design, estimator=estimator, **options).estimator
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name}: {error}") from error
