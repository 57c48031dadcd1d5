"""The mixture-of-experts layer: a router, its experts, and shared experts that see every token."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, overload

import torch
from torch import Tensor, nn

from khot.apps.moe._masks import KnowsPadding, real_of, real_tokens
from khot.apps.moe.capacity import Drop, apply_capacity, check_capacity, sorted_by_expert
from khot.apps.moe.expert_choice import ExpertChoice, ExpertChoiceRouter
from khot.apps.moe.experts import Experts, spread_over_modules
from khot.apps.moe.router import Routed, TopKRouter
from khot.relaxations._plain_arguments import check_floating, check_switch

__all__ = ["MoE"]


class MoE(nn.Module):
    r"""A mixture of experts: :math:`y = \sum_{e \in \text{chosen}} w_e\, f_e(x) + f_\text{shared}(x)`.

    Pairs (token, expert) are sorted by expert, and each expert computes one segment of them. Padding and
    dropped pairs are not computed. Cost: no loop over tokens, O(T·k) memory.

    Args:
        router: a :class:`TopKRouter`, an :class:`ExpertChoiceRouter`, or any module with the interface of
            transformers, ``router(tokens) -> (logits, weights, indices)``.
        experts: :class:`Experts`, or your own modules, each from (n, hidden) to (n, hidden).
        shared: a module that sees every token; its output is added.
        shared_gate: a module from (T, hidden) to (T, 1), whose sigmoid multiplies the shared output.
        capacity: the largest number of tokens per expert.
        capacity_factor: the same as a multiple of the even load; see :func:`apply_capacity`.
        drop: which pairs to drop, by ``"probability"`` or by ``"position"``.

    Example:
        >>> from khot.apps.moe import Experts, TopKRouter, load_balance_loss
        >>> layer = MoE(TopKRouter(16, 8, 2), Experts(8, hidden=16, width=32))
        >>> x = torch.randn(4, 5, 16)
        >>> layer(x).shape
        torch.Size([4, 5, 16])
        >>> y, routing = layer(x, return_routing=True)
        >>> load_balance_loss(routing.logits, routing.indices) > 0.9
        tensor(True)

    Reference: Shazeer et al. (2017), Outrageously Large Neural Networks, arXiv:1701.06538.
    """

    def __init__(
        self,
        router: nn.Module,
        experts: Experts | Iterable[nn.Module],
        *,
        shared: nn.Module | None = None,
        shared_gate: nn.Module | None = None,
        capacity: int | None = None,
        capacity_factor: float | None = None,
        drop: Drop = "probability",
    ) -> None:
        super().__init__()
        for argument, module in (("router", router), ("shared", shared), ("shared_gate", shared_gate)):
            optional = argument != "router"
            if not (isinstance(module, nn.Module) or (optional and module is None)):
                kind = "a torch module or None" if optional else "a torch module"
                raise TypeError(f"MoE: {argument} must be {kind}, got {module!r}")
        check_capacity("MoE", capacity, capacity_factor, drop)
        if isinstance(router, ExpertChoiceRouter) and (capacity is not None or capacity_factor is not None):
            raise ValueError("MoE: the capacity of an ExpertChoiceRouter is its own; leave out the layer's")
        if shared_gate is not None and shared is None:
            raise ValueError("MoE: shared_gate needs shared")
        self.router = router
        self.experts = experts if isinstance(experts, Experts) else nn.ModuleList(_modules(experts))
        count = experts.num_experts if isinstance(experts, Experts) else len(self.experts)  # pyright: ignore
        wanted = getattr(router, "num_experts", count)
        if wanted != count:
            raise ValueError(f"MoE: the router chooses among {wanted} experts, got {count}")
        if isinstance(router, (TopKRouter, ExpertChoiceRouter)) and isinstance(experts, Experts):
            sizes = router.weight.shape[1], experts.down_proj.shape[1]
            if sizes[0] != sizes[1]:
                raise ValueError(f"MoE: the router's tokens have length {sizes[0]}, the experts' {sizes[1]}")
        self.num_experts = count
        self.shared, self.shared_gate = shared, shared_gate
        self.capacity, self.capacity_factor = capacity, capacity_factor
        self.drop: Drop = drop

    @overload
    def forward(
        self,
        hidden_states: Tensor,
        mask: Tensor | None = ...,
        *,
        indices: Tensor | None = ...,
        return_routing: Literal[False] = ...,
    ) -> Tensor: ...
    @overload
    def forward(
        self,
        hidden_states: Tensor,
        mask: Tensor | None = ...,
        *,
        indices: Tensor | None = ...,
        return_routing: Literal[True],
    ) -> tuple[Tensor, Routed | ExpertChoice]: ...
    def forward(
        self,
        hidden_states: Tensor,
        mask: Tensor | None = None,
        *,
        indices: Tensor | None = None,
        return_routing: bool = False,
    ) -> Tensor | tuple[Tensor, Routed | ExpertChoice]:
        """Compute (…, hidden) → (…, hidden).

        Args:
            hidden_states: (…, hidden).
            mask: of their shape without the last dimension, True (or 1) for a real token; padding gets only
                the output of ``shared``.
            indices: recorded experts (T, k), to be replayed by a :class:`TopKRouter`.
            return_routing: return ``(output, routing)``, for losses and statistics. The weights of the
                routing are 0 for dropped pairs.
        """
        check_floating("MoE", "hidden_states", hidden_states)
        check_switch("MoE", "return_routing", return_routing)
        if not hidden_states.dim():
            raise ValueError("MoE: hidden_states must have at least one dimension, got a scalar tensor")
        real = real_tokens("MoE", mask, hidden_states.shape[:-1])
        flat = hidden_states.reshape(-1, hidden_states.shape[-1])
        if real is None and isinstance(self.router, KnowsPadding):
            real = real_of("MoE", self.router.token_mask, flat.shape[0])
        routing = self._route(flat, real, indices)
        if isinstance(routing, ExpertChoice):
            output = self._by_experts(flat, routing)
        else:
            routing, kept = self.capped(routing, real)
            output = self._by_tokens(flat, routing, kept)
        if self.shared is not None:
            always = self.shared(flat)
            if self.shared_gate is not None:
                always = always * torch.sigmoid(self.shared_gate(flat))
            output = output + always
        output = output.reshape(hidden_states.shape)
        return (output, routing) if return_routing else output

    def _route(self, flat: Tensor, real: Tensor | None, indices: Tensor | None) -> Routed | ExpertChoice:
        if isinstance(self.router, TopKRouter):
            return self.router(flat, real, indices=indices)
        if indices is not None:
            raise ValueError(f"MoE: indices are replayed by a TopKRouter, got {type(self.router).__name__}")
        if isinstance(self.router, ExpertChoiceRouter):
            return self.router(flat, real)
        logits, weights, chosen = self.router(flat)
        if real is not None:
            weights = torch.where(real.unsqueeze(-1), weights, 0)
        return Routed(logits, weights, chosen)

    def capped(self, routing: Routed, real: Tensor | None) -> tuple[Routed, Tensor | None]:
        """The routing of real tokens (T,) within the capacity, and which pairs are computed (None: all)."""
        if self.capacity is None and self.capacity_factor is None:
            return routing, None if real is None else real.unsqueeze(-1).expand_as(routing.indices)
        weights, kept = apply_capacity(
            routing.weights,
            routing.indices,
            self.num_experts,
            capacity=self.capacity,
            capacity_factor=self.capacity_factor,
            drop=self.drop,
            mask=real,
        )
        return Routed(routing.logits, weights, routing.indices), kept

    def _by_tokens(self, flat: Tensor, routing: Routed, kept: Tensor | None) -> Tensor:
        indices = routing.indices
        if kept is not None:
            indices = torch.where(kept, indices, self.num_experts)  # computed by nobody
        if isinstance(self.experts, Experts):
            return self.experts(flat, indices, routing.weights)
        order, ends = sorted_by_expert(indices.reshape(-1), self.num_experts)
        tokens = order // indices.shape[-1]
        return self._summed(flat, tokens, routing.weights.reshape(-1)[order], ends)

    def _by_experts(self, flat: Tensor, routing: ExpertChoice) -> Tensor:
        experts, take = routing.indices.shape
        ends = torch.arange(1, experts + 1, device=flat.device) * take
        return self._summed(flat, routing.indices.reshape(-1), routing.weights.reshape(-1), ends)

    def _summed(self, flat: Tensor, tokens: Tensor, weights: Tensor, ends: Tensor) -> Tensor:
        """Places in the order of their experts, computed, weighted, and summed for each token."""
        rows = flat[tokens]
        if isinstance(self.experts, Experts):
            computed = self.experts.compute(rows, ends)
        else:
            computed = spread_over_modules(self.experts, rows, ends)
        each = computed * weights.to(computed.dtype).unsqueeze(-1)
        return torch.zeros_like(flat, dtype=each.dtype).index_add(0, tokens, each).to(flat.dtype)


def _modules(experts: Iterable[nn.Module]) -> list[nn.Module]:
    found: list[nn.Module] = list(experts) if isinstance(experts, Iterable) else []  # pyright: ignore[reportUnnecessaryIsInstance]
    if not found or not all(isinstance(expert, nn.Module) for expert in found):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"MoE: experts must be Experts or torch modules, got {experts!r}")
    return found
