"""Experts: gated two-layer networks, computed together, each on its own tokens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

import torch
from torch import Tensor, nn

from khot.apps.moe._choice import check_range
from khot.apps.moe._grouped import grouped_linear, lengths
from khot.apps.moe.capacity import sorted_by_expert
from khot.relaxations._plain_arguments import (
    check_choice,
    check_floating,
    check_integer,
    check_switch,
    check_tensor,
)

__all__ = ["Activation", "Experts", "spread_over_modules"]

Activation = Literal["silu", "gelu", "relu"]
_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": nn.functional.silu,
    "gelu": nn.functional.gelu,
    "relu": nn.functional.relu,
}


class Experts(nn.Module):
    r"""The experts of a mixture: gated two-layer networks, computed together.

    .. math:: x \mapsto D_e \big(\phi(G_e x) \odot U_e x\big), \qquad
        \text{or without a gate} \quad x \mapsto D_e\, \phi(U_e x)

    Parameters have the names and shapes of transformers 5, ``gate_up_proj`` (experts, 2·width, hidden) and
    ``down_proj`` (experts, hidden, width), so that checkpoints can be exchanged; without a gate, ``up_proj``
    (experts, width, hidden). Tokens are sorted by expert, and each expert processes one segment. Cost: no
    loop over tokens, O(T·k) memory.

    Args:
        num_experts: the number of experts.
        hidden: the length of a token's vector.
        width: the width of an expert's hidden layer.
        activation: ``"silu"``, ``"gelu"`` or ``"relu"``.
        gated: whether there is a gate G.
        device: device of the parameters.
        dtype: dtype of the parameters.

    Example:
        >>> experts = Experts(4, hidden=8, width=16)
        >>> experts(torch.randn(5, 8), torch.zeros(5, 2, dtype=torch.int64), torch.ones(5, 2)).shape
        torch.Size([5, 8])
    """

    def __init__(
        self,
        num_experts: int,
        hidden: int,
        width: int,
        *,
        activation: Activation = "silu",
        gated: bool = True,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        for argument, value in (("num_experts", num_experts), ("hidden", hidden), ("width", width)):
            check_integer("Experts", argument, value)
        check_switch("Experts", "gated", gated)
        check_choice("Experts", "activation", activation, get_args(Activation))
        self.num_experts, self.activation, self.gated = num_experts, activation, gated
        into = torch.empty(num_experts, (1 + gated) * width, hidden, device=device, dtype=dtype)
        self.register_parameter("gate_up_proj" if gated else "up_proj", nn.Parameter(into))
        self.down_proj = nn.Parameter(torch.empty(num_experts, hidden, width, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialise uniformly, as ``nn.Linear`` does."""
        for matrices in self.parameters():
            bound = matrices.shape[-1] ** -0.5
            nn.init.uniform_(matrices, -bound, bound)

    def forward(self, hidden_states: Tensor, indices: Tensor, weights: Tensor) -> Tensor:
        """The weighted sum of the chosen experts.

        Args:
            hidden_states: (T, hidden).
            indices: (T, k); ``num_experts`` marks a pair that is not computed.
            weights: (T, k).

        Returns:
            (T, hidden).
        """
        self._check(hidden_states, indices, weights)
        places = indices.reshape(-1).long()
        k = indices.shape[-1]
        try:
            order, ends = sorted_by_expert(places, self.num_experts)
        except RuntimeError:  # on the CPU, of indices out of range; to look for them first takes longer
            check_range("Experts", indices, self.num_experts + 1)
            raise
        computed = self.compute(hidden_states[order // k], ends)
        back = torch.empty_like(order).scatter_(0, order, torch.arange(order.shape[0], device=order.device))
        each = computed[back].view(*indices.shape, computed.shape[-1])
        each = each * weights.to(computed.dtype).unsqueeze(-1)
        return each.sum(1).to(hidden_states.dtype)

    def _check(self, hidden_states: Tensor, indices: Tensor, weights: Tensor) -> None:
        hidden = self.down_proj.shape[1]
        check_floating("Experts", "hidden_states", hidden_states)
        check_floating("Experts", "weights", weights)
        check_tensor("Experts", "indices", indices)
        if hidden_states.dim() != 2 or hidden_states.shape[1] != hidden:
            raise ValueError(
                f"Experts: hidden_states must have the shape (tokens, {hidden}), "
                f"got {tuple(hidden_states.shape)}"
            )
        if indices.dim() != 2 or indices.shape[0] != hidden_states.shape[0] or weights.shape != indices.shape:
            raise ValueError(
                f"Experts: indices and weights must have one shape (tokens, k) with {hidden_states.shape[0]} "
                f"tokens, got {tuple(indices.shape)} and {tuple(weights.shape)}"
            )

    def compute(self, rows: Tensor, ends: Tensor) -> Tensor:
        """The output of each expert for its segment of ``rows`` (P, hidden), which ends at ``ends[e]``."""
        into = self.gate_up_proj if self.gated else self.up_proj
        assert isinstance(into, Tensor)
        rows = rows.to(into.dtype)
        inner = grouped_linear(rows, into, ends)
        function = _FUNCTIONS[self.activation]
        if self.gated:
            gate, up = inner.chunk(2, dim=-1)
            inner = function(gate) * up
        else:
            inner = function(inner)
        return grouped_linear(inner, self.down_proj, ends)

    def extra_repr(self) -> str:
        """Show the sizes."""
        _, hidden, width = self.down_proj.shape
        return f"{self.num_experts}, hidden={hidden}, width={width}, activation={self.activation!r}"


def spread_over_modules(modules: nn.ModuleList, rows: Tensor, ends: Tensor) -> Tensor:
    """The same for experts that are separate modules: a loop over experts; rows after the last end give 0."""
    results: list[Tensor] = []
    start = 0
    for expert, end in zip(modules, lengths(ends), strict=True):
        if end > start:
            results.append(expert(rows[start:end]))
        start = end
    rest = rows[start:]
    return torch.cat([*results, torch.zeros_like(rest)])
