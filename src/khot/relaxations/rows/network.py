"""Network top-k: a sorting network whose comparators swap with a probability.

    (a, b) ↦ (p a + q b, q a + p b),    p = F((a − b)/τ),   q = 1 − p,      F a logistic or Cauchy CDF

A layer of comparators is a doubly stochastic matrix L_t that depends on the values before it. The product of
all layers is the soft permutation matrix, whose rows 1 … k are wanted. They go backwards through the layers,
M ↦ M L_t, and so does their sum, y = L_1ᵀ … L_Tᵀ 1_k. That sum is one vector, so the weights cost O(n) per
layer; they lie in [0, 1]. A network of many layers is cut into segments, and only the values at the start of
each segment are kept.

Not permutation equivariant: which entries are compared depends on their order. Cost: O(n log² n) for the
bitonic network, O(n²) work and O(n √n) memory for odd-even. References: Petersen, Borgelt, Kuehne & Deussen
(2021), Differentiable Sorting Networks, and (2022), Differentiable Top-k Classification Learning.
"""

from __future__ import annotations

import functools
import math
from typing import get_args

import torch
from torch import Tensor
from torch.nn.functional import pad

from khot.kernels.availability import is_plain
from khot.kernels.loops import loops_are_operations
from khot.relaxations._arguments import Number
from khot.relaxations._plain_arguments import check_choice
from khot.relaxations._problem import relaxed_matrix, relaxed_weights
from khot.relaxations._ranked_rows import Allowed, RowsOf, WeightsOf, in_full
from khot.relaxations._recomputed import recomputed
from khot.relaxations._small_rows import MOST, SmallKernel
from khot.relaxations.registry import Relaxation, register
from khot.relaxations.rows._network_passes import Distribution, cdf, through_network
from khot.relaxations.rows._sorting_networks import Layer, Network, schedule

__all__ = ["Distribution", "network_matrix", "network_topk"]

_NETWORKS = get_args(Network)
_DISTRIBUTIONS = get_args(Distribution)

_WHOLE = 128  # a network of more layers is cut into segments


def network_topk(
    scores: Tensor,
    k: Number | Tensor,
    *,
    temperature: Number | Tensor = 1.0,
    network: Network = "bitonic",
    distribution: Distribution = "logistic",
    dim: int = -1,
    mask: Tensor | None = None,
    largest: bool = True,
    hard: bool = False,
) -> Tensor:
    r"""Relax the indicator of the ``k`` largest ``scores`` along ``dim``, by a soft sorting network.

    .. math:: (a, b) \mapsto (p a + q b,\; q a + p b), \qquad p = F\big((a - b)/\tau\big), \quad q = 1 - p

    at every comparator. The result depends on the order of the entries.

    Units: the temperature divides differences of scores, at every comparator: more layers give softer
    weights. Cost: O(n log² n) for the bitonic network; O(n²) work and O(n √n) memory for odd-even.

    Args:
        scores: a floating-point tensor of any shape. −inf is never selected, +inf always.
        k: an integer, 0 ≤ k ≤ n, or a tensor that broadcasts to ``scores.shape`` without ``dim`` (rounded).
        temperature: > 0, a number or a tensor like ``k``; the inverse of what the authors call steepness.
        network: ``"bitonic"``, about ½ log₂² n layers, or ``"odd_even"``, n layers.
        distribution: ``"logistic"`` or ``"cauchy"``. The heavy tails of the Cauchy CDF keep a gradient
            between scores that are far apart; the error against the hard top-k then falls only like τ.
        dim: the dimension that sums to ``k``.
        mask: boolean, broadcastable to ``scores``; False gets weight 0 and gradient 0.
        largest: False selects the smallest scores; then +inf is never selected and −inf always.
        hard: exact hard top-k forward, this operator's gradient backward.

    Returns:
        Weights in the shape and dtype of ``scores``, in [0, 1], with sum min(k, allowed).

    Example:
        >>> x = torch.tensor([3.0, 1.0, 2.0])
        >>> [round(v, 3) for v in network_topk(x, 2, temperature=0.2).tolist()]
        [1.0, 0.007, 0.993]

    Reference: Petersen, Borgelt, Kuehne & Deussen (2021), Differentiable Sorting Networks for Scalable
    Sorting and Ranking Supervision; (2022), Differentiable Top-k Classification Learning.
    """
    name = "network_topk"
    _check(name, network, distribution)
    kernel = None
    if type(k) is int and is_plain(scores) and scores.dim() and 0 < k < scores.shape[-1]:
        kernel = _kernel(network, distribution, scores.shape[-1], k)
    return relaxed_weights(
        name, _weights(network, distribution), scores, k, temperature, dim, mask, largest, hard, kernel=kernel
    )


