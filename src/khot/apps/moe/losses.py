r"""Losses for routers, computed from the experts that were actually used, without padding.

Libraries scale the balance loss differently. With f the share of tokens that see expert e (the shares sum to
k) and P its mean probability,

* here, and in Megatron and Switch Transformers: :math:`\frac{E}{k} \sum_e f_e P_e`, **1 at balance**;
* in transformers: :math:`E \sum_e f_e P_e`, **k at balance** (and f is always computed by softmax top-k,
  whatever the model's router chose).

So ``router_aux_loss_coef=0.001`` in a transformers configuration corresponds to ``0.001 * k`` here. 1 is not
the smallest possible value; but the gradient in P is zero only if f is balanced.

Reference: Fedus, Zoph & Shazeer (2022), Switch Transformers, arXiv:2101.03961; by sequence, DeepSeek-AI
(2024), arXiv:2412.19437; global, Qiu et al. (2025), Demons in the Detail, arXiv:2501.11873; z-loss, Zoph et
al. (2022), ST-MoE, arXiv:2202.08906.
"""

from __future__ import annotations

from typing import Any, Literal, get_args

import torch
import torch.distributed
from torch import Tensor

from khot.apps.moe._choice import check_range
from khot.apps.moe._masks import real_of, real_tokens
from khot.apps.moe._rule import SCORES, Score
from khot.apps.moe._scores import probabilities
from khot.parallel._agreement import agreed_sizes
from khot.parallel._group import Group
from khot.relaxations._plain_arguments import check_choice, check_floating, check_integer, check_tensor
from khot.relaxations.straight_through import straight_through

__all__ = ["BalanceOver", "load_balance_loss", "z_loss"]

BalanceOver = Literal["switch", "sequence", "global"]
_KINDS: tuple[str, ...] = get_args(BalanceOver)


def load_balance_loss(
    logits: Tensor,
    indices: Tensor,
    kind: BalanceOver = "switch",
    *,
    mask: Tensor | None = None,
    score: Score = "softmax",
    sequences: int | None = None,
    group: torch.distributed.ProcessGroup | None = None,
) -> Tensor:
    r"""How unevenly the experts are used, with a gradient for the logits.

    .. math:: \frac{E}{k} \sum_e f_e P_e, \qquad
        f_e = \frac{1}{T} \sum_t [e \in \text{indices}_t], \quad P_e = \frac{1}{T} \sum_t p_{te}

    It is 1 at balance; see :mod:`khot.apps.moe.losses` for the scales of other libraries. Cost: O(T·E).

    Args:
        logits: raw logits (T, experts) of a router.
        indices: the experts (T, k) that it chose, with any routing.
        kind: ``"switch"``: over all tokens; ``"sequence"``: for each sequence, then the mean over sequences
            that have a real token; ``"global"``: over the tokens of all processes, so that the mean over
            processes is the loss of all their tokens together.
        mask: (T,) or in the tokens' original shape, True (or 1) for a real token.
        score: how p comes from the logits: softmax, or sigmoid or √softplus divided by their sum.
        sequences: for ``"sequence"``: the number of sequences, all of equal length; by default the number of
            rows of ``mask``.
        group: the processes, for ``"global"``; by default all.

    Returns:
        A scalar; 0 if there is no real token.

    Example:
        >>> logits = torch.zeros(8, 4)
        >>> load_balance_loss(logits, torch.arange(8).view(-1, 1) % 4)
        tensor(1.)
        >>> one = torch.tensor([9.0, 0.0, 0.0, 0.0])
        >>> load_balance_loss(logits + one, torch.zeros(8, 1, dtype=torch.int64)) > 3.9
        tensor(True)

    Reference: Fedus, Zoph & Shazeer (2022), Switch Transformers, arXiv:2101.03961.
    """
    name = "load_balance_loss"
    check_choice(name, "kind", kind, _KINDS)

    def checked() -> tuple[int, dict[str, Any]]:
        check_choice(name, "score", score, SCORES)
        _check_pair(name, logits, indices)
        check_range(name, indices, logits.shape[1])
        if kind != "sequence" and sequences is not None:
            raise ValueError(f"{name}: sequences is for kind='sequence', got kind={kind!r}")
        real_of(name, mask, logits.shape[0])
        facts = {"score": score, "experts": logits.shape[1], "k": indices.shape[-1], "dtype": logits.dtype}
        return logits.shape[0], facts

    if kind == "global":  # a mistake in one process is an error in all
        device = logits.device if isinstance(logits, Tensor) else torch.device("cpu")  # pyright: ignore[reportUnnecessaryIsInstance]
        agreed_sizes(name, Group(group), device, checked)
    else:
        checked()
    tokens, experts = logits.shape
    count = _sequences(name, tokens, sequences, mask) if kind == "sequence" else 1
    real = real_of(name, mask, tokens)
    shares = probabilities(logits, score)
    used = shares.new_ones(tokens) if real is None else real.to(shares.dtype)
    k = indices.shape[-1]
    chosen = indices.reshape(count, -1)
    loads = shares.new_zeros(count, experts).scatter_add(
        1, chosen, used.view(count, -1).repeat_interleave(k, dim=1)
    )
    masses = torch.where(used.unsqueeze(-1) > 0, shares, 0).reshape(count, -1, experts).sum(1)
    totals = used.view(count, -1).sum(1)
    among = totals
    if kind == "global" and torch.distributed.is_available() and torch.distributed.is_initialized():
        both = torch.cat([loads.flatten(), totals])
        torch.distributed.all_reduce(both, group=group)  # pyright: ignore[reportUnknownMemberType]
        loads, totals = both[:-1].view(1, -1), both[-1:]
        among = totals / torch.distributed.get_world_size(group)
    each = experts / k * (loads * masses).sum(1) / (totals * among).clamp_min(1e-20)
    each = torch.where(totals > 0, each, 0 * each)
    return each.sum() / (totals > 0).sum().clamp_min(1)


