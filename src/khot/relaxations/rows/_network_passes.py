"""A soft sorting network as two operations of a compiled graph: its weights, and their gradients.

This does what ``network.py`` does layer by layer, but in place and with the derivatives written out. For a
comparator, let d be the difference of its values, q its swap probability, and u, v the weights of its wires:

    weights    (u, v) ↦ (u − q(u − v), v + q(u − v)),                 from the last layer to the first,
    gradients  (ḡ, h̄) ↦ (ḡ − q(ḡ − h̄), h̄ + q(ḡ − h̄)),   q̄ = −(ḡ − h̄)(u − v),     from the first to the last,
    values     d̄ = F′(d) ((ā − b̄) d − q̄),   (ā, b̄) ↦ (ā − q(ā − b̄) + d̄, b̄ + q(ā − b̄) − d̄),    and back again.

Only d and u − v of every comparator are kept for the backward pass. The dimension of the wires comes first
and the batch last, so that even comparators of neighbouring wires work on contiguous memory.
"""

from __future__ import annotations

import functools
import math
from typing import Any, Literal, cast

import torch
from torch import Tensor

from khot.kernels.loops import as_operation
from khot.relaxations.rows._sorting_networks import Layer, Network, schedule

__all__ = ["Distribution", "cdf", "through_network"]

Distribution = Literal["logistic", "cauchy"]
Passes = tuple[Tensor, Tensor, Tensor]


def through_network(
    z: Tensor, wanted: Tensor, count: Tensor, network: Network, distribution: Distribution, n: int
) -> Tensor:
    """Weights (…, m, wires) before the network for ``n`` values, of ``wanted`` (…, m, k) after it.

    The values are ``z`` (…, wires); the first ``count`` (…, 1) of them take part.
    """
    wanted = wanted.expand(*z.shape[:-1], *wanted.shape[-2:])
    return cast("Passes", _Passes.apply(z, wanted, count, network, distribution, n))[0]  # pyright: ignore[reportUnknownMemberType]


def cdf(difference: Tensor, distribution: Distribution) -> Tensor:
    """F(d)."""
    if distribution == "logistic":
        return torch.sigmoid(difference)
    return torch.atan2(torch.ones_like(difference), -difference) / math.pi


def _slope(difference: Tensor, swap: Tensor, distribution: Distribution) -> Tensor:
    """F′(d)."""
    if distribution == "logistic":
        return swap * torch.sigmoid(difference)
    return 1 / (math.pi * (1 + difference * difference))


class _Passes(torch.autograd.Function):
    """(z, wanted, count, network, distribution, n) → (weights, differences of values, of weights)."""

    generate_vmap_rule = True

    @staticmethod
    def forward(
        z: Tensor, wanted: Tensor, count: Tensor, network: Network, distribution: Distribution, n: int
    ) -> Passes:
        return _network_weights(z, wanted, count, network, distribution, n)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        _, wanted, _, *ctx.kind = inputs
        _, values_apart, weights_apart = output
        ctx.k = wanted.shape[-1]
        ctx.mark_non_differentiable(values_apart, weights_apart)
        ctx.save_for_backward(values_apart, weights_apart)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        grad_z = _network_gradients(grads[0], *ctx.saved_tensors, *ctx.kind, ctx.k)
        return grad_z, None, None, None, None, None


def _weights(
    z: Tensor, wanted: Tensor, count: Tensor, network: Network, distribution: Distribution, n: int
) -> Passes:
    """Weights (…, m, wires), and of each comparator d (…, comparators) and u − v (…, m, comparators)."""
    m, k = wanted.shape[-2:]
    layers = _parts(network, n, k)
    values = _wires_first(z, z.dim() - 1).clone()
    weights = z.new_zeros(z.shape[-1], m, values.shape[-1])
    weights[:k] = _wires_first(wanted, z.dim() - 1)
    comparators = layers[-1][1].stop if layers else 0
    values_apart = z.new_empty(comparators, values.shape[-1])
    weights_apart = z.new_empty(comparators, *weights.shape[1:])
    present = count.reshape(-1)
    all_present = bool((present >= z.shape[-1]).all())
    swaps: list[Tensor] = []
    for layer, part in layers:
        a, b = _halves(values, layer)
        other = _turned(b, layer)
        apart = torch.sub(a, other, out=_of(layer, values_apart[part]))
        if not all_present:
            apart.masked_fill_(_absent(layer, present), torch.finfo(z.dtype).max)  # it never swaps
        stay, swap = cdf(apart, distribution), cdf(-apart, distribution)
        lower = (swap * a).addcmul_(stay, other)
        a.mul_(stay).addcmul_(swap, other)
        b.copy_(_turned(lower, layer))
        swaps.append(swap)
    for (layer, part), swap in zip(reversed(layers), reversed(swaps), strict=True):
        a, b = _halves(weights, layer)
        apart = torch.sub(a, _turned(b, layer), out=_of(layer, weights_apart[part]))
        moved = apart * swap.unsqueeze(-2)
        a.sub_(moved)
        b.add_(_turned(moved, layer))
    rows = z.shape[:-1]
    return _wires_last(weights, rows), _wires_last(values_apart, rows), _wires_last(weights_apart, rows)


