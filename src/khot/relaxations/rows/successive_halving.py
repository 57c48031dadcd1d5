"""Successive halving: a tournament that pairs the best with the worst until k are left.

Each round sorts the entries and pairs good ones with bad ones: the best entry that needs an opponent with the
worst, the next best with the next worst, and so on; the very best pass on alone if fewer pairs are needed.
The two entries of a pair become one, with the share w for entry i, 1 − w for entry j, and the new score v′:

    w = σ((v_i − v_j)/τ),    v′ = w v_i + (1 − w) v_j,

so m entries become max(k, ⌈m/2⌉). Each entry ends in exactly one of k slots with one weight, the product of
its shares: the operator is a pair (slot, weight) computed from scores alone. Weights lie in [0, 1] and sum to
one in each slot. Gradients flow through scores and weights; the pairing itself is not differentiated.

Cost: O(n log n) for the first sort, O(n) work and memory for the rest, in ⌈log₂(n/k)⌉ rounds (the iterative
softmax that it replaces takes O(kn)). The result equals the published algorithm if n/k is a power of two. For
other n and k, where the published code fails, the pairing is this file's own. Reference: Pietruszka,
Borchmann & Graliński (2021), Successive Halving Top-k Operator.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal, get_args

import torch
from torch import Tensor

from khot.kernels.availability import is_plain
from khot.kernels.rounds import destinations
from khot.kernels.sorting import argsort, unsorted
from khot.relaxations._arguments import Number
from khot.relaxations._plain_arguments import check_choice
from khot.relaxations._problem import attached, open_problem, relaxed_matrix, relaxed_weights
from khot.relaxations._ranked_rows import Allowed, in_full
from khot.relaxations._small_rows import SmallKernel
from khot.relaxations._whole import WeightsAt, whole
from khot.relaxations.registry import Relaxation, register
from khot.relaxations.rows._rounds import played

__all__ = [
    "Boost",
    "successive_halving_matrix",
    "successive_halving_select",
    "successive_halving_topk",
]

Boost = Literal["softmax", "base20"]
_BOOSTS = get_args(Boost)


def successive_halving_topk(
    scores: Tensor,
    k: Number | Tensor,
    *,
    temperature: Number | Tensor = 1.0,
    boost: Boost = "softmax",
    dim: int = -1,
    mask: Tensor | None = None,
    largest: bool = True,
    hard: bool = False,
) -> Tensor:
    r"""Relax the indicator of the ``k`` largest ``scores`` along ``dim``, by a tournament.

    .. math:: y_i = \prod_{\text{rounds}} \sigma\big(\pm(v_i - v_j)/\tau\big), \qquad
              v' = w\, v_i + (1 - w)\, v_j

    In each round good entries are paired with bad ones, and each pair becomes one entry. Gradients flow
    through scores and weights; the pairing itself is not differentiated.

    Units: the temperature divides differences of scores. Cost: a sort, and O(n) work and memory.

    Args:
        scores: a floating-point tensor of any shape. −inf is never selected, +inf always.
        k: an integer, 0 ≤ k ≤ n, or a tensor that broadcasts to ``scores.shape`` without ``dim`` (rounded).
        temperature: > 0, a number or a tensor like ``k``; 1/τ is the constant C of the paper.
        boost: how a pair shares its slot: ``"softmax"``, or ``"base20"``, the softmax of
            :math:`20^{v/\tau}` in the authors' code, for scores in [0, 1]; it is not invariant to shifts.
        dim: the dimension that sums to ``k``.
        mask: boolean, broadcastable to ``scores``; False gets weight 0 and gradient 0.
        largest: False selects the smallest scores; then +inf is never selected and −inf always.
        hard: exact hard top-k forward, this operator's gradient backward.

    Returns:
        Weights in the shape and dtype of ``scores``, in [0, 1], with sum min(k, allowed).

    Example:
        >>> x = torch.tensor([3.0, 1.0, 2.0, 0.0])
        >>> [round(v, 3) for v in successive_halving_topk(x, 2).tolist()]  # 3 meets 0, and 2 meets 1
        [0.953, 0.269, 0.731, 0.047]

    Reference: Pietruszka, Borchmann & Graliński (2021), Successive Halving Top-k Operator.
    """
    name = "successive_halving_topk"
    check_choice(name, "boost", boost, _BOOSTS)

    def weights_of(z: Tensor, allowed: Allowed, budgets: Tensor | None, most: int) -> Tensor:
        if allowed is None and budgets is None:
            return _even_tournament(z, most, boost)
        allowed, budgets = in_full(z, allowed, budgets, most)
        return _weights_of[boost](z, allowed, budgets, most, torch.ones_like(budgets))

    softmax = boost == "softmax"
    return relaxed_weights(
        name,
        weights_of,
        scores,
        k,
        temperature,
        dim,
        mask,
        largest,
        hard,
        anchored=softmax,
        kernel=SmallKernel("successive_halving") if softmax else None,
    )


def successive_halving_matrix(
    scores: Tensor,
    k: int,
    *,
    temperature: Number | Tensor = 1.0,
    boost: Boost = "softmax",
    dim: int = -1,
    mask: Tensor | None = None,
) -> Tensor:
    """The slots of `successive_halving_topk`, shape (…, k, n) with the entries of ``dim`` last.

    Each row sums to 1, each column has one entry; rows beyond the number of allowed entries are 0. The rows
    are only approximately in the order of their scores, because there is no sort after the last round. The
    arguments are the same.
    """
    name = "successive_halving_matrix"
    check_choice(name, "boost", boost, _BOOSTS)

    def rows_of(z: Tensor, allowed: Tensor, ranks: Tensor) -> Tensor:
        slot, weight = _tournament(z, allowed, ranks[..., -1:], int(k), boost)
        return torch.where((slot + 1).unsqueeze(-2) == ranks.unsqueeze(-1), weight.unsqueeze(-2), 0)

    return relaxed_matrix(name, rows_of, scores, k, temperature, dim, mask, anchored=boost == "softmax")


def successive_halving_select(
    values: Tensor,
    scores: Tensor,
    k: int,
    *,
    temperature: Number | Tensor = 1.0,
    boost: Boost = "softmax",
    mask: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """`successive_halving_matrix` times ``values`` (…, n, d), computed without the matrix in O(nd).

    Returns:
        The mixed vectors (…, k, d), and the weights (…, n).
    """
    name = "successive_halving_select"
    check_choice(name, "boost", boost, _BOOSTS)
    problem = open_problem(name, scores, k, temperature, mask, anchored=boost == "softmax")
    slot, weight = _tournament(problem.z, problem.finite, k - problem.n_surely, k, boost)
    weight = torch.where(problem.settled, problem.fixed, weight)
    # Entries at +inf share the first slots, those that are decided by finite scores come after them.
    n_surely = problem.n_surely
    in_slot = torch.where(problem.finite & (n_surely < k), weight, 0).to(values.dtype)
    slot = (slot + n_surely).clamp(0, max(k - 1, 0))
    rows = math.prod(scores.shape[:-1])
    first = torch.arange(rows, device=slot.device).view(*scores.shape[:-1], 1) * k
    blends = values.new_zeros(rows * k, values.shape[-1])
    terms = (in_slot.unsqueeze(-1) * values).flatten(0, -2)
    if k:
        blends = blends.index_add(0, (slot + first).flatten(), terms)
    blends = attached(blends.view(*scores.shape[:-1], k, values.shape[-1]), problem.z)
    surely = scores == math.inf if mask is None else (scores == math.inf) & mask
    if not is_plain(surely) or bool(surely.any()):
        share = surely.to(values.dtype) / n_surely.clamp_min(1)
        mean = (share.unsqueeze(-2) @ values).expand(blends.shape)
        place = torch.arange(k, device=slot.device).unsqueeze(-1)
        blends = torch.where(place < n_surely.unsqueeze(-1), mean, blends)
    return blends, attached(weight, problem.z).to(scores.dtype)


def _tournament(z: Tensor, allowed: Tensor, k: Tensor, most: int, boost: Boost) -> tuple[Tensor, Tensor]:
    """The slot and the weight (…, n) of each allowed entry, for scores in units of τ and k (…, 1) ≤ most.

    Rows may differ in k and in how many are allowed, so everything is indexed by place: of the m entries of a
    row, sorted, the first b pass alone, place i in b … t − 1 meets place m − 1 − (i − b), and t are left.
    """
    k = k.round().long().clamp_min(1)
    m = allowed.sum(-1, keepdim=True)
    size = z.shape[-1]
    order = argsort(torch.where(allowed, z, -math.inf).detach(), descending=True)[1]
    v = z.gather(-1, order)
    orders = [order]
    rounds: list[tuple[Tensor, Tensor]] = []
    # Traced, or on another device, nobody may look whether all rows are done: as many rounds as it can take.
    look = is_plain(m, k)
    for number in range(max(size - 1, 0).bit_length()):
        if look and not bool((m > k).any()):
            break
        if number:  # a row that is done stays as its last round left it
            standing = torch.where(torch.arange(size, device=z.device) < m, v, -math.inf)
            order = argsort(standing.detach(), descending=True)[1]
            order = torch.where(m > k, order, torch.arange(size, device=z.device))
            v = v.gather(-1, order)
            orders.append(order)
        t = torch.where(m > k, torch.maximum(k, (m + 1) // 2), m)
        size = max(min(most, size), (size + 1) // 2)
        slot = destinations(v, t, size)
        v, share = played(v, m, t, size, _CHANCES[boost])
        rounds.append((slot, share))
        m = t
    slot, weight = _followed_back(orders, rounds, size, z)
    return slot, torch.where(allowed, weight, 0)


def _even_tournament(z: Tensor, k: int, boost: Boost) -> Tensor:
    """The weights of `_tournament` where all rows have the same k and all entries are allowed: in slices."""
    orders: list[Tensor] = []
    shares: list[Tensor] = []
    v, m = z, z.shape[-1]
    while m > k:
        order = argsort(v.detach(), descending=True)[1]
        v = v.gather(-1, order)
        t = max(k, (m + 1) // 2)
        b = 2 * t - m
        alone, best, other = v[..., :b], v[..., b:t], v[..., t:].flip(-1)
        chance = _CHANCES[boost]
        share = torch.sigmoid(best - other) if chance is None else chance(best, other)
        v, m = torch.cat((alone, other + share * (best - other)), -1), t
        orders.append(order)
        shares.append(share)
    weight = torch.ones_like(v)
    for order, share in zip(reversed(orders), reversed(shares), strict=True):
        b = weight.shape[-1] - share.shape[-1]
        rest = weight[..., b:]
        lost = ((1 - share) * rest).flip(-1)
        weight = unsorted(torch.cat((weight[..., :b], share * rest, lost), -1), order)
    return weight


def _base20(best: Tensor, other: Tensor) -> Tensor:
    """σ(20^best − 20^other), from the larger exponent so that neither overflows nor cancels."""
    log20 = math.log(20)
    limit = 80.0 if best.dtype == torch.float32 else 700.0
    return torch.sigmoid(-torch.exp((best * log20).clamp(max=limit)) * torch.expm1((other - best) * log20))


_CHANCES: dict[Boost, Callable[[Tensor, Tensor], Tensor] | None] = {"softmax": None, "base20": _base20}
"""The share of the better one in a pair, given both; None is σ of their difference."""


def _followed_back(
    orders: list[Tensor], rounds: list[tuple[Tensor, Tensor]], size: int, like: Tensor
) -> tuple[Tensor, Tensor]:
    """From the last round to the first: where each entry of the row ended, and with what weight."""
    weight = torch.ones_like(like[..., :size])
    slot = torch.arange(size, device=like.device).expand(weight.shape)
    for number, order in reversed(list(enumerate(orders))):
        if number < len(rounds):
            into, share = rounds[number]
            weight = share * weight.gather(-1, into)
            slot = slot.gather(-1, into)
        weight = unsorted(weight, order)
        slot = unsorted(slot, order)
    return slot, weight


def _last_shares(boost: Boost) -> WeightsAt:
    def weights_of(z: Tensor, allowed: Tensor, budgets: Tensor, most: int, tau: Tensor) -> Tensor:
        return _tournament(z, allowed, budgets, most, boost)[1]

    return whole(f"successive_halving_{boost}", weights_of)


_weights_of: dict[Boost, WeightsAt] = {boost: _last_shares(boost) for boost in _BOOSTS}

SPEC = register(
    Relaxation(
        name="successive_halving",
        weights=successive_halving_topk,
        matrix=successive_halving_matrix,
        select=successive_halving_select,
        keeps_order=False,
        ties_share=False,
        smooth="piecewise",
        max_n=1_000_000,
        reference="Pietruszka, Borchmann & Graliński (2021)",
    )
)
