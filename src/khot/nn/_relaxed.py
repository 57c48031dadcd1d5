"""The base of the layers for relaxations: a method and its options, a learned budget, calibration."""

from __future__ import annotations

import inspect
import math
import warnings
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from khot.nn._calibration import CURE, check_calibrate, common_temperature
from khot.nn._evaluation import EvalMode, noise_free
from khot.nn._layer import SelectingLayer, checked_k
from khot.nn._tempered import shown
from khot.relaxations._arguments import at_most_all, position
from khot.relaxations._plain_arguments import check_switch
from khot.relaxations.facade import checked_options, topk
from khot.relaxations.registry import Relaxation, get
from khot.relaxations.straight_through import straight_through

__all__ = ["RelaxedLayer"]


class RelaxedLayer(SelectingLayer):
    """A relaxation and its settings (see :class:`khot.nn.TopK`); subclasses define the call."""

    _any_method: ClassVar[bool]  # whether the class leaves the method open: then it is shown

    def __init__(
        self,
        k: float,
        method: str | Relaxation = "sigmoid",
        *,
        temperature: float | None = None,
        learn_temperature: bool = False,
        learn_k: bool = False,
        k_max: float | None = None,
        calibrate: float | None = None,
        eval_mode: EvalMode = "same",
        hard: bool = False,
        dim: int = -1,
        largest: bool = True,
        at_most: bool = False,
        **options: Any,
    ) -> None:
        name = type(self).__name__
        relaxation = get(method, name)
        if temperature is not None and calibrate is not None:
            raise ValueError(f"{name}: give temperature or calibrate, got {temperature} and {calibrate}")
        super().__init__(
            k,
            temperature=1.0 if temperature is None else temperature,
            learn_temperature=learn_temperature,
            eval_mode=eval_mode,
            random=relaxation.stochastic,
            dim=dim,
            largest=largest,
            at_most=at_most,
        )
        check_switch(name, "hard", hard)
        check_switch(name, "learn_k", learn_k)
        self._relaxation = relaxation
        self.hard, self.options, self.k_max, self.calibrate = hard, options, k_max, calibrate
        _check_budget(name, relaxation, self._k, learn_k, k_max, hard)
        if learn_k and k_max is not None:
            logit = math.log(self._k) - math.log(k_max - self._k)
            self.kappa = nn.Parameter(torch.tensor(logit, dtype=torch.float32))
        if calibrate is not None:
            check_calibrate(name, relaxation, calibrate)
            if isinstance(self._k, float) and not learn_k:
                raise ValueError(f"{name}: k must be an integer with calibrate, got {k}")
            self._settled = False
        self._check_options()

    @property
    def method(self) -> str:
        """The name of the relaxation."""
        return self._relaxation.name

    def _fixed_k(self) -> float:
        return self._k if self.kappa is None or self.k_max is None else self.k_max

    @property
    def k(self) -> float | Tensor:
        """The budget: a number, or a tensor with a gradient if it is learned."""
        if self.kappa is None or self.k_max is None:
            return self._k
        # σ(κ) in a form whose gradient does not vanish before κ is very large, kept off the ends of the
        # range, where the budget would have no gradient and stay for ever.
        share = torch.exp(-nn.functional.softplus(-self.kappa))
        return self.k_max * straight_through(share, share.clamp(1e-6, 1 - 1e-6))

    def calibrate_(self, scores: Tensor, *, weight_on_topk: float = 0.9, mask: Tensor | None = None) -> None:
        """Set the temperature so that this share of the weight of ``scores`` lies on their top k.

        Use scores like those the layer will see later. An untrained scorer often gives far smaller scores
        than a trained one, and then the temperature comes out too small. In a process group every process
        must call this method; all get the geometric mean of their temperatures.
        """
        found = self._calibrated(scores, weight_on_topk, mask)
        if found is None:
            raise self._nothing_to_calibrate(scores)
        self.temperature = found

    def _nothing_to_calibrate(self, scores: Tensor) -> ValueError:
        taken = f"k takes all {scores.shape[self.dim]} entries, whatever the temperature"
        return ValueError(f"{type(self).__name__}.calibrate_: {taken}; {CURE}")

    def _calibrated(self, scores: Tensor, weight_on_topk: float, mask: Tensor | None) -> float | None:
        """The temperature, or None if nothing depends on it."""
        name = f"{type(self).__name__}.calibrate_"
        check_calibrate(name, self._relaxation, weight_on_topk, "weight_on_topk")
        last = position(name, scores, self.dim)
        k = self.k.detach() if isinstance(self.k, Tensor) else self.k
        if self.at_most:
            k = at_most_all(name, scores, k, last)
        return common_temperature(
            name,
            scores.detach(),
            k,
            method=self._relaxation,
            weight_on_topk=weight_on_topk,
            dim=self.dim,
            mask=mask,
            largest=self.largest,
            **self.options,
        )

    def _now(
        self, scores: Tensor, mask: Tensor | None, generator: torch.Generator | None
    ) -> tuple[Relaxation, dict[str, Any]]:
        """The method to call, and with what: it depends on training or evaluation."""
        if not self._settled:
            self._first_batch(scores, mask)
        method, options = self._relaxation, self.options
        if method.stochastic and self._draws:
            options = {**options, "generator": generator}
        elif method.stochastic:
            method, options = noise_free(method, options, scores.device)
        return method, {
            "temperature": self._current_temperature(),
            "hard": self.hard or (self.eval_mode == "hard" and not self.training),
            "dim": self.dim,
            "mask": mask,
            "largest": self.largest,
            "at_most": self.at_most,
            **options,
        }

    def _first_batch(self, scores: Tensor, mask: Tensor | None) -> None:
        name = type(self).__name__
        if torch.compiler.is_compiling():
            raise RuntimeError(
                f"{name}: calibrate = {self.calibrate} is not done yet; call layer.calibrate_(scores), "
                "or run one training batch before torch.compile"
            )
        if self.training:
            assert self.calibrate is not None
            found = self._calibrated(scores, self.calibrate, mask)
            if found is not None:
                self.temperature = found
            elif not self.at_most:  # else short rows are to be expected, and a later batch settles it
                raise self._nothing_to_calibrate(scores)
        else:
            warnings.warn(
                f"{name}: evaluated before calibrate = {self.calibrate} was done, with temperature "
                f"{shown(self.temperature)}; train on a batch first, or call layer.calibrate_(scores)",
                stacklevel=4,
            )

    def set_extra_state(self, state: Tensor) -> None:
        """Load what was saved; a layer without ``calibrate`` counts as calibrated."""
        super().set_extra_state(state)
        self._settled = self._settled or self.calibrate is None

    def _check_options(self) -> None:
        """Try the options, so that a wrong one is an error now and not in the first batch."""
        name = type(self).__name__
        if "generator" in self.options:
            raise TypeError(f"{name}: generator belongs to the call, layer(scores, generator=…)")
        checked_options(name, self._relaxation, {o: v for o, v in self.options.items() if o != "capped"})
        drawn = {"generator": torch.Generator("cpu")} if self._relaxation.stochastic else {}
        learned = self.kappa is not None
        with torch.device("cpu"), torch.enable_grad():
            k = self._k if isinstance(self._k, float) else min(1, self._k)
            tried = torch.tensor(0.5, requires_grad=True) if learned else k
            weights = self._tried(torch.zeros(max(2, math.ceil(k))), tried, {**self.options, **drawn})
            if isinstance(tried, Tensor) and not _moves(weights, tried):
                raise ValueError(f"{name}: learn_k needs a gradient in k, there is none with {self.options}")

    def _tried(self, scores: Tensor, k: float | Tensor, options: dict[str, Any]) -> Tensor:
        return topk(scores, k, self._relaxation, **options)

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls._any_method = "method" in inspect.signature(cls).parameters

    def _shown_k(self) -> str:
        return super()._shown_k() + (f" (learned, k_max={self.k_max:g})" if self.kappa is not None else "")

    def extra_repr(self) -> str:
        """Show the settings, and which of them are learned."""
        method = [f"method={self.method!r}"] if self._any_method else []
        tau = [self._shown_temperature()] + ([f"calibrate={self.calibrate}"] if self.calibrate else [])
        options = [f"{option}={value!r}" for option, value in self.options.items() if value is not None]
        settings = [f"dim={self.dim}", f"hard={self.hard}", *self._shown_settings(), *options]
        return ", ".join([self._shown_k(), *method, *tau, *settings])


def _moves(weights: Tensor, k: Tensor) -> bool:
    if not weights.requires_grad:
        return False
    (slope,) = torch.autograd.grad(weights.sum(), k, materialize_grads=True)
    return bool(slope != 0)


def _check_budget(
    name: str, spec: Relaxation, k: float, learn_k: bool, k_max: float | None, hard: bool
) -> None:
    if isinstance(k, float) and not spec.real_k:
        raise ValueError(f"{name}: k must be an integer for method {spec.name!r}, got {k}")
    if isinstance(k, float) and hard and not learn_k:
        raise ValueError(f"{name}: k must be an integer with hard=True, got {k}")
    if k_max is not None and not learn_k:
        raise ValueError(f"{name}: k_max = {k_max} has no effect without learn_k=True")
    if learn_k and not spec.real_k:
        raise ValueError(f"{name}: learn_k needs a method with real k, such as 'sigmoid', got {spec.name!r}")
    if learn_k and (k_max is None or not 0 < k < checked_k(name, k_max, "k_max")):
        raise ValueError(f"{name}: learn_k=True needs 0 < k < k_max, got k = {k}, k_max = {k_max}")
