"""Fewer tokens in a vision transformer: put in place, and taken out again."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import nn

from khot.estimators import Estimator
from khot.nn.sampled import SampledTopK
from khot.relaxations import registry
from khot.relaxations._arguments import check_temperature
from khot.relaxations.facade import checked_options
from khot.relaxations.hard import Order, check_order
from khot.vision.tokens.block import Architecture, Place, ReducedBlock, agrees, patch, unpatch
from khot.vision.tokens.huggingface_naming import describe_huggingface
from khot.vision.tokens.reduction import TokenReduction
from khot.vision.tokens.timm_naming import describe_timm

__all__ = ["METHODS", "reduce_tokens", "restore_tokens"]

METHODS = ("hard", "straight_through", "soft", "sampled", "merge")
"""Beside these, the name of a relaxation stands for ``"soft"`` with it."""


def reduce_tokens(
    model: nn.Module,
    keep_rate: float | Sequence[float] = 0.7,
    locations: Sequence[int] = (3, 6, 9),
    method: str = "straight_through",
    *,
    temperature: float = 1.0,
    relaxation: str = "sigmoid",
    order: Order = "score",
    fuse: bool = False,
    design: str | None = None,
    estimator: str | Estimator = "sampled_straight_through",
    generator: torch.Generator | None = None,
    num_prefix_tokens: int | None = None,
    **options: Any,
) -> TokenReduction:
    r"""Let a vision transformer keep only its most attended tokens, in place; `restore_tokens` undoes it.

    .. math:: X \leftarrow \operatorname{top-k}(X, s), \qquad
        s_i = \log \tfrac1H \textstyle\sum_h \mathrm{attention}_h(\mathrm{CLS}, i)

    In each block of ``locations``, between attention and perceptron, the k tokens with the largest scores go
    on. The prefix (CLS, registers) always does. In ``eval()`` the selection is hard whatever the method is;
    in ``train()`` the method decides how a gradient reaches the scores:

    - ``"hard"``: not at all;
    - ``"straight_through"``: the same k tokens, each times 1 + y − stop(y), y the weights of ``relaxation``;
    - ``"soft"``, a relaxation with weights alone (``"sigmoid"``): all tokens stay, and log y is added to the
      attention logits of their keys, so that a token of weight 0 is as if it was not there;
    - ``"soft"``, a relaxation with rows (``"successive_halving"``, ``"soft_rank"``): k blends of the tokens;
    - ``"sampled"``: k tokens drawn by an estimator of :mod:`khot.estimators`, from any of its designs;
    - ``"merge"``: nothing is dropped, similar tokens are merged (also in ``eval()``).

    Args:
        model: a vision transformer with the names of timm (``blocks[i].attn.qkv``), or one of transformers.
            Its gradient checkpointing must be off: a block alone cannot be done again.
        keep_rate: r in (0, 1]; stage s keeps the share r^s of the patches, rounded down, at least one. Or a
            share for each stage.
        locations: the blocks of the stages, from 0, increasing.
        method: as above, or the name of a relaxation, which stands for ``"soft"`` with it.
        temperature: > 0, for scores in units of a logarithm of attention.
        relaxation: for ``"straight_through"`` and ``"soft"``.
        order: the tokens kept, by falling ``"score"`` or by ``"position"``; merging has its own.
        fuse: append EViT's fused token, the sum of the tokens dropped weighted by their attention.
        design: for ``"sampled"``: what to draw from, if the estimator leaves the choice; see
            :func:`khot.sample`.
        estimator: for ``"sampled"``: a name in ``khot.estimators.names()``, or one with options, of
            ``khot.estimators.get``.
        generator: where the randomness of ``"sampled"`` comes from.
        num_prefix_tokens: how many tokens at the front are not patches, if the model does not say.
        options: of the relaxation, or of the estimator.

    Returns:
        :class:`khot.vision.tokens.TokenReduction`, also as ``model.token_reduction``: after a forward pass
        ``kept`` has the indices of the patches kept by each stage.

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
    if method in registry.names():
        method, relaxation = "soft", method
    _check_method(name, method, relaxation, options, fuse)
    drawing = _estimator(name, estimator, design, options) if method == "sampled" else None
    check_temperature(name, temperature)
    check_order(name, order)
    if num_prefix_tokens is not None:
        if num_prefix_tokens < has_cls:
            raise ValueError(
                f"{name}: num_prefix_tokens must be at least {int(has_cls)}, got {num_prefix_tokens}"
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
        method,
        temperature=temperature,
        relaxation=relaxation,
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
    """Undo `reduce_tokens`: the model is what it was before.

    Args:
        model: one whose tokens are reduced.

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
            "blocks[i].norm1, attn.qkv, norm2 and mlp (timm), layers[i].attention.q_proj and "
            "encoder.layer[i].attention.attention.query (transformers)"
        )
    flags = ("grad_checkpointing", "gradient_checkpointing")
    if any(getattr(module, flag, False) for module in model.modules() for flag in flags):
        raise ValueError(f"{name}: gradient checkpointing must be off, a block alone cannot be done again")
    return described


def _stages(
    name: str, keep_rate: float | Sequence[float], locations: Sequence[int], depth: int
) -> tuple[tuple[float, ...], tuple[int, ...]]:
    """The rates and places of the stages."""
    places = tuple(locations)
    if any(not 0 <= place < depth for place in places):
        raise ValueError(f"{name}: locations must be in [0, {depth - 1}], the depth is {depth}, got {places}")
    if not places or any(b <= a for a, b in itertools.pairwise(places)):
        raise ValueError(f"{name}: locations must be increasing, at least one, got {places}")
    if isinstance(keep_rate, Sequence):
        rates = tuple(float(rate) for rate in keep_rate)
        if len(rates) != len(places):
            raise ValueError(
                f"{name}: keep_rate must be a number or one for each of {len(places)} locations, got {rates}"
            )
    else:
        rates = tuple(float(keep_rate) ** (stage + 1) for stage in range(len(places)))
    if any(not 0 < rate <= 1 for rate in rates):
        raise ValueError(f"{name}: keep_rate must be in (0, 1], got {keep_rate}")
    return rates, places


def _check_method(name: str, method: str, relaxation: str, options: dict[str, Any], fuse: bool) -> None:
    if method not in METHODS:
        known = ", ".join((*METHODS, *registry.names()))
        raise ValueError(f"{name}: unknown method {method!r}; there are {known}")
    if relaxation not in registry.names():
        raise ValueError(
            f"{name}: unknown relaxation {relaxation!r}; there are {', '.join(registry.names())}"
        )
    spec = registry.get(relaxation)
    if method in ("soft", "straight_through"):
        checked_options(name, spec, options, cast("Any", spec.matrix))
    elif options and method != "sampled":
        raise TypeError(f"{name}: method {method!r} has no option {next(iter(options))!r}; it has none")
    if fuse and method in ("soft", "merge"):
        raise ValueError(f"{name}: fuse needs a method that drops tokens, got method {method!r}")


def _estimator(
    name: str, estimator: str | Estimator, design: str | None, options: dict[str, Any]
) -> Estimator:
    """The estimator with its options, made by the layer that checks them."""
    try:
        return SampledTopK(1, design=design, estimator=estimator, **options).estimator
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name}: {error}") from error