def network_matrix(
    scores: Tensor,
    k: int,
    *,
    temperature: Number | Tensor = 1.0,
    network: Network = "bitonic",
    distribution: Distribution = "logistic",
    dim: int = -1,
    mask: Tensor | None = None,
) -> Tensor:
    """The rows of `network_topk`, shape (…, k, n) with the entries of ``dim`` last: row r is the r-th best.

    Each row sums to 1; rows beyond the number of allowed entries are 0. The arguments are the same; k is an
    integer.
    """
    name = "network_matrix"
    _check(name, network, distribution)
    return relaxed_matrix(name, _rows(network, distribution), scores, k, temperature, dim, mask)


def _check(name: str, network: str, distribution: str) -> None:
    check_choice(name, "network", network, _NETWORKS)
    check_choice(name, "distribution", distribution, _DISTRIBUTIONS)


@functools.lru_cache(maxsize=64)
def _kernel(network: Network, distribution: Distribution, n: int, k: int) -> SmallKernel | None:
    """For short rows whose network has no wires beyond them."""
    if n > MOST:
        return None
    layers = schedule(network, n, k)
    if layers and layers[0].wires > n:
        return None
    table = [[layer.first, layer.distance, layer.groups, int(layer.mirrored)] for layer in layers]
    return SmallKernel(
        "network", torch.tensor(table, dtype=torch.int64).view(-1, 4), distribution == "cauchy"
    )


def _weights(network: Network, distribution: Distribution) -> WeightsOf:
    def weights(z: Tensor, allowed: Allowed, k: Tensor | None, most: int) -> Tensor:
        if k is None:
            wanted = torch.ones(*z.shape[:-1], 1, most, dtype=z.dtype, device=z.device)
        else:
            wanted = (torch.arange(most, device=z.device) < k).to(z.dtype).unsqueeze(-2)
        return _pull_back(z, allowed, wanted, network, distribution).squeeze(-2)

    return weights


def _rows(network: Network, distribution: Distribution) -> RowsOf:
    def rows(z: Tensor, allowed: Tensor, ranks: Tensor) -> Tensor:
        wanted = (torch.arange(1, ranks.shape[-1] + 1, device=z.device) == ranks.unsqueeze(-1)).to(z.dtype)
        return _pull_back(z, allowed, wanted, network, distribution)

    return rows


def _pull_back(
    z: Tensor, allowed: Allowed, wanted: Tensor, network: Network, distribution: Distribution
) -> Tensor:
    """``wanted`` (…, m, k), weights of the wires after the network, as weights (…, m, n) of the entries.

    The published networks sort upwards; so that the same entries meet here, the last one is on wire 0.
    """
    n = z.shape[-1]
    layers = schedule(network, n, wanted.shape[-1])
    wires = layers[0].wires if layers else n
    if wires <= n and (allowed is None or (is_plain(allowed) and bool(allowed.all()))):
        count, place = None, None
        z = z.flip(-1)
    else:
        allowed = in_full(z, allowed, None, n)[0]
        count = allowed.sum(-1, keepdim=True)
        # Those allowed come first, the last of them on wire 0; comparators of the others take no part.
        before = allowed.flip(-1).cumsum(-1).flip(-1)
        place = torch.where(allowed, before - 1, count + torch.arange(n, device=z.device).flip(-1) - before)
        z = torch.zeros_like(z).scatter(-1, place, z)
    z = pad(z, (0, max(wires - n, 0)))[..., :wires]
    if count is not None and loops_are_operations():
        w = through_network(z, wanted, count, network, distribution, n)
    else:
        w = _through(z, wanted, count, layers, distribution)
    w = pad(w, (0, max(n - w.shape[-1], 0)))[..., :n]
    if place is None:
        return w.flip(-1)
    return w.gather(-1, place.unsqueeze(-2).expand(w.shape))


