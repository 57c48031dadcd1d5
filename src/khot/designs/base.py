"""What all designs of a fixed size share."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping
from typing import Any, ClassVar, cast

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints
from torch.distributions.constraints import Constraint

from khot.constraints import capped_simplex, k_hot, rounded_k_hot
from khot.designs._arguments import (
    check_one_of,
    check_probabilities,
    check_scores,
    check_size,
    normalised,
    validates,
)
from khot.relaxations import sigmoid_topk

__all__ = ["KHotDistribution"]

_MOST_SUBSETS = 1_000_000


class KHotDistribution(Distribution):
    r"""A distribution of k-hot vectors: zeros and ones of length n, k of them ones.

    Every design has inclusion probabilities :math:`\pi_i = P(x_i = 1)`, which lie on the k-capped simplex.
    Designs with the same π differ in how likely *sets* are; ``joint_inclusion`` and ``entropy`` show it.
    What a design has no closed form for raises ``NotImplementedError`` and says what to use instead.

    Args:
        k: how many ones.
        probs: inclusion probabilities π of shape (…, n), with sum k up to the rounding of their dtype (they
            are normalised within it). π = 0 is never drawn, π = 1 always.
        logits: instead of ``probs``, scores: π is then ``khot.sigmoid_topk(logits, k)``.
        validate_args: whether to check values; by default yes, but for code that is compiled.

    Attributes:
        exact_inclusion: whether P(xᵢ = 1) is exactly π.

    Example:
        >>> from khot.designs import Systematic
        >>> design = Systematic(2, probs=torch.tensor([0.5, 0.5, 1.0]))
        >>> isinstance(design, KHotDistribution), design.sample().sum()
        (True, tensor(2.))
    """

    has_enumerate_support = True
    exact_inclusion: ClassVar[bool] = True
    _takes_fractions: ClassVar[bool] = False

    def __init__(
        self,
        k: float,
        probs: Tensor | None = None,
        logits: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        name = type(self).__name__
        given = check_one_of(name, probs, logits)
        self.k = check_size(name, k, given.shape[-1], whole=not self._takes_fractions)
        self._dtype = given.dtype
        validate = validates(validate_args)
        if logits is not None:
            self.logits = logits
        else:
            self.probs = given
        if validate and logits is not None:
            check_scores(name, logits, math.ceil(self.k))
        elif validate:
            check_probabilities(name, given, self.k)
        super().__init__(given.shape[:-1], given.shape[-1:], validate_args=False)
        self._validate_args = validate

    @functools.cached_property
    def probs(self) -> Tensor:  # pyright: ignore[reportRedeclaration]
        """Inclusion probabilities π, as given or from the logits."""
        with torch.enable_grad():
            return self._from_logits().to(self._dtype)

    @functools.cached_property
    def _inclusion(self) -> Tensor:
        """π in float64, with sum k: at n = 1e6 sums in float32 are too coarse."""
        with torch.enable_grad():
            return normalised(self._from_logits() if "logits" in self.__dict__ else self.probs, self.k)

    @property
    def _rows(self) -> Tensor:
        """π to draw from by a kernel, which normalises it itself: as given, if a kernel can read it."""
        as_given = "logits" not in self.__dict__ and self._dtype in (torch.float32, torch.float64)
        return (self.probs if as_given else self._inclusion).detach()

    def _from_logits(self) -> Tensor:
        return sigmoid_topk(self.logits.double(), self.k)

    @property
    def _parameter(self) -> Tensor:
        return self.logits if "logits" in self.__dict__ else self.probs

    @property
    def arg_constraints(self) -> Mapping[str, Constraint]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """``probs`` on the capped simplex of k, ``logits`` real."""
        given = {"probs": capped_simplex(self.k), "logits": constraints.real_vector}
        return {name: constraint for name, constraint in given.items() if name in self.__dict__}

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> Constraint:  # pyright: ignore[reportIncompatibleMethodOverride, reportIncompatibleVariableOverride]
        """The k-hot vectors; for a k that is not whole those with ⌊k⌋ or ⌈k⌉ ones."""
        return k_hot(self.k) if isinstance(self.k, int) else rounded_k_hot(self.k)

    @property
    def n(self) -> int:
        """The number of units."""
        return self.event_shape[0]

    @property
    def mean(self) -> Tensor:
        """Inclusion probabilities π."""
        return self._inclusion.to(self._dtype)

    @property
    def variance(self) -> Tensor:
        """π(1 − π), whatever the design."""
        return (self._inclusion * (1 - self._inclusion)).to(self._dtype)

    @property
    def joint_inclusion(self) -> Tensor:
        """P(xᵢ = xⱼ = 1), shape (…, n, n); its diagonal is π."""
        raise NotImplementedError(f"{type(self).__name__}: joint_inclusion {self._no_closed_form()}")

    @property
    def covariance_matrix(self) -> Tensor:
        """``joint_inclusion`` − ππᵀ; its rows sum to 0 where k is whole."""
        pi = self.mean
        return self.joint_inclusion - pi.unsqueeze(-1) * pi.unsqueeze(-2)

    @property
    def mode(self) -> Tensor:
        """A most likely k-hot vector."""
        raise NotImplementedError(f"{type(self).__name__}: mode {self._no_closed_form()}")

    def entropy(self) -> Tensor:
        """Entropy in nats."""
        raise NotImplementedError(f"{type(self).__name__}: entropy {self._no_closed_form()}")

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the probability of a k-hot vector; −inf if it cannot be drawn.

        Args:
            value: zeros and ones, shape broadcastable to (…, n).
        """
        raise NotImplementedError(f"{type(self).__name__}: log_prob {self._no_closed_form()}")

    def _no_closed_form(self) -> str:
        return "has no closed form for this design"

    def sample(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, sample_shape: tuple[int, ...] = (), generator: torch.Generator | None = None
    ) -> Tensor:
        """Draw k-hot vectors.

        Args:
            sample_shape: how many, as a shape.
            generator: where the randomness comes from; by default torch's own.

        Returns:
            Zeros and ones of shape ``sample_shape`` + batch shape + (n,), in the dtype of the parameters.
        """
        with torch.no_grad():
            return self._as_k_hot(self.sample_indices(sample_shape, generator))

    def sample_indices(
        self, sample_shape: tuple[int, ...] = (), generator: torch.Generator | None = None
    ) -> Tensor:
        """Draw the places of the ones: as ``sample``, without the zeros.

        Args:
            sample_shape: how many, as a shape.
            generator: where the randomness comes from; by default torch's own.

        Returns:
            int64 indices of shape ``sample_shape`` + batch shape + (⌈k⌉,), increasing along the last
            dimension. If k is not whole and a draw has ⌊k⌋ ones, its last index is n.
        """
        with torch.no_grad():
            return self._draw(torch.Size(sample_shape), generator)

    def _draw(self, sample_shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        raise NotImplementedError

    def _as_k_hot(self, indices: Tensor) -> Tensor:
        whole = isinstance(self.k, int)
        x = torch.zeros((*indices.shape[:-1], self.n + (not whole)), dtype=self._dtype, device=indices.device)
        return x.scatter_(-1, indices, 1.0)[..., : self.n]

    def _checked_value(self, value: Tensor) -> Tensor:
        """``value`` as booleans of the full shape."""
        if self._validate_args:
            self._validate_sample(value)
        full = self.batch_shape + self.event_shape
        shape: torch.Size = cast("Any", torch).broadcast_shapes(value.shape, full)
        return value.expand(shape) != 0

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All k-hot vectors, in lexicographic order of their indices.

        Args:
            expand: repeat them over the batch.

        Returns:
            Shape (C(n, k), …, n); an error beyond a million vectors.
        """
        if not isinstance(self.k, int):
            raise NotImplementedError(
                f"{type(self).__name__}: enumerate_support needs a whole k, got k = {self.k}"
            )
        count = math.comb(self.n, self.k)
        if count > _MOST_SUBSETS:
            raise ValueError(
                f"{type(self).__name__}: enumerate_support gives at most {_MOST_SUBSETS} vectors, "
                f"got C({self.n}, {self.k}) = {count}"
            )
        chosen = list(itertools.combinations(range(self.n), self.k))
        indices = torch.tensor(chosen, dtype=torch.long, device=self._parameter.device).view(count, self.k)
        rows = torch.zeros(count, self.n, dtype=self._dtype, device=self._parameter.device)
        rows = rows.scatter_(-1, indices, 1.0).view(count, *(1 for _ in self.batch_shape), self.n)
        return rows.expand(count, *self.batch_shape, self.n) if expand else rows

    def expand(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, batch_shape: torch.Size | tuple[int, ...], _instance: Any = None
    ) -> Any:
        """The same design for a larger batch.

        Args:
            batch_shape: the new one, to which the old one broadcasts.
        """
        new = cast("Any", self)._get_checked_instance(type(self), _instance)
        shape = (*batch_shape, self.n)
        new.k, new._dtype = self.k, self._dtype
        for name, value in self.__dict__.items():
            if isinstance(value, Tensor) and value.shape == self.batch_shape + self.event_shape:
                new.__dict__[name] = value.expand(shape)
        Distribution.__init__(new, torch.Size(batch_shape), self.event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    def __repr__(self) -> str:
        """Show k and the shape of the parameters."""
        given = "logits" if "logits" in self.__dict__ else "probs"
        return f"{type(self).__name__}(k: {self.k}, {given}: {self._parameter.size()})"
