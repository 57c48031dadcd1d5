r"""Expert choice: each expert takes its best tokens, so that loads are even by construction."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn

from khot.apps.moe._masks import KnowsPadding, real_of, real_tokens
from khot.apps.moe._rule import SCORES, Score, check_rule_temperature
from khot.apps.moe._scores import scores_of, wide_linear
from khot.apps.moe.capacity import check_capacity
from khot.relaxations._plain_arguments import check_choice, check_floating, check_integer
from khot.relaxations.entries import topk_entries

__all__ = ["ExpertChoice", "ExpertChoiceRouter"]

TokenRouting = Literal["topk", "sigmoid_topk", "straight_through", "sparse"]


class ExpertChoice(NamedTuple):
    """The result of an :class:`ExpertChoiceRouter`.

    ``logits`` (T, experts) are raw; ``weights`` and ``indices`` (experts, capacity) belong to the tokens of
    each expert. If there are fewer real tokens than the capacity, the remaining places have weight 0.

    Example:
        >>> found = ExpertChoiceRouter(16, 4, capacity=3)(torch.randn(10, 16))
        >>> found.logits.shape, found.weights.shape, found.indices.shape
        (torch.Size([10, 4]), torch.Size([4, 3]), torch.Size([4, 3]))
    """

    logits: Tensor
    weights: Tensor
    indices: Tensor


class ExpertChoiceRouter(KnowsPadding):
    r"""Choose tokens for each expert: those with its ``capacity`` largest scores.

    .. math:: S = \operatorname{softmax}(X W^\top), \qquad
        \text{tokens of } e = \operatorname{topk}(S_{\cdot e}, c), \quad c = \lceil f\, T / E \rceil

    A token may be seen by several experts or by none. Later tokens of a sequence take part in the choice, so
    this router is not for models that generate token by token. Cost: the logits, and one top-k over the
    tokens for each expert.

    Args:
        hidden: the length of a token's vector.
        num_experts: the number of experts.
        capacity_factor: f, how many experts see a token on average.
        capacity: c, how many tokens an expert takes, at least 1; instead of ``capacity_factor``.
        score: the function of the logits, ``"softmax"``, ``"sigmoid"`` or ``"sqrtsoftplus"``.
        routing: the weights: ``"topk"`` for the scores; ``"sigmoid_topk"`` or ``"sparse"`` for sigmoid or
            sparse top-k of an expert's logits over tokens; ``"straight_through"`` for 1 with the gradient of
            sigmoid top-k.
        temperature: τ of the soft routings.
        device: device of the parameter.
        dtype: dtype of the parameter.

    Example:
        >>> router = ExpertChoiceRouter(16, 4, capacity_factor=2.0)
        >>> logits, weights, indices = router(torch.randn(10, 16))
        >>> weights.shape, indices.shape
        (torch.Size([4, 5]), torch.Size([4, 5]))

    Reference: Zhou et al. (2022), Mixture-of-Experts with Expert Choice Routing, arXiv:2202.09368.
    """

    def __init__(
        self,
        hidden: int,
        num_experts: int,
        capacity_factor: float | None = None,
        *,
        capacity: int | None = None,
        score: Score = "softmax",
        routing: TokenRouting = "topk",
        temperature: float = 1.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        name = type(self).__name__
        for argument, value in (("hidden", hidden), ("num_experts", num_experts)):
            check_integer(name, argument, value)
        check_capacity(name, capacity, capacity_factor, "probability")
        if capacity is None and capacity_factor is None:
            raise ValueError(f"{name}: give capacity_factor or capacity")
        check_choice(name, "score", score, SCORES)
        check_choice(name, "routing", routing, get_args(TokenRouting))
        check_rule_temperature(name, routing, temperature)
        self.capacity, self.capacity_factor = capacity, capacity_factor
        self.score, self.routing, self.temperature = score, routing, temperature
        self.weight = nn.Parameter(torch.empty(num_experts, hidden, device=device, dtype=dtype))
        nn.init.normal_(self.weight, std=0.02)

    @property
    def num_experts(self) -> int:
        """The number of experts."""
        return self.weight.shape[0]

    def forward(self, hidden_states: Tensor, mask: Tensor | None = None) -> ExpertChoice:
        """Choose among the tokens (…, hidden), flattened to T; ``mask`` is True (or 1) for a real token.

        A capacity from ``capacity_factor`` counts padding too, so that shapes do not depend on the mask.
        """
        name = type(self).__name__
        check_floating(name, "hidden_states", hidden_states)
        if hidden_states.shape[-1:] != self.weight.shape[1:]:
            raise ValueError(
                f"{name}: hidden_states must have the last dimension {self.weight.shape[1]}, "
                f"got the shape {tuple(hidden_states.shape)}"
            )
        real = real_tokens(name, mask, hidden_states.shape[:-1])
        flat = hidden_states.reshape(-1, hidden_states.shape[-1])
        if real is None:
            real = real_of(name, self.token_mask, flat.shape[0])
        logits = wide_linear(flat, self.weight)
        tokens = flat.shape[0]
        if self.capacity is not None:
            take = self.capacity
        else:
            assert self.capacity_factor is not None
            take = max(1, math.ceil(self.capacity_factor * tokens / self.num_experts * (1 - 1e-12)))
        take = min(take, tokens)
        allowed = None if real is None else real.expand(self.num_experts, -1)
        scores = scores_of(logits, self.score).T
        if self.routing == "topk":
            entries = topk_entries(scores, take, hard=True, mask=allowed)
            return ExpertChoice(logits, entries.values, entries.indices)
        method = "sparse" if self.routing == "sparse" else "sigmoid"
        entries = topk_entries(
            logits.T,
            take,
            method,
            temperature=self.temperature,
            hard=self.routing == "straight_through",
            mask=allowed,
        )
        return ExpertChoice(logits, entries.weights, entries.indices)

    def extra_repr(self) -> str:
        """Show the settings."""
        size = f"capacity={self.capacity}" if self.capacity else f"capacity_factor={self.capacity_factor}"
        return f"{self.weight.shape[1]}, {self.num_experts}, {size}, routing={self.routing!r}"