def _through(
    z: Tensor, w: Tensor, count: Tensor | None, layers: tuple[Layer, ...], distribution: Distribution
) -> Tensor:
    """Weights before the layers, of values ``z`` before them and weights ``w`` after them."""
    if len(layers) <= _WHOLE:
        return _pull(z, w, count, layers, distribution)
    size = math.isqrt(len(layers))
    segments = [layers[i : i + size] for i in range(0, len(layers), size)]
    starts = [z]
    for segment in segments[:-1]:
        starts.append(recomputed(_push, starts[-1], count, segment, distribution))
    for start, segment in zip(reversed(starts), reversed(segments), strict=True):
        w = recomputed(_pull, start, w, count, segment, distribution)
    return w


def _push(z: Tensor, count: Tensor | None, layers: tuple[Layer, ...], distribution: Distribution) -> Tensor:
    """Values after the layers."""
    for layer in layers:
        z = _step(z, count, layer, distribution)[0]
    return z


def _pull(
    z: Tensor, w: Tensor, count: Tensor | None, layers: tuple[Layer, ...], distribution: Distribution
) -> Tensor:
    """Weights before the layers."""
    swaps: list[Tensor] = []
    for layer in layers:
        z, swap = _step(z, count, layer, distribution)
        swaps.append(swap)
    for layer, swap in zip(reversed(layers), reversed(swaps), strict=True):
        w = pad(w, (0, layer.wires - layer.keep))
        a, b = _pairs(w, layer)
        moved = swap.unsqueeze(-3) * (b - a)
        w = _joined(w, a + moved, b - moved, layer)
    return w


def _step(z: Tensor, count: Tensor | None, layer: Layer, distribution: Distribution) -> tuple[Tensor, Tensor]:
    """Values after a layer, and the probabilities with which its comparators swap."""
    a, b = _pairs(z, layer)
    stay, swap = cdf(a - b, distribution), cdf(b - a, distribution)  # each with its own digits
    if count is not None:
        # A pair takes part if its farther wire holds something, in a network that has this layer.
        wire = torch.arange(layer.wires, device=z.device)
        active = _pairs(wire, layer)[1].clamp_min(layer.beyond) < count.unsqueeze(-1)
        stay, swap = torch.where(active, stay, 1), torch.where(active, swap, 0)
    return _joined(z, stay * a + swap * b, swap * a + stay * b, layer)[..., : layer.keep], swap


def _pairs(wires: Tensor, layer: Layer) -> tuple[Tensor, Tensor]:
    """The two wires of each comparator, (…, groups, distance)."""
    compared = wires.narrow(-1, layer.first, 2 * layer.distance * layer.groups)
    halves = compared.reshape(*wires.shape[:-1], layer.groups, 2, layer.distance)
    a, b = halves.select(-2, 0), halves.select(-2, 1)
    return a, b.flip(-1) if layer.mirrored else b


def _joined(wires: Tensor, a: Tensor, b: Tensor, layer: Layer) -> Tensor:
    """The wires with those of the comparators replaced."""
    middle = torch.stack((a, b.flip(-1) if layer.mirrored else b), -2).flatten(-3)
    last = layer.first + middle.shape[-1]
    if layer.first == 0 and last == layer.wires:
        return middle
    return torch.cat((wires[..., : layer.first], middle, wires[..., last:]), -1)


SPEC = register(
    Relaxation(
        name="network",
        weights=network_topk,
        matrix=network_matrix,
        keeps_order=False,
        equivariant=False,
        ties_share=False,
        smooth="C∞",
        max_n=1000,
        example_options=({"network": "odd_even"},),
        reference="Petersen, Borgelt, Kuehne & Deussen (2021, 2022)",
    )
)
