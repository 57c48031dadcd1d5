"""From real vectors to inclusion probabilities, for ``torch.distributions.transform_to`` and ``biject_to``.

Sigmoid top-k maps ℝⁿ onto the interior of the k-capped simplex; x and x + c have the same image. With the
last score fixed at 0 it is one-to-one from ℝⁿ⁻¹. Its Jacobian in the first n − 1 coordinates is
diag(w) − wwᵀ/W without the last row and column, w = y(1 − y), W = Σw, so

    log|det| = Σᵢ log wᵢ − log W     over all n entries.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.distributions import biject_to, constraints, transform_to
from torch.distributions.constraints import Constraint
from torch.distributions.transforms import Transform
from torch.nn.functional import pad

from khot.constraints import capped_simplex, check_sum
from khot.relaxations import inverse_sigmoid_topk, sigmoid_topk

__all__ = ["PinnedSigmoidTopKTransform", "SigmoidTopKTransform"]


class SigmoidTopKTransform(Transform):
    """Map scores (…, n) to inclusion probabilities with sum k; not one-to-one: x and x + c map to the same.

    Args:
        k: the sum.
        cache_size: as in ``torch.distributions``.

    Example:
        >>> from torch.distributions import transform_to
        >>> from khot.constraints import capped_simplex
        >>> transform_to(capped_simplex(2))(torch.zeros(4))
        tensor([0.5000, 0.5000, 0.5000, 0.5000])
    """

    domain = constraints.real_vector

    def __init__(self, k: float | Tensor, cache_size: int = 0) -> None:
        super().__init__(cache_size=cache_size)
        self.k = check_sum(type(self).__name__, k)

    @constraints.dependent_property(is_discrete=False, event_dim=1)
    def codomain(self) -> Constraint:  # pyright: ignore[reportIncompatibleVariableOverride, reportIncompatibleMethodOverride]
        """The capped simplex."""
        return capped_simplex(self.k)

    def __eq__(self, other: object) -> bool:
        """Whether both give the same."""
        return type(other) is type(self) and bool(torch.all(torch.as_tensor(self.k == other.k)))

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def _call(self, x: Tensor) -> Tensor:
        return sigmoid_topk(x, self.k)

    def _inverse(self, y: Tensor) -> Tensor:
        return inverse_sigmoid_topk(y)


class PinnedSigmoidTopKTransform(SigmoidTopKTransform):
    """Map scores (…, n − 1), with 0 as the last score, one-to-one to inclusion probabilities (…, n), sum k.

    Args:
        k: the sum.
        cache_size: as in ``torch.distributions``.

    Example:
        >>> from torch.distributions import biject_to
        >>> from khot.constraints import capped_simplex
        >>> transform = biject_to(capped_simplex(2))
        >>> probs = transform(torch.tensor([1.0, -1.0, 0.5]))
        >>> probs.shape, [round(v, 4) for v in transform.inv(probs).tolist()]
        (torch.Size([4]), [1.0, -1.0, 0.5])
    """

    bijective = True

    def _call(self, x: Tensor) -> Tensor:
        return sigmoid_topk(pad(x, (0, 1)), self.k)

    def _inverse(self, y: Tensor) -> Tensor:
        x = torch.logit(y)
        return x[..., :-1] - x[..., -1:]

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """The logarithm of |∂y/∂x|, in the first n − 1 coordinates."""
        log_w = torch.log(y) + torch.log1p(-y)
        return log_w.sum(-1) - log_w.logsumexp(-1)

    def forward_shape(self, shape: torch.Size) -> torch.Size:
        """The shape with one more entry in the last dimension."""
        return torch.Size([*shape[:-1], shape[-1] + 1])

    def inverse_shape(self, shape: torch.Size) -> torch.Size:
        """The shape with one entry less in the last dimension."""
        return torch.Size([*shape[:-1], shape[-1] - 1])


def _shifted(constraint: Constraint) -> Transform:
    assert isinstance(constraint, capped_simplex)
    return SigmoidTopKTransform(constraint.k)


def _pinned(constraint: Constraint) -> Transform:
    assert isinstance(constraint, capped_simplex)
    return PinnedSigmoidTopKTransform(constraint.k)


transform_to.register(capped_simplex, _shifted)  # pyright: ignore[reportUnknownMemberType]
biject_to.register(capped_simplex, _pinned)  # pyright: ignore[reportUnknownMemberType]
