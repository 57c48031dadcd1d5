"""The base of all designs of a fixed size: checks, dtypes, and rows in which nothing is random.

A design adds ``_draw`` and its closed forms: ``_log_prob``, ``_entropy``, ``_joint_inclusion``, ….
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from typing import Any, ClassVar, cast

import torch
from torch import Tensor
from torch.distributions import Distribution, constraints
from torch.distributions.constraints import Constraint

from khot.constraints import capped_simplex, k_hot, rounded_k_hot
from khot.designs._arguments import (
    check_expansion,
    check_one_of,
    check_probabilities,
    check_scores,
    check_size,
    check_units,
    normalised,
    validates,
)
from khot.designs._enumeration import all_k_hot
from khot.designs._short_rows import ShortRows, short_rows
from khot.relaxations import sigmoid_topk, straight_through
from khot.relaxations._arguments import compute_dtype
from khot.relaxations._plain_arguments import check_generator, check_sample_shape

__all__ = ["KHotDistribution"]


class KHotDistribution(Distribution):
    r"""A distribution of k-hot vectors: zeros and ones of length n, k of them ones.

    Every design has inclusion probabilities :math:`\pi_i = P(x_i = 1)`, which lie on the k-capped simplex.
    Designs with the same π differ in the probabilities of *sets*: compare ``joint_inclusion`` and
    ``entropy``. A quantity without a closed form raises ``NotImplementedError``, and the message says what to
    use instead.

    Args:
        k: how many ones.
        probs: inclusion probabilities π of shape (…, n), with sum k up to the rounding of their dtype (they
            are normalised to sum exactly to k). A unit with π = 0 is never drawn, one with π = 1 always.
        scores: instead of ``probs``: π = ``khot.sigmoid_topk(scores, k)``. −inf is never drawn, +inf always;
            if more than k are at +inf, they share k. If k units or fewer are above −inf, all of them are
            drawn, and the row may have fewer than k ones.
        validate_args: whether to check values; by default yes, except in compiled code.

    Attributes:
        exact_inclusion: whether P(xᵢ = 1) is exactly π.
        parameters: the accepted parameters, among ``probs``, ``scores`` and ``logits``.
        takes_fractions: whether k may be any number, not only an integer.

    Example:
        >>> from khot.designs import Systematic
        >>> design = Systematic(2, probs=torch.tensor([0.5, 0.5, 1.0]))
        >>> isinstance(design, KHotDistribution), design.sample().sum()
        (True, tensor(2.))
    """

    has_enumerate_support = True
    exact_inclusion: ClassVar[bool] = True
    parameters: ClassVar[tuple[str, ...]] = ("probs", "scores")
    takes_fractions: ClassVar[bool] = False
    scores: Tensor
    _short: ShortRows | None = None

    def __init__(
        self,
        k: float,
        *,
        probs: Tensor | None = None,
        scores: Tensor | None = None,
        validate_args: bool | None = None,
    ) -> None:
        self._set_up(k, {"probs": probs, "scores": scores}, validate_args)

    def _set_up(self, k: float, given: dict[str, Tensor | None], validate_args: bool | None) -> None:
        name = type(self).__name__
        self._given = check_one_of(name, given)
        parameter = cast("Tensor", given[self._given])
        check_units(name, self._given, parameter)
        self.k = check_size(name, k, parameter.shape[-1], whole=not self.takes_fractions)
        self._dtype = parameter.dtype
        validate = validates(name, validate_args)
        setattr(self, self._given, parameter)
        if self._given != "probs":
            if validate:
                check_scores(name, self._given, parameter, math.ceil(self.k))
            self._short = short_rows(parameter, self.k, look=validate)
        elif validate:
            check_probabilities(name, parameter, self.k)
        super().__init__(parameter.shape[:-1], parameter.shape[-1:], validate_args=False)
        self._validate_args = validate

    @functools.cached_property
    def probs(self) -> Tensor:  # pyright: ignore[reportRedeclaration]
        """Inclusion probabilities π, as given or from the scores."""
        with torch.enable_grad():
            return self._settled(self._from_scores().to(self._dtype))

    @functools.cached_property
    def _inclusion(self) -> Tensor:
        """π in float64, with sum k: at n = 1e6 sums in float32 are too coarse. Short rows are harmless."""
        with torch.enable_grad():
            return normalised(self.probs if self._given == "probs" else self._from_scores(), self.k)

    @property
    def _rows(self) -> Tensor:
        """π to draw from by a kernel, which normalises it itself: as given, if a kernel can read it."""
        readable = self._short is None and self._dtype in (torch.float32, torch.float64)
        return (self.probs if readable else self._inclusion).detach()

    def _from_scores(self) -> Tensor:
        return sigmoid_topk(self._parameter.to(compute_dtype(self._parameter)), self.k)

    @property
    def _parameter(self) -> Tensor:
        """What was given, harmless in short rows."""
        given: Tensor = self.__dict__[self._given]
        return given if self._short is None else self._short.harmless(given)

    def _settled(self, vectors: Tensor) -> Tensor:
        return vectors if self._short is None else self._short.vectors(vectors)

    @property
    def arg_constraints(self) -> Mapping[str, Constraint]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """``probs`` on the capped simplex of k, ``scores`` and ``logits`` real."""
        given = capped_simplex(self.k) if self._given == "probs" else constraints.real_vector
        return {self._given: given}

    @constraints.dependent_property(is_discrete=True, event_dim=1)
    def support(self) -> Constraint:  # pyright: ignore[reportIncompatibleMethodOverride, reportIncompatibleVariableOverride]
        """The k-hot vectors; if k is not an integer, the vectors with ⌊k⌋ or ⌈k⌉ ones."""
        if self._short is not None:
            return rounded_k_hot(self._short.sizes(self.k))
        return k_hot(self.k) if isinstance(self.k, int) else rounded_k_hot(self.k)

    @property
    def n(self) -> int:
        """The number of units."""
        return self.event_shape[0]

    @property
    def mean(self) -> Tensor:
        """The inclusion probabilities: π, or the true ones if the design meets π only approximately."""
        return self._settled(self._true_inclusion.to(self._dtype))

    @property
    def variance(self) -> Tensor:
        """π(1 − π), whatever the design."""
        pi = self._settled(self._true_inclusion)
        return (pi * (1 - pi)).to(self._dtype)

    @property
    def _true_inclusion(self) -> Tensor:
        return self._inclusion

    @property
    def joint_inclusion(self) -> Tensor:
        """P(xᵢ = xⱼ = 1), shape (…, n, n); its diagonal is π."""
        joint, pi = self._joint_inclusion().double(), self._true_inclusion
        most = torch.minimum(pi.unsqueeze(-1), pi.unsqueeze(-2))
        # Rounding may have left them a hair outside of what is possible; their gradient is what it was.
        joint = straight_through(joint, torch.minimum(joint.clamp_min(0), most))
        joint = torch.where(torch.eye(self.n, dtype=torch.bool, device=pi.device), pi.unsqueeze(-1), joint)
        return (joint if self._short is None else self._short.pairs(joint)).to(self._dtype)

    def _joint_inclusion(self) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__}: joint_inclusion {self._no_closed_form()}")

    @property
    def covariance_matrix(self) -> Tensor:
        """``joint_inclusion`` − ππᵀ; its rows sum to 0 if k is an integer."""
        pi = self.mean
        return self.joint_inclusion - pi.unsqueeze(-1) * pi.unsqueeze(-2)

    @property
    def mode(self) -> Tensor:
        """A most likely k-hot vector."""
        return self._settled(self._mode().to(self._dtype))

    def _mode(self) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__}: mode {self._no_closed_form()}")

    def entropy(self) -> Tensor:
        """Entropy in nats."""
        entropy = self._entropy()
        return (entropy if self._short is None else self._short.zero(entropy)).to(self._dtype)

    def _entropy(self) -> Tensor:
        raise NotImplementedError(f"{type(self).__name__}: entropy {self._no_closed_form()}")

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the probability of a k-hot vector; −inf if it cannot be drawn.

        Args:
            value: zeros and ones, shape broadcastable to (…, n).
        """
        x = self._checked_value(value)
        log_prob = self._log_prob(x)
        return (log_prob if self._short is None else self._short.log_prob(x, log_prob)).to(self._dtype)

    def _log_prob(self, x: Tensor) -> Tensor:
        """Of booleans of the full shape."""
        raise NotImplementedError(f"{type(self).__name__}: log_prob {self._no_closed_form()}")

    def _no_closed_form(self) -> str:
        return "has no closed form for this design"

    def sample(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, sample_shape: tuple[int, ...] = (), generator: torch.Generator | None = None
    ) -> Tensor:
        """Draw k-hot vectors.

        Args:
            sample_shape: how many draws, as a shape: ``(100,)`` for 100.
            generator: source of randomness; by default torch's global generator.

        Returns:
            Zeros and ones of shape ``sample_shape`` + batch shape + (n,), in the dtype of the parameters.
        """
        name = f"{type(self).__name__}.sample"
        check_sample_shape(name, sample_shape)
        check_generator(name, generator)
        with torch.no_grad():
            return self._settled(self._draw_k_hot(torch.Size(sample_shape), generator).to(self._dtype))

    def sample_indices(
        self, sample_shape: tuple[int, ...] = (), generator: torch.Generator | None = None
    ) -> Tensor:
        """Draw the indices of the ones, instead of the whole vectors of ``sample``.

        Args:
            sample_shape: how many draws, as a shape: ``(100,)`` for 100.
            generator: source of randomness; by default torch's global generator.

        Returns:
            int64 indices of shape ``sample_shape`` + batch shape + (⌈k⌉,), increasing along the last
            dimension. If a draw has fewer than ⌈k⌉ ones, its last indices are n.
        """
        name = f"{type(self).__name__}.sample_indices"
        check_sample_shape(name, sample_shape)
        check_generator(name, generator)
        with torch.no_grad():
            indices = self._draw(torch.Size(sample_shape), generator)
            return indices if self._short is None else self._short.indices(indices)

    def _draw(self, sample_shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        """Indices as those of ``sample_indices``."""
        raise NotImplementedError

    def _draw_k_hot(self, sample_shape: torch.Size, generator: torch.Generator | None) -> Tensor:
        """K-hot vectors in any dtype: by default from the indices."""
        return self._as_k_hot(self._draw(sample_shape, generator))

    def _as_k_hot(self, indices: Tensor) -> Tensor:
        whole = isinstance(self.k, int)
        x = torch.zeros((*indices.shape[:-1], self.n + (not whole)), dtype=self._dtype, device=indices.device)
        return x.scatter_(-1, indices, 1.0)[..., : self.n]

    def _checked_value(self, value: Tensor) -> Tensor:
        """``value`` as booleans of the full shape."""
        if self._validate_args:
            self._validate_sample(value)
        full = self.batch_shape + self.event_shape
        return value.expand(cast("Any", torch).broadcast_shapes(value.shape, full)) != 0

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All k-hot vectors, in lexicographic order of their indices.

        Args:
            expand: repeat them over the batch.

        Returns:
            Shape (C(n, k), …, n). More than a million vectors are an error.
        """
        rows = all_k_hot(type(self).__name__, self.n, self.k, fewer=self._short is not None)
        rows = rows.to(self._parameter).view(-1, *(1 for _ in self.batch_shape), self.n)
        return rows.expand(-1, *self.batch_shape, self.n) if expand else rows

    def expand(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, batch_shape: torch.Size | tuple[int, ...], _instance: Any = None
    ) -> Any:
        """The same design for a larger batch.

        Args:
            batch_shape: the new batch shape, to which the old one must broadcast.
        """
        check_expansion(type(self).__name__, self.batch_shape, batch_shape)
        new = cast("Any", self)._get_checked_instance(type(self), _instance)
        new.k, new._dtype, new._given = self.k, self._dtype, self._given
        new._short = None if self._short is None else self._short.expand(tuple(batch_shape))
        for name, value in self.__dict__.items():
            if isinstance(value, Tensor) and value.shape == self.batch_shape + self.event_shape:
                new.__dict__[name] = value.expand(*batch_shape, self.n)
        Distribution.__init__(new, torch.Size(batch_shape), self.event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new

    def __getstate__(self) -> dict[str, Any]:
        """Without what was computed and kept: it may carry a graph, which cannot be copied."""
        kind, cached = type(self), functools.cached_property
        kept = {name for name in self.__dict__ if isinstance(getattr(kind, name, None), cached)}
        return {name: value for name, value in self.__dict__.items() if name not in kept - {self._given}}

    def __repr__(self) -> str:
        """Show k and the shape of the parameters."""
        return f"{type(self).__name__}(k: {self.k}, {self._given}: {self._parameter.size()})"
