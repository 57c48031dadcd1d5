"""What all layers that select share: settings, budget, calibration, saved state."""

from __future__ import annotations

import inspect
import math
import warnings
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from khot.calibration import calibrate_temperature
from khot.nn._evaluation import EvalMode, check_eval_mode
from khot.nn._tempered import Tempered
from khot.relaxations._arguments import allowed_scores, check_count, directed, position
from khot.relaxations.facade import checked_options, topk
from khot.relaxations.hard import ranked_indices
from khot.relaxations.registry import Relaxation, get
from khot.relaxations.straight_through import straight_through

__all__ = ["SelectingLayer"]


class SelectingLayer(Tempered):
    """A relaxation and its settings (see :class:`khot.nn.TopK`); a subclass says how it is called."""

    kappa: nn.Parameter | None
    calibrated: Tensor
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
        if temperature is not None and calibrate is not None:
            raise ValueError(f"{name}: give temperature or calibrate, got {temperature} and {calibrate}")
        super().__init__(1.0 if temperature is None else temperature, learn_temperature)
        self._relaxation = get(method, name)
        checked_options(name, self._relaxation, {key: options[key] for key in options if key != "capped"})
        _check_budget(name, self._relaxation, k, learn_k, k_max)
        check_eval_mode(name, eval_mode, random=self._relaxation.stochastic)
        self.dim, self.hard, self.largest, self.at_most = dim, hard, largest, at_most
        self.eval_mode: EvalMode = eval_mode
        self.options = options
        self.k_max = k_max
        self._k = int(k) if k == int(k) else float(k)
        self.kappa = None
        if learn_k and k_max is not None:
            self.kappa = nn.Parameter(torch.tensor(math.log(k) - math.log(k_max - k)))
        self.calibrate = calibrate
        if calibrate is not None:
            _check_calibrate(name, self._relaxation, calibrate)
            self.register_buffer("calibrated", torch.tensor(False))
        self._calibrated = calibrate is None
        # A wrong option is an error now, and not in the first batch.
        drawn: dict[str, Any] = {"generator": torch.Generator()} if self._relaxation.stochastic else {}
        topk(torch.zeros(2), min(1, self._k), self._relaxation, **options, **drawn)

    @property
    def method(self) -> str:
        """The name of the relaxation."""
        return self._relaxation.name

    @property
    def k(self) -> float | Tensor:
        """The budget: a number, or a tensor with a gradient if it is learned."""
        if self.kappa is None or self.k_max is None:
            return self._k
        # σ(κ) in a form whose gradient does not vanish before κ is very large, kept off the ends of the
        # range, where the budget would have no gradient and stay for ever.
        share = torch.exp(-nn.functional.softplus(-self.kappa))
        return self.k_max * straight_through(share, share.clamp(1e-6, 1 - 1e-6))

    def selected(self, scores: Tensor, mask: Tensor | None = None) -> Tensor:
        """The indices of the round(k) selected entries, best first, in the place of ``dim``; for export.

        Ties go to the lower index. Where fewer are allowed, the places left over are −1.
        """
        name = f"{type(self).__name__}.selected"
        last = position(name, scores, self.dim)
        k = check_count(name, scores, self._rounded_k(), last, at_most=self.at_most)
        rows = allowed_scores(name, directed(scores, self.largest), mask)
        indices, exists = ranked_indices(rows.movedim(last, -1), k)
        return torch.where(exists, indices, -1).movedim(-1, last)

    def _rounded_k(self) -> int:
        return round(self.k.item() if isinstance(self.k, Tensor) else self.k)

    def calibrate_(
        self,
        scores: Tensor,
        *,
        weight_on_topk: float = 0.9,
        mask: Tensor | None = None,
    ) -> None:
        """Set the temperature so that this share of the weight of ``scores`` lies on their top k.

        Take scores as the layer will see them: those of an untrained scorer are often far smaller than
        those it ends with, and the temperature with them. In a process group all take the geometric mean.
        """
        tau = calibrate_temperature(
            scores.detach(),
            self.k.detach() if isinstance(self.k, Tensor) else self.k,
            method=self._relaxation,
            weight_on_topk=weight_on_topk,
            dim=self.dim,
            mask=mask,
            largest=self.largest,
            **self.options,
        )
        self.temperature = _mean_over_processes(tau, scores.device)
        if self.calibrate is not None:
            self._set_calibrated()

    def _first_batch(self, scores: Tensor, mask: Tensor | None) -> None:
        name = type(self).__name__
        if bool(self.calibrated):  # by a state_dict
            self._calibrated = True
        elif torch.compiler.is_compiling():
            raise RuntimeError(
                f"{name}: calibrate = {self.calibrate} is not done yet; call layer.calibrate_(scores), "
                "or run one training batch before torch.compile"
            )
        elif self.training:
            assert self.calibrate is not None
            self.calibrate_(scores, weight_on_topk=self.calibrate, mask=mask)
        else:
            warnings.warn(
                f"{name}: evaluated before calibrate = {self.calibrate} was done, with temperature 1; "
                "train on a batch first, or call layer.calibrate_(scores)",
                stacklevel=3,
            )

    def _set_calibrated(self) -> None:
        self.calibrated.fill_(True)
        self._calibrated = True

    def get_extra_state(self) -> Tensor:
        """A fixed k, saved beside the state."""
        return torch.tensor(math.nan if self.kappa is not None else float(self._k), dtype=torch.float64)

    def set_extra_state(self, state: Tensor) -> None:
        """Check that what was saved had this k."""
        saved, here = float(state), float(self.get_extra_state())
        if saved != here and not (math.isnan(saved) and math.isnan(here)):
            words = ["learned" if math.isnan(k) else f"{k:g}" for k in (saved, here)]
            raise RuntimeError(
                f"{type(self).__name__}: k was {words[0]} when the state was saved, and is {words[1]} here"
            )

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls._any_method = "method" in inspect.signature(cls).parameters

    def extra_repr(self) -> str:
        """Show the settings, and which of them are learned."""
        budget = self.k.item() if isinstance(self.k, Tensor) else self.k
        k = f"k={budget:.4g}" + (f" (learned, k_max={self.k_max:g})" if self.kappa is not None else "")
        method = [f"method={self.method!r}"] if self._any_method else []
        tau = [self._shown_temperature()] + ([f"calibrate={self.calibrate}"] if self.calibrate else [])
        shown: dict[str, Any] = {"dim": self.dim, "hard": self.hard}
        for setting, usual in (("largest", True), ("at_most", False), ("eval_mode", "same")):
            if getattr(self, setting) != usual:
                shown[setting] = getattr(self, setting)
        shown |= self.options
        return ", ".join([k, *method, *tau, *(f"{key}={value!r}" for key, value in shown.items())])