def _look_at_weights(
    z: Tensor, wanted: Tensor, count: Tensor, network: Network, distribution: Distribution, n: int
) -> Passes:
    m, k = wanted.shape[-2:]
    layers = _parts(network, n, int(k))  # the network is for these very sizes
    comparators = layers[-1][1].stop if layers else 0
    rows = z.shape[:-1]
    return (
        _wires_last(z.new_empty(z.shape[-1], m, math.prod(rows)), rows),
        _wires_last(z.new_empty(comparators, math.prod(rows)), rows),
        _wires_last(z.new_empty(comparators, m, math.prod(rows)), rows),
    )


def _gradients(
    grad: Tensor,
    values_apart: Tensor,
    weights_apart: Tensor,
    network: Network,
    distribution: Distribution,
    n: int,
    k: int,
) -> Tensor:
    """The gradient (…, wires) in the values, for one in the weights."""
    layers = _parts(network, n, k)
    rows = grad.shape[:-2]
    of_weights = _wires_first(grad, len(rows)).clone()
    values_apart = _wires_first(values_apart, len(rows)).contiguous()
    weights_apart = _wires_first(weights_apart, len(rows)).contiguous()
    swaps: list[Tensor] = []
    of_swaps: list[Tensor] = []
    for layer, part in layers:
        a, b = _halves(of_weights, layer)
        apart = a - _turned(b, layer)
        swap = cdf(-_of(layer, values_apart[part]), distribution)
        moved = apart * swap.unsqueeze(-2)
        a.sub_(moved)
        b.add_(_turned(moved, layer))
        swaps.append(swap)
        of_swaps.append(apart.mul_(_of(layer, weights_apart[part])).sum(-2).neg_())
    result = grad.new_zeros(grad.shape[-1], math.prod(rows))
    for (layer, part), swap, of_swap in zip(
        reversed(layers), reversed(swaps), reversed(of_swaps), strict=True
    ):
        a, b = _halves(result, layer)
        apart = a - _turned(b, layer)
        difference = _of(layer, values_apart[part])
        slope = _slope(difference, swap, distribution)
        # The slope first: it is 0 where the difference stands for infinity.
        moved = swap.sub_(slope * difference).mul_(apart).addcmul_(slope, of_swap)
        a.sub_(moved)
        b.add_(_turned(moved, layer))
    return _wires_last(result, rows)


def _look_at_gradients(grad: Tensor, *saved: Any) -> Tensor:
    rows = grad.shape[:-2]
    return _wires_last(grad.new_empty(grad.shape[-1], math.prod(rows)), rows)


_network_weights = as_operation(
    "network_weights(Tensor z, Tensor wanted, Tensor count, str network, str distribution, int n)"
    " -> (Tensor, Tensor, Tensor)",
    _weights,
    _look_at_weights,
)
_network_gradients = as_operation(
    "network_gradients(Tensor grad, Tensor values_apart, Tensor weights_apart,"
    " str network, str distribution, int n, int k) -> Tensor",
    _gradients,
    _look_at_gradients,
)


@functools.lru_cache(maxsize=64)
def _parts(network: Network, n: int, k: int) -> tuple[tuple[Layer, slice], ...]:
    """The layers, each with the numbers of its comparators."""
    ends = [0]
    parts: list[tuple[Layer, slice]] = []
    for layer in schedule(network, n, k):
        ends.append(ends[-1] + layer.groups * layer.distance)
        parts.append((layer, slice(*ends[-2:])))
    return tuple(parts)


def _wires_first(tensor: Tensor, batch_dims: int) -> Tensor:
    """As (wires, m, batch) or (wires, batch) what is (…, m, wires) or (…, wires)."""
    flat = tensor.reshape(math.prod(tensor.shape[:batch_dims]), *tensor.shape[batch_dims:])
    return flat.permute(*reversed(range(flat.dim()))).contiguous()


def _wires_last(tensor: Tensor, rows: torch.Size) -> Tensor:
    """And back, without a copy."""
    turned = tensor.permute(*reversed(range(tensor.dim())))
    return turned.view(*rows, *turned.shape[1:])


def _halves(wires: Tensor, layer: Layer) -> tuple[Tensor, Tensor]:
    """The two wires of each comparator, (groups, distance, …), the second not yet turned."""
    compared = wires.narrow(0, layer.first, 2 * layer.distance * layer.groups)
    halves = compared.view(layer.groups, 2, layer.distance, *wires.shape[1:])
    return halves[:, 0], halves[:, 1]


def _of(layer: Layer, comparators: Tensor) -> Tensor:
    """(groups · distance, …) as (groups, distance, …)."""
    return comparators.view(layer.groups, layer.distance, *comparators.shape[1:])


def _turned(half: Tensor, layer: Layer) -> Tensor:
    return half.flip(1) if layer.mirrored else half


def _absent(layer: Layer, present: Tensor) -> Tensor:
    """The comparators (groups, distance, batch) that take no part where so many values are present."""
    farther = _turned(_halves(torch.arange(layer.wires, device=present.device), layer)[1], layer)
    return farther.clamp_min(layer.beyond).unsqueeze(-1) >= present
