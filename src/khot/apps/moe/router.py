r"""A trainable router: it decides which k experts see a token, and with which weights.

The logits of a token are :math:`\ell = W h`. ``routing`` tells how k experts are chosen and weighed:

================  ==========================  ======================================  ========================
routing           experts in training         weights                                 gradient reaches
================  ==========================  ======================================  ========================
topk              the k largest scores        their scores (softmax, …)               all logits (softmax, not
                                                                                      renormalised), or the k
sigmoid_topk      the k largest logits        ``khot.sigmoid_topk`` at these          all logits
straight_through  the k largest logits        1                                       all logits, by sigmoid
sampled           k drawn by a design         1                                       all, by the estimator
sparse            the k largest logits        ``khot.sparse_topk`` at these           the logits near the cut
================  ==========================  ======================================  ========================

Only the chosen experts are computed, so only they contribute to the gradient. With ``sampled``, their
gradients are divided by their inclusion probabilities, so that the mean is the gradient of the expected
mixture. In evaluation all routings take the k largest. With ``k=1``, a renormalised weight is always 1, so
such a router does not learn.
"""

from __future__ import annotations

import warnings
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from khot.apps.moe._choice import checked_replay, experts_in_turn
from khot.apps.moe._masks import real_of, real_tokens
from khot.apps.moe._rule import (
    ROUTINGS,
    GroupScore,
    Routing,
    Rule,
    Score,
    check_rule_temperature,
    chosen_estimator,
)
from khot.apps.moe._scores import probabilities, wide_linear
from khot.apps.moe._weights import finished, routed
from khot.apps.moe.correction import CountsExperts
from khot.estimators import Estimator
from khot.nn._tempered import Tempered
from khot.relaxations._plain_arguments import (
    check_floating,
    check_generator,
    check_integer,
    check_switches,
    is_number,
)

__all__ = ["Routed", "TopKRouter"]


class Routed(NamedTuple):
    """The result of a :class:`TopKRouter`: raw ``logits`` (T, experts), ``weights`` and ``indices`` (T, k).

    Example:
        >>> found = TopKRouter(hidden=16, num_experts=8, k=2)(torch.randn(5, 16))
        >>> found.logits.shape, found.weights.shape, found.indices.shape
        (torch.Size([5, 8]), torch.Size([5, 2]), torch.Size([5, 2]))
    """

    logits: Tensor
    weights: Tensor
    indices: Tensor


