"""Gates: the functions F of the threshold family, in the forms that its solver and its Jacobian need.

An operator of the family is yᵢ = F((xᵢ + c)/τ) with c such that Σy = k. F is a CDF: it rises from 0 to 1.
A gate computes F in forms that lose no digits: the distance of F to the nearer of 0 and 1, the quantile from
both tails, and F′ as a function of a *state* that is saved for the backward pass.

A new member of the family is one class here (a symmetric F needs only `tail`, `quantile` and
`slope`) and one short file beside ``laplace.py``.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor

from khot.kernels import cpu
from khot.relaxations._special import erfcx, ndtr, ndtri, xlog1py, xlogy

__all__ = ["LAPLACE", "LOGISTIC", "NORMAL", "Gate", "Sparse", "UserGate"]


class Gate(ABC):
    """One function F, with everything the family needs to know about it."""

    far: float = 1e4
    """Beyond this distance from the anchor, in units of τ, a weight is 0 or 1."""
    steps: tuple[int, int] = (10, 14)
    """How many evaluations the solver may take in float32 and float64."""
    newton_steps: tuple[int, int] | None = None
    """The same for plain Newton steps, without a bisection; None if it needs one: see ``_newton.py``."""
    convergence: int = 3
    """3 if `distance` gives smooth second derivatives: the error of a step is its cube. Else 2."""
    reach: float = math.inf
    """F⁻¹(1). If that is finite, tails have no logarithms, and `step` tells how the solver goes on."""
    kernel: cpu.GateKind | None = None
    """The name of the compiled kernels, if there are any."""
    norm: float = 2.0
    """q of the sparse gate, for its kernels; the others have none."""
    still: float = 0.0
    """A state whose slope is 0: that of a weight that no score can move."""
    steepness: Callable[[Tensor], Tensor] | None = None
    """How fast −log F′ grows in the tail, a linear function; None if it is not: see ``_budget_shares.py``."""

    @abstractmethod
    def distance(self, a: Tensor, above: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """1 − F(a) where ``above``, F(a) elsewhere; F′(a); and the second derivative of the first."""

    @abstractmethod
    def quantile(self, p: Tensor, q: Tensor) -> Tensor:
        """F⁻¹(p), given p and q = 1 − p, since either may be tiny."""

    @abstractmethod
    def weights(self, a: Tensor) -> Tensor:
        """F(a)."""

    @abstractmethod
    def state(self, a: Tensor) -> Tensor:
        """The state at a, which is saved for the backward pass."""

    @abstractmethod
    def slope(self, state: Tensor) -> Tensor:
        """F′, from the state."""

    def potential(self, y: Tensor) -> Tensor:
        """A convex function ω with ω′ = F⁻¹: y maximises ⟨x, π⟩ − τ Σ ω(πᵢ) over the capped simplex.

        Only the Fenchel–Young losses ask for it.
        """
        raise NotImplementedError(f"{type(self).__name__} has no potential: there is no loss of it")

    def step(self, inside: Tensor, slope: Tensor, left: Tensor) -> Tensor:
        """The Newton step: by how much a is too large for ΣF(a) = k; only if ``reach`` is finite.

        Args:
            inside: the sum of F(a) where 0 < F < 1.
            slope: the sum of F′(a).
            left: k minus the number of entries at 1.
        """
        raise NotImplementedError

    def state_slope(self, state: Tensor, slope: Tensor) -> Tensor:
        """The derivative of the state in a; by default that of the weights."""
        del state
        return slope

    def tail_and_slope(self, a: Tensor) -> tuple[Tensor, Tensor]:
        """F and F′ with full relative accuracy for a → −∞; only if there are ``newton_steps``."""
        raise NotImplementedError

    def log_hazard(self, a: Tensor) -> Tensor:
        """log F′(a)/(1 − F(a)) for large a, if there is a ``steepness``: 0 for an exponential tail."""
        return torch.zeros_like(a)


class _Symmetric(Gate):
    """F(−a) = 1 − F(a); the state is the *residual*, the signed distance of y to the nearer of 0 and 1."""

    @abstractmethod
    def tail(self, a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """F, F′ and F″, exact in a relative sense for a → −∞."""

    def tail_and_slope(self, a: Tensor) -> tuple[Tensor, Tensor]:
        return self.tail(a)[:2]

    def distance(self, a: Tensor, above: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        return self.tail(torch.where(above, -a, a))

    def weights(self, a: Tensor) -> Tensor:
        tail = self.tail(-a.abs())[0]
        return torch.where(a > 0, 1 - tail, tail)

    def state(self, a: Tensor) -> Tensor:
        tail = self.weights(-a.abs())
        return torch.where(a > 0, -tail, tail)


class _Logistic(_Symmetric):
    kernel = "logistic"
    newton_steps = (6, 8)
    steepness = staticmethod(torch.ones_like)

    def tail(self, a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        p = torch.sigmoid(a)
        slope = p * (1 - p)
        return p, slope, slope * (1 - 2 * p)

    def quantile(self, p: Tensor, q: Tensor) -> Tensor:
        return p.log() - q.log()

    def weights(self, a: Tensor) -> Tensor:
        return torch.sigmoid(a)

    def slope(self, state: Tensor) -> Tensor:
        return state.abs() * (1 - state.abs())

    def potential(self, y: Tensor) -> Tensor:
        return xlogy(y, y) + xlog1py(1 - y, -y)


class _Laplace(_Symmetric):
    kernel = "laplace"
    newton_steps = (7, 10)
    convergence = 2
    steepness = staticmethod(torch.ones_like)

    def tail(self, a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        slope = torch.exp(-a.abs()) / 2
        return torch.where(a > 0, 1 - slope, slope), slope, torch.where(a > 0, -slope, slope)

    def quantile(self, p: Tensor, q: Tensor) -> Tensor:
        return torch.where(p < q, (2 * p).log(), -(2 * q).log())

    def weights(self, a: Tensor) -> Tensor:
        return self.tail(a)[0]

    def slope(self, state: Tensor) -> Tensor:
        return state.abs()

    def potential(self, y: Tensor) -> Tensor:
        smaller = torch.minimum(y, 1 - y)
        return xlogy(smaller, 2 * smaller) - smaller


class _Normal(_Symmetric):
    """Its state is a itself: of a residual, the slope would be the density at a quantile."""

    kernel = "normal"
    newton_steps = (7, 8)
    still = 1e18
    steepness = staticmethod(torch.Tensor.clone)

    def log_hazard(self, a: Tensor) -> Tensor:
        return math.log(2 / math.pi) / 2 - erfcx(a * math.sqrt(0.5)).log()

    def tail(self, a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        slope = _normal_density(a)
        return ndtr(a), slope, -a * slope

    def quantile(self, p: Tensor, q: Tensor) -> Tensor:
        return torch.where(p < q, ndtri(p), -ndtri(q))

    def weights(self, a: Tensor) -> Tensor:
        return ndtr(a)

    def state(self, a: Tensor) -> Tensor:
        return a

    def slope(self, state: Tensor) -> Tensor:
        moves = ~(state.abs() >= self.still)  # NaN stays
        return torch.where(moves, _normal_density(torch.where(moves, state, 0)), 0)

    def state_slope(self, state: Tensor, slope: Tensor) -> Tensor:
        del slope
        return torch.ones_like(state)

    def potential(self, y: Tensor) -> Tensor:
        smaller = torch.minimum(y, 1 - y)
        inside = smaller > 0  # elsewhere the quantile is infinite, and would spoil a derivative
        return torch.where(inside, -_normal_density(ndtri(torch.where(inside, smaller, 0.5))), 0)


class Sparse(Gate):
    """F(a) = a^{1/(q−1)} clamped to [0, 1], for q = ``norm`` in (1, 2]; the state is the weight.

    A rounding error in a is 1/(q − 1) times as large in the weight, so weights lose digits as q → 1.
    """

    kernel = "sparse"
    convergence = 2
    reach = 1.0
    steps = (14, 18)

    def __init__(self, norm: float) -> None:
        self.norm = norm

    def distance(self, a: Tensor, above: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        y = self.weights(a)
        return torch.where(above, 1 - y, y), self.slope(y), None

    def step(self, inside: Tensor, slope: Tensor, left: Tensor) -> Tensor:
        """A Newton step on (ΣF over 0 < a < 1)^{q−1}, a norm of a: nearly linear while all stay in (0, 1)."""
        growth = slope * (self.norm - 1)
        return (inside - inside ** (2 - self.norm) * left.clamp_min(0.0) ** (self.norm - 1)) / growth

    def quantile(self, p: Tensor, q: Tensor) -> Tensor:
        del q
        return p ** (self.norm - 1)

    def weights(self, a: Tensor) -> Tensor:
        base = a.clamp(0.0, 1.0)
        return base if self.norm == 2 else base ** (1 / (self.norm - 1))

    def state(self, a: Tensor) -> Tensor:
        return self.weights(a)

    def slope(self, state: Tensor) -> Tensor:
        inside = (state > 0) & (state < 1)
        if self.norm == 2:
            return inside.to(state.dtype)
        base = torch.where(inside, state, 1)
        return torch.where(inside, base ** (2 - self.norm) / (self.norm - 1), 0)

    def potential(self, y: Tensor) -> Tensor:
        return y**self.norm / self.norm


class UserGate(Gate):
    """Any differentiable CDF; the state is a itself."""

    far = still = 1e18
    steps = (40, 70)
    convergence = 2

    def __init__(
        self,
        cdf: Callable[[Tensor], Tensor],
        density: Callable[[Tensor], Tensor] | None,
        survival: Callable[[Tensor], Tensor] | None,
    ) -> None:
        self.cdf = cdf
        self.density = density
        self.survival = survival

    def distance(self, a: Tensor, above: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        upper = 1 - self.cdf(a) if self.survival is None else self.survival(a)
        return torch.where(above, upper, self.cdf(a)), self.slope(a), None

    def quantile(self, p: Tensor, q: Tensor) -> Tensor:
        """By bisection in s with z = sinh(s), since the scale is unknown: s runs from −42 to 42."""
        del q
        high = torch.full_like(p, math.asinh(self.far))
        low = -high
        for _ in range(50):
            middle = (low + high) / 2
            below = self.cdf(middle.sinh()) < p
            low, high = torch.where(below, middle, low), torch.where(below, high, middle)
        return ((low + high) / 2).sinh()

    def weights(self, a: Tensor) -> Tensor:
        return self.cdf(a).clamp(0, 1)

    def state(self, a: Tensor) -> Tensor:
        return a

    def slope(self, state: Tensor) -> Tensor:
        moves = state.abs() < self.far
        inner = torch.where(moves, state, 0)
        if self.density is not None:
            slope = self.density(inner)
        else:
            slope = torch.func.jvp(self.cdf, (inner,), (torch.ones_like(inner),))[1]
        return torch.where(moves, slope, 0)

    def state_slope(self, state: Tensor, slope: Tensor) -> Tensor:
        del slope
        return torch.ones_like(state)

    def potential(self, y: Tensor) -> Tensor:
        raise NotImplementedError("a user's CDF has no potential in closed form")


def _normal_density(a: Tensor) -> Tensor:
    return torch.exp(-a.square() / 2) / math.sqrt(2 * math.pi)


LOGISTIC = _Logistic()
LAPLACE = _Laplace()
NORMAL = _Normal()
