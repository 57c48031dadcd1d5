"""A sampled subset as a layer."""

from __future__ import annotations

import inspect
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from khot import estimators
from khot.estimators import Estimator
from khot.estimators._arguments import Design
from khot.nn._evaluation import EvalMode
from khot.nn._layer import SelectingLayer, whole_k
from khot.relaxations._arguments import position
from khot.relaxations.hard import hard_topk

__all__ = ["SampledTopK"]


class SampledTopK(SelectingLayer):
    r"""Samples k of n in training, with a gradient; takes the k largest in evaluation.

    .. math:: x \sim p_\theta \text{ (training)}, \qquad x = \operatorname{topk}(\theta) \text{ (evaluation)}

    ``state_dict`` saves k and the state of the estimator (its temperature, the step of ``adaptive_imle``).
    Under ``torch.compile`` a draw of a design is a graph break; ``imle``, ``gumbel_straight_through`` and
    ``relaxed_subset`` also compile with ``fullgraph=True``.

    Args:
        k: how many.
        design: the distribution to sample from, for estimators that accept one (see ``khot.sample``). By
            default the estimator's own.
        estimator: the gradient estimator: a name in ``khot.estimators.names()``, or an estimator from
            ``khot.estimators.get``. ``score_function`` is not accepted, because it needs the losses.
        temperature: for estimators that have one; float32 state that a
            :class:`khot.schedules.TemperatureScheduler` can anneal. By default the estimator's own.
        learn_temperature: make the temperature a parameter.
        eval_mode: ``"same"`` and ``"hard"`` take the k largest in evaluation; ``"random"`` keeps sampling.
        dim: the dimension that sums to ``k``.
        largest: False prefers small scores.
        at_most: accept a ``k`` above n, and take all entries.
        options: further options of the estimator.

    Example:
        >>> layer = SampledTopK(2, design="tree_pivotal")
        >>> scores = torch.tensor([[3.0, 1.0, 2.0, 0.0]], requires_grad=True)
        >>> layer(scores).sum(-1)
        tensor([2.], grad_fn=<SumBackward1>)
        >>> layer.eval()(scores)
        tensor([[1., 0., 1., 0.]])

    Reference: Wijk, Vinuesa & Azizpour (2025), Differentiable Top-k: From One-Hot to k-Hot.
    """

    def __init__(
        self,
        k: int,
        *,
        design: Design | None = None,
        estimator: str | Estimator = "sampled_straight_through",
        temperature: float | None = None,
        learn_temperature: bool = False,
        eval_mode: EvalMode = "same",
        dim: int = -1,
        largest: bool = True,
        at_most: bool = False,
        **options: Any,
    ) -> None:
        name = type(self).__name__
        given = {"design": design, "temperature": temperature}
        options |= {option: value for option, value in given.items() if value is not None}
        chosen = _chosen(name, estimator, options)
        if learn_temperature and "temperature" not in chosen.options:
            raise ValueError(
                f"{name}: learn_temperature needs an estimator with one, such as 'gumbel_straight_through', "
                f"got {chosen.name!r}"
            )
        super().__init__(
            whole_k(name, k),
            temperature=chosen.options.get("temperature"),
            learn_temperature=learn_temperature,
            eval_mode=eval_mode,
            random=True,
            dim=dim,
            largest=largest,
            at_most=at_most,
        )
        self._estimator = chosen
        for option, value in chosen.options.items():
            if isinstance(value, nn.Module):  # its state is part of the layer's
                self.add_module(option, value)

    @property
    def estimator(self) -> Estimator:
        """The estimator with its current options."""
        if "temperature" not in self._estimator.options:
            return self._estimator
        now = self._current_temperature()
        return replace(self._estimator, options={**self._estimator.options, "temperature": now})

    def forward(
        self, scores: Tensor, mask: Tensor | None = None, *, generator: torch.Generator | None = None
    ) -> Tensor:
        """The sample, or in evaluation mode the k largest; ``mask`` is True where an entry may be drawn."""
        k = int(self._k)
        if self.at_most:
            last = position(type(self).__name__, scores, self.dim)
            k = min(k, scores.shape[last])
        if self._draws:
            return self.estimator(
                scores, k, generator=generator, dim=self.dim, mask=mask, largest=self.largest
            )
        return hard_topk(scores, k, dim=self.dim, mask=mask, largest=self.largest)

    def extra_repr(self) -> str:
        """Show the settings."""
        options = {o: v for o, v in self._estimator.options.items() if o != "temperature"}
        shown = [self._shown_k(), f"estimator={replace(self._estimator, options=options)}"]
        if "temperature" in self._estimator.options:
            shown.append(self._shown_temperature())
        return ", ".join([*shown, f"dim={self.dim}", *self._shown_settings()])


def _chosen(name: str, estimator: str | Estimator, options: dict[str, Any]) -> Estimator:
    """The estimator with its options, among them its temperature if it has one."""
    chosen = estimators.get(estimator, name, **options)
    if chosen.needs_losses:
        raise ValueError(
            f"{name}: estimator must give a gradient through its sample, got {chosen.name!r}; "
            "use khot.estimators.score_function_loss(f, scores, k)"
        )
    known = inspect.signature(getattr(estimators, chosen.name, chosen)).parameters
    if "temperature" in known and "temperature" not in chosen.options:
        default = known["temperature"].default
        chosen = replace(chosen, options={**chosen.options, "temperature": default})
    return chosen