def z_loss(logits: Tensor, mask: Tensor | None = None) -> Tensor:
    r"""The mean of :math:`(\log \sum_e e^{\ell_e})^2` over real tokens; it keeps logits small.

    Cost: O(T·E).

    Args:
        logits: raw logits (T, experts), or (…, experts).
        mask: of their shape without the last dimension, or, for (T, experts), in the tokens' original shape;
            True (or 1) for a real token.

    Returns:
        A scalar; 0 if there is no real token.

    Example:
        >>> round(z_loss(torch.zeros(3, 8)).item(), 3)  # (log 8)²
        4.324

    Reference: Zoph et al. (2022), ST-MoE, arXiv:2202.08906.
    """
    _check_logits("z_loss", logits)
    sums = logits.to(torch.promote_types(logits.dtype, torch.float32)).logsumexp(-1)
    largest = torch.finfo(sums.dtype).max ** 0.5 / 2  # whose square is finite; beyond it the gradient stays
    near = straight_through(sums, sums.clamp(-largest, largest))
    squares = torch.where(sums.isfinite(), near, sums).square()
    if squares.dim() == 1:
        real = real_of("z_loss", mask, squares.shape[0])
    else:
        real = real_tokens("z_loss", mask, squares.shape)
    squares = squares.reshape(-1)
    if real is None:
        return (squares / max(squares.shape[0], 1)).sum()
    return (torch.where(real, squares, 0) / real.sum().clamp_min(1)).sum()


def _check_logits(name: str, logits: Tensor) -> None:
    if not isinstance(logits, Tensor):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{name}: logits must be the tensor of one router, got {type(logits).__name__}")
    check_floating(name, "logits", logits)


def _check_pair(name: str, logits: Tensor, indices: Tensor) -> None:
    _check_logits(name, logits)
    if logits.dim() != 2:
        raise ValueError(f"{name}: logits must have the shape (tokens, experts), got {tuple(logits.shape)}")
    check_tensor(name, "indices", indices)
    if indices.dim() != 2 or indices.shape[0] != logits.shape[0]:
        raise ValueError(
            f"{name}: indices must have the shape (tokens, k) with {logits.shape[0]} tokens, "
            f"got {tuple(indices.shape)}"
        )


def _sequences(name: str, tokens: int, sequences: int | None, mask: Tensor | None) -> int:
    if sequences is None:
        if mask is None or mask.dim() != 2:
            raise ValueError(f"{name}: kind='sequence' needs sequences, or a mask (sequences, length)")
        return mask.shape[0]
    check_integer(name, "sequences", sequences)
    if tokens % sequences:
        raise ValueError(f"{name}: sequences must divide the {tokens} tokens, got {sequences!r}")
    return sequences
