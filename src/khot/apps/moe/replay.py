"""Contexts that control all routers of a model: record and replay their choices, and mask padding.

If a model is trained with other kernels, another precision or another batch than it generates with, some
tokens go to other experts. Recording and replaying the choices makes training use the experts that generation
used; the weights still come from the current logits.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from contextlib import contextmanager
from typing import Any, cast

from torch import Tensor, nn

from khot.apps.moe._masks import KnowsPadding
from khot.apps.moe.correction import CountsExperts

__all__ = ["mask_padding", "record_routing", "replay_routing", "routers_of"]


def routers_of(model: nn.Module, caller: str) -> dict[str, CountsExperts]:
    """The routers of a model by name: :class:`TopKRouter`, and those of :func:`replace_router`."""
    modules = cast("Iterable[tuple[str, nn.Module]]", cast("Any", model).named_modules())
    found = {name: module for name, module in modules if isinstance(module, CountsExperts)}
    if not found:
        raise ValueError(f"{caller}: {_without_routers(model)}")
    return found


@contextmanager
def record_routing(model: nn.Module) -> Generator[dict[str, Tensor]]:
    """Record which experts every router chooses while the context is active.

    Args:
        model: a model with routers: :class:`TopKRouter`, or replaced by :func:`replace_router`.

    Returns:
        A context manager; it yields a dictionary from the name of each router to the indices (T, k) of its
        last call.

    Example:
        >>> from khot.apps.moe import Experts, MoE, TopKRouter
        >>> layer = MoE(TopKRouter(16, 8, 2), Experts(8, hidden=16, width=32))
        >>> with record_routing(layer) as recorded:
        ...     y = layer(torch.randn(10, 16))
        >>> recorded["router"].shape
        torch.Size([10, 2])
    """
    recorded: dict[str, Tensor] = {}

    def keeper(name: str) -> Any:
        def keep(_: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            recorded[name] = output[2].detach()

        return keep

    routers = routers_of(model, "record_routing")
    handles = [router.register_forward_hook(keeper(name)) for name, router in routers.items()]
    try:
        yield recorded
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def replay_routing(model: nn.Module, recorded: Mapping[str, Tensor]) -> Generator[None]:
    """Make routers use recorded experts; the weights come from the current logits.

    With gradient checkpointing, run the backward pass inside the context too, because it recomputes layers.

    Args:
        model: a model with routers.
        recorded: indices (T, k) by the name of the router, from :func:`record_routing`; routers that are not
            in it choose as usual.

    Returns:
        A context manager.

    Example:
        >>> from khot.apps.moe import Experts, MoE, TopKRouter
        >>> layer = MoE(TopKRouter(16, 8, 2), Experts(8, hidden=16, width=32))
        >>> x = torch.randn(10, 16)
        >>> with record_routing(layer) as recorded:
        ...     y = layer(x)
        >>> with replay_routing(layer, recorded):
        ...     again = layer(x + 0.1 * torch.randn(10, 16))
    """
    routers = routers_of(model, "replay_routing")
    unknown = [name for name in recorded if name not in routers]
    if unknown:
        raise ValueError(f"replay_routing: no router is named {unknown[0]!r}; there are {', '.join(routers)}")
    before = {name: routers[name].replayed_indices for name in recorded}
    try:
        for name, indices in recorded.items():
            routers[name].replayed_indices = indices
        yield
    finally:
        for name, indices in before.items():
            routers[name].replayed_indices = indices


@contextmanager
def mask_padding(model: nn.Module, mask: Tensor) -> Generator[None]:
    """Tell every router which tokens are real, for models (such as those of transformers) that pass no mask.

    Padding then has weight 0, is not counted, and takes no slot of a capacity.

    Args:
        model: a model with routers.
        mask: True (or 1) for a real token, like ``attention_mask``: (batch, length) of the tokens of this
            pass.

    Returns:
        A context manager.

    Example:
        >>> import torch
        >>> from khot.apps.moe import TopKRouter
        >>> router = TopKRouter(16, 8, 2)
        >>> with mask_padding(router, torch.tensor([[1, 1, 0]])):
        ...     logits, weights, indices = router(torch.randn(1, 3, 16))
        >>> weights[2].tolist()
        [0.0, 0.0]
    """
    routers = [module for module in model.modules() if isinstance(module, KnowsPadding)]
    if not routers:
        raise ValueError(f"mask_padding: {_without_routers(model)}")
    before = [router.token_mask for router in routers]
    try:
        for router in routers:
            router.token_mask = mask
        yield
    finally:
        for router, earlier in zip(routers, before, strict=True):
            router.token_mask = earlier


def _without_routers(model: nn.Module) -> str:
    return f"{type(model).__name__} has no TopKRouter and no replaced router; see replace_router"