class TopKRouter(CountsExperts, Tempered):
    r"""Choose ``k`` of ``num_experts`` experts for each token, and their weights.

    The interface is that of transformers 5: ``router(hidden_states) -> (logits, weights, indices)``, with one
    parameter ``weight`` (experts, hidden). Cost: the logits, O(T·E·hidden), and a top-k of E per token.
    ``torch.compile`` has a graph break where ``"sampled"`` draws, in training.

    Args:
        hidden: the length of a token's vector.
        num_experts: the number of experts E.
        k: how many experts see a token.
        score: ``"softmax"``, ``"sigmoid"`` or ``"sqrtsoftplus"`` of the logits. The scores are the weights of
            ``"topk"``; a correction bias is added to them, and groups are compared by them.
        routing: how experts are chosen and weighed; see the table of :mod:`khot.apps.moe.router`.
        renormalise: divide the weights of a token by their sum.
        scaling_factor: factor of the weights; ``"unit"`` makes each weight 1 if all logits are zero, which
            suits networks trained from scratch.
        correction_bias: add a bias ``e_score_correction_bias`` in the choice, not in the weights;
            :func:`khot.apps.moe.balance_experts` updates it once per step of the optimiser.
        num_groups: split the experts into this many groups of neighbours; a token uses ``kept_groups`` of
            them.
        kept_groups: see ``num_groups``.
        group_score: compare groups by their best expert, ``"max"``, or by their best two, ``"top2"``.
        jitter: in training, multiply hidden states by random numbers in 1 ± jitter, for the logits only.
        force_balance: assign experts round robin, whatever the logits; for speed measurements.
        float32: compute logits in float32, even for bfloat16 models and under autocast.
        temperature: τ of the soft routings: that of sigmoid or sparse top-k, or the divisor of the logits
            before a sample is drawn. It is float32 state that is saved; a
            :class:`khot.schedules.TemperatureScheduler` can anneal it.
        learn_temperature: make the temperature a parameter.
        estimator: for ``"sampled"``: a name in ``khot.estimators.names()``, or an estimator from
            ``khot.estimators.get``.
        design: for ``"sampled"``: a name in ``khot.designs.names()``.
        device: device of the parameter.
        dtype: dtype of the parameter.

    Example:
        >>> router = TopKRouter(hidden=16, num_experts=8, k=2)
        >>> logits, weights, indices = router(torch.randn(5, 3, 16))
        >>> logits.shape, weights.shape, indices.shape
        (torch.Size([15, 8]), torch.Size([15, 2]), torch.Size([15, 2]))

    Reference: Shazeer et al. (2017), Outrageously Large Neural Networks, arXiv:1701.06538; Fedus, Zoph &
    Shazeer (2022), Switch Transformers, arXiv:2101.03961; soft and sampled, Wijk, Vinuesa & Azizpour (2025).
    """

    def __init__(
        self,
        hidden: int,
        num_experts: int,
        k: int,
        *,
        score: Score = "softmax",
        routing: Routing = "topk",
        renormalise: bool = False,
        scaling_factor: float | Literal["unit"] = 1.0,
        correction_bias: bool = False,
        num_groups: int = 1,
        kept_groups: int = 1,
        group_score: GroupScore = "top2",
        jitter: float = 0.0,
        force_balance: bool = False,
        float32: bool = True,
        temperature: float = 1.0,
        learn_temperature: bool = False,
        estimator: str | Estimator | None = None,
        design: str | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        name = type(self).__name__
        check_switches(
            name,
            renormalise=renormalise,
            correction_bias=correction_bias,
            force_balance=force_balance,
            float32=float32,
        )
        soft = routing != "topk"
        check_rule_temperature(name, routing, temperature)
        if not soft and learn_temperature:
            raise ValueError(f"{name}: routing='topk' has no temperature, got {temperature}")
        super().__init__(temperature if soft else None, learn_temperature)
        check_integer(name, "hidden", hidden)
        if not (is_number(jitter) and 0 <= jitter < 1):
            raise ValueError(f"{name}: jitter must be in [0, 1), got {jitter!r}")
        self.rule = Rule(
            num_experts,
            k,
            routing,
            score,
            renormalise,
            scaling_factor,
            num_groups,
            kept_groups,
            group_score,
            chosen_estimator(name, routing, estimator, design) if routing in ROUTINGS else None,
        ).checked(name)
        if correction_bias and routing == "sampled":
            raise ValueError(f"{name}: correction_bias needs a choice by scores, got routing='sampled'")
        if renormalise and k == 1:
            warnings.warn(
                f"{name}: with k=1 renormalised weights are 1 whatever the logits, and the router gets no "
                "gradient; use renormalise=False",
                stacklevel=2,
            )
        self.jitter, self.force_balance, self.float32 = float(jitter), force_balance, float32
        self.weight = nn.Parameter(torch.empty(num_experts, hidden, device=device, dtype=dtype))
        bias = torch.zeros(num_experts, device=device) if correction_bias else None
        self.register_buffer("e_score_correction_bias", bias)
        self.expert_counts = torch.zeros(num_experts, device=device)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Initialise weights with a normal distribution of standard deviation 0.02, as transformers does."""
        nn.init.normal_(self.weight, std=0.02)
        if self.e_score_correction_bias is not None:
            nn.init.zeros_(self.e_score_correction_bias)
        nn.init.zeros_(self.expert_counts)

    @property
    def num_experts(self) -> int:
        """The number of experts."""
        return self.rule.num_experts

    @property
    def k(self) -> int:
        """How many experts see a token."""
        return self.rule.k

    def logits(self, hidden_states: Tensor, generator: torch.Generator | None = None) -> Tensor:
        """Raw logits (T, experts) of hidden states (…, hidden); with jitter in training."""
        flat = hidden_states.reshape(-1, self.weight.shape[1])
        if self.training and self.jitter:
            noise = torch.rand(flat.shape, generator=generator, device=flat.device, dtype=flat.dtype)
            flat = flat * (1 + self.jitter * (2 * noise - 1))
        if not self.float32:
            return nn.functional.linear(flat, self.weight.to(flat.dtype))
        return wide_linear(flat, self.weight)

    def probabilities(self, logits: Tensor) -> Tensor:
        """Scores divided by their sum, dense (T, experts): for inspection, and for your own losses."""
        return probabilities(logits, self.rule.score)

    def forward(
        self,
        hidden_states: Tensor,
        mask: Tensor | None = None,
        *,
        indices: Tensor | None = None,
        generator: torch.Generator | None = None,
    ) -> Routed:
        """Route tokens.

        Args:
            hidden_states: (…, hidden), flattened to (T, hidden).
            mask: of their shape without the last dimension, or (T,): True (or 1) for a real token, False (or
                0) for padding. Padding has weight 0 and no gradient, is not counted, and keeps a valid index.
            indices: experts (T, k) recorded before. They are used as given, with weights from the current
                logits, so that training can replay the choices of inference.
            generator: source of jitter and samples.

        Returns:
            :class:`Routed`: raw logits (T, experts), weights (T, k), indices (T, k), best first, ties by
            index.
        """
        name = type(self).__name__
        check_floating(name, "hidden_states", hidden_states)
        check_generator(name, generator)
        if hidden_states.shape[-1:] != self.weight.shape[1:]:
            raise ValueError(
                f"{name}: hidden_states must have the last dimension {self.weight.shape[1]}, "
                f"got the shape {tuple(hidden_states.shape)}"
            )
        mask = real_tokens(name, mask, hidden_states.shape[:-1])
        if mask is None:
            mask = real_of(name, self.token_mask, hidden_states[..., 0].numel())
        indices = self.replayed_indices if indices is None else indices
        logits = self.logits(hidden_states, generator)
        if indices is not None:
            given = checked_replay(name, indices, logits.shape[0], self.rule)
        elif self.force_balance:
            given = experts_in_turn(logits.shape[0], self.rule, mask, logits.device)
        else:
            given = None
        weights, chosen = routed(
            logits,
            self.rule,
            temperature=self._current_temperature() if self.rule.routing != "topk" else 1.0,
            bias=self.e_score_correction_bias,
            given=given,
            draw=self.training,
            generator=generator,
        )
        if self.training and self.e_score_correction_bias is not None:
            self.count_experts(chosen, mask)
        return Routed(logits, finished(weights, self.rule, mask), chosen)

    def extra_repr(self) -> str:
        """Show the settings."""
        rule = self.rule
        shown = [f"{self.weight.shape[1]}", f"{rule.num_experts}", f"{rule.k}"]
        shown += [f"score={rule.score!r}", f"routing={rule.routing!r}", f"renormalise={rule.renormalise}"]
        if rule.estimator is not None:
            shown.append(f"estimator={rule.estimator}")
        if rule.limits_groups:
            shown.append(f"groups={rule.kept_groups} of {rule.num_groups} by {rule.group_score}")
        if self.e_score_correction_bias is not None:
            shown.append("correction_bias=True")
        return ", ".join(shown)