def _check_budget(name: str, spec: Relaxation, k: float, learn_k: bool, k_max: float | None) -> None:
    if isinstance(k, bool | str) or not hasattr(k, "__float__"):
        raise TypeError(f"{name}: k must be a number, got {k!r}")
    if not 0 <= k < math.inf:
        raise ValueError(f"{name}: k must be finite and not negative, got {k}")
    if not spec.real_k and k != int(k):
        raise ValueError(f"{name}: k must be an integer for method {spec.name!r}, got {k}")
    if learn_k and not spec.real_k:
        raise ValueError(f"{name}: learn_k needs a method with real k, such as 'sigmoid', got {spec.name!r}")
    if learn_k and (k_max is None or not 0 < k < k_max < math.inf):
        raise ValueError(f"{name}: learn_k=True needs 0 < k < k_max, got k = {k}, k_max = {k_max}")
    if k_max is not None and not learn_k:
        raise ValueError(f"{name}: k_max = {k_max} has no effect without learn_k=True")


def _check_calibrate(name: str, spec: Relaxation, calibrate: float) -> None:
    if not 0 < calibrate < 1:
        raise ValueError(f"{name}: calibrate must lie between 0 and 1, got {calibrate}")
    if spec.stochastic:
        raise ValueError(
            f"{name}: calibrate needs a method without randomness, got {spec.name!r}; give temperature"
        )


def _mean_over_processes(temperature: float, device: torch.device) -> float:
    """The geometric mean over the process group, if there is one."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return temperature
    total = torch.tensor(math.log(temperature), dtype=torch.float64, device=device)
    torch.distributed.all_reduce(total)  # pyright: ignore[reportUnknownMemberType]
    return math.exp(total.item() / torch.distributed.get_world_size())
