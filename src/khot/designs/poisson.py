"""Poisson sampling: independent units, so the size is random. The baseline for all designs."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch.distributions import Bernoulli, Distribution, constraints

from khot.designs._arguments import check_expansion, check_one_of, check_units, validates
from khot.relaxations._plain_arguments import check_generator, check_sample_shape

__all__ = ["Poisson"]


class Poisson(Distribution):
    r"""Independent draws with probabilities π; the size has mean Σπ and variance Σπ(1 − π).

    .. math:: p(x) = \prod_i \pi_i^{x_i} (1 - \pi_i)^{1 - x_i}

    It is not k-hot and not a :class:`KHotDistribution`: its support is every vector of zeros and ones. Cost
    of a draw: O(n).

    Args:
        probs: inclusion probabilities in [0, 1], shape (…, n).
        logits: instead of ``probs``: their log-odds.
        validate_args: whether to check values; by default yes, except in compiled code.

    Example:
        >>> design = Poisson(probs=torch.tensor([0.5, 0.5]))
        >>> design.log_prob(torch.tensor([1.0, 0.0])).exp(), design.joint_inclusion
        (tensor(0.2500), tensor([[0.5000, 0.2500],
                [0.2500, 0.5000]]))

    Reference: Hájek (1964), Asymptotic Theory of Rejective Sampling.
    """

    arg_constraints = {  # noqa: RUF012  # pyright: ignore[reportAssignmentType, reportIncompatibleMethodOverride]
        "probs": constraints.independent(constraints.unit_interval, 1),
        "logits": constraints.real_vector,
    }
    support = constraints.independent(constraints.boolean, 1)  # pyright: ignore[reportAssignmentType, reportIncompatibleMethodOverride]
    has_enumerate_support = True

    def __init__(
        self, probs: Tensor | None = None, logits: Tensor | None = None, validate_args: bool | None = None
    ) -> None:
        parameters = {"probs": probs, "logits": logits}
        argument = check_one_of("Poisson", parameters)
        given = parameters[argument]
        assert given is not None
        check_units("Poisson", argument, given)
        validate = validates("Poisson", validate_args)
        if validate and probs is not None and not bool(((probs >= 0) & (probs <= 1)).all()):
            raise ValueError(
                f"Poisson: probs must lie in [0, 1], got values in [{probs.min():g}, {probs.max():g}]"
            )
        self._each = Bernoulli(probs=probs, logits=logits, validate_args=validate_args)
        super().__init__(given.shape[:-1], given.shape[-1:], validate_args=False)
        self._validate_args = validate

    @property
    def probs(self) -> Tensor:
        """The inclusion probabilities π."""
        return self._each.probs

    @property
    def logits(self) -> Tensor:
        """The log-odds of π."""
        return self._each.logits

    @property
    def mean(self) -> Tensor:
        """The inclusion probabilities π."""
        return self.probs

    @property
    def variance(self) -> Tensor:
        """π(1 − π)."""
        return self._each.variance

    @property
    def joint_inclusion(self) -> Tensor:
        """πᵢπⱼ, with π on the diagonal."""
        return self.covariance_matrix + self.probs.unsqueeze(-1) * self.probs.unsqueeze(-2)

    @property
    def covariance_matrix(self) -> Tensor:
        """The diagonal matrix of the variances."""
        return torch.diag_embed(self.variance)

    @property
    def mode(self) -> Tensor:
        """The units with π > ½."""
        return (self.probs > 0.5).to(self.probs)

    def entropy(self) -> Tensor:
        """The sum of the entropies of the units."""
        return self._each.entropy().sum(-1)

    def log_prob(self, value: Tensor) -> Tensor:
        """The logarithm of the probability of a vector, a sum over units.

        Args:
            value: zeros and ones, shape broadcastable to (…, n).
        """
        if self._validate_args:
            self._validate_sample(value)
        return self._each.log_prob(value).sum(-1)

    def sample(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, sample_shape: tuple[int, ...] = (), generator: torch.Generator | None = None
    ) -> Tensor:
        """Draw vectors of zeros and ones.

        Args:
            sample_shape: how many draws, as a shape: ``(100,)`` for 100.
            generator: source of randomness; by default torch's global generator.
        """
        name = f"{type(self).__name__}.sample"
        check_sample_shape(name, sample_shape)
        check_generator(name, generator)
        with torch.no_grad():
            shape = self._extended_shape(torch.Size(sample_shape))
            u = torch.rand(shape, dtype=torch.float64, device=self.probs.device, generator=generator)
            return (u < self.probs).to(self.probs.dtype)

    def enumerate_support(self, expand: bool = True) -> Tensor:
        """All 2ⁿ vectors, for n ≤ 20.

        Args:
            expand: repeat them over the batch.
        """
        n = self.event_shape[0]
        if n > 20:
            raise ValueError(f"Poisson: enumerate_support gives at most 2²⁰ vectors, got n = {n}")
        device = self.probs.device
        bits = torch.arange(2**n, device=device).unsqueeze(-1) >> torch.arange(n, device=device)
        rows = (bits & 1).to(self.probs).view(-1, *(1 for _ in self.batch_shape), n)
        return rows.expand(2**n, *self.batch_shape, n) if expand else rows

    def expand(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, batch_shape: torch.Size | tuple[int, ...], _instance: Any = None
    ) -> Any:
        """The same design for a larger batch.

        Args:
            batch_shape: the new batch shape, to which the old one must broadcast.
        """
        check_expansion("Poisson", self.batch_shape, batch_shape)
        new = cast("Any", self)._get_checked_instance(Poisson, _instance)
        new._each = cast("Any", self._each).expand(torch.Size((*batch_shape, *self.event_shape)))
        Distribution.__init__(new, torch.Size(batch_shape), self.event_shape, validate_args=False)
        new._validate_args = self._validate_args
        return new
