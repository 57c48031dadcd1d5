"""Top-k cross entropy: a classifier's label should be among its k largest logits.

    L(x, l) = −log Σ_k P(k) y_l(x; k),

with y(x; k) the weights of a relaxed top-k, and P a distribution over k: one fixed k, or for example half
top-1 and half top-5. Cost: one evaluation of the operator for each k with P(k) > 0. Reference: Petersen,
Kuehne, Borgelt & Deussen (2022), Differentiable Top-k Classification Learning.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from khot.kernels.availability import has_values
from khot.losses._reduction import Reduction, check_reduction, reduced
from khot.relaxations._arguments import (
    Number,
    check_device,
    check_per_row,
    check_temperature,
    compute_dtype,
    per_row,
    position,
)
from khot.relaxations._plain_arguments import check_integer, check_real, is_integer, is_number
from khot.relaxations._temperature import divided, within_range, without_overflow
from khot.relaxations.facade import checked_options, topk
from khot.relaxations.hard import hard_topk
from khot.relaxations.registry import Relaxation, get
from khot.relaxations.threshold.sigmoid import sigmoid_topk

__all__ = ["TopKCrossEntropy", "topk_cross_entropy"]

_LEAST_INDEX = -(2**63)
_NAME = "topk_cross_entropy"


def topk_cross_entropy(
    scores: Tensor,
    target: Tensor,
    k: int | Sequence[float] = 5,
    *,
    method: str | Relaxation = "sigmoid",
    temperature: Number | Tensor = 1.0,
    ignore_index: int = -100,
    reduction: Reduction = "mean",
    **options: Any,
) -> Tensor:
    r"""Cross entropy of the event that the label is among the k largest logits.

    .. math:: L = -\log \sum_k P(k)\, y_l(x; k)

    with l the label and y(x; k) the weights of a relaxed top-k. Shapes are those of
    ``torch.nn.functional.cross_entropy``. Cost: one evaluation of the operator for each k with P(k) > 0.

    Args:
        scores: a classifier's logits, of shape (C), (N, C) or (N, C, d₁, …). Half types are computed in
            float32.
        target: class indices of shape (), (N) or (N, d₁, …), integers. For multiple labels: booleans, or
            floats 0 and 1, of the shape of ``scores``; the loss is then the mean over the labels that are
            set.
        k: the label counts as a hit if it is among the k largest; or the probabilities of k = 1, 2, …, which
            sum to 1: ``[0.5, 0, 0, 0, 0.5]`` is half top-1, half top-5.
        method: the relaxation.
        temperature: > 0.
        ignore_index: targets with this value are ignored.
        reduction: ``"mean"`` (over targets that are not ignored), ``"sum"`` or ``"none"``.
        options: further options of the method.

    Returns:
        The loss: a scalar, or of the shape of the class indices with ``reduction="none"``.

    Example:
        >>> logits = torch.tensor([[4.0, 3.0, 0.0, 0.0], [0.0, 0.0, 3.0, 4.0]])
        >>> loss = topk_cross_entropy(logits, torch.tensor([1, 0]), k=2, reduction="none")
        >>> [round(v, 2) for v in loss.tolist()]
        [0.24, 1.87]

    Reference: Petersen, Kuehne, Borgelt & Deussen (2022), Differentiable Top-k Classification Learning.
    """
    name = _NAME
    check_reduction(name, reduction)
    check_temperature(name, temperature)
    checked_options(name, get(method, name), options)
    classes = min(position(name, scores, -1), 1)
    logits = scores.movedim(classes, -1).to(compute_dtype(scores))
    budgets = _budgets(name, k, logits.shape[-1])
    check_per_row(name, "temperature", logits, temperature, logits.dim() - 1)
    check_integer(name, "ignore_index", ignore_index, _LEAST_INDEX)
    check_real(name, "target", target)
    check_device(name, scores, "target", target)
    if target.is_floating_point() or target.dtype == torch.bool:
        labels = _labels(name, target, scores).movedim(classes, -1)
        counts = labels.any(-1)
    else:
        counts = target != ignore_index
        _check_indices(name, target, counts, logits)
        labels = None
    log_hit = torch.stack(
        [math.log(p) + log_weights(logits, n, method, temperature, options) for n, p in budgets.items()]
    ).logsumexp(0)
    if labels is None:
        chosen = torch.where(counts, target, 0).long().unsqueeze(-1)
        losses = -log_hit.gather(-1, chosen).squeeze(-1)
    else:
        losses = -torch.where(labels, log_hit, 0).sum(-1) / labels.sum(-1).clamp_min(1)
    return reduced(losses, reduction, counts).to(scores.dtype)


class TopKCrossEntropy(nn.Module):
    """:func:`khot.losses.topk_cross_entropy` as a module.

    Args:
        k: the label counts as a hit if it is among the k largest; or the probabilities of k = 1, 2, …, which
            sum to 1.
        method: the relaxation.
        temperature: > 0.
        ignore_index: targets with this value are ignored.
        reduction: ``"mean"`` (over targets that are not ignored), ``"sum"`` or ``"none"``.
        options: further options of the method.

    Example:
        >>> criterion = TopKCrossEntropy(k=[0.5, 0.5])
        >>> criterion(torch.zeros(3, 4), torch.tensor([0, 1, -100])).item()  # -log(1/2 · 1/4 + 1/2 · 2/4)
        0.9808...
    """

    def __init__(
        self,
        k: int | Sequence[float] = 5,
        *,
        method: str | Relaxation = "sigmoid",
        temperature: float = 1.0,
        ignore_index: int = -100,
        reduction: Reduction = "mean",
        **options: Any,
    ) -> None:
        super().__init__()
        check_reduction("TopKCrossEntropy", reduction)
        check_temperature("TopKCrossEntropy", temperature)
        _budgets("TopKCrossEntropy", k, None)
        check_integer("TopKCrossEntropy", "ignore_index", ignore_index, _LEAST_INDEX)
        checked_options("TopKCrossEntropy", get(method, "TopKCrossEntropy"), options)
        self.k = k
        self.method = method
        self.temperature = temperature
        self.ignore_index = ignore_index
        self.reduction: Reduction = reduction
        self.options = options

    def forward(self, scores: Tensor, target: Tensor) -> Tensor:
        """The loss of logits ``scores`` for ``target``: class indices, or multi-label targets."""
        return topk_cross_entropy(
            scores,
            target,
            self.k,
            method=self.method,
            temperature=self.temperature,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            **self.options,
        )

    def extra_repr(self) -> str:
        """Show the settings."""
        options = "".join(f", {key}={value!r}" for key, value in self.options.items())
        return (
            f"k={self.k}, method={get(self.method).name!r}, temperature={self.temperature:g}, "
            f"ignore_index={self.ignore_index}, reduction={self.reduction!r}{options}"
        )


def log_weights(
    x: Tensor, k: int, method: str | Relaxation, temperature: Number | Tensor, options: dict[str, Any]
) -> Tensor:
    """The logarithms of the weights; for ``"sigmoid"`` they are right even where a weight underflows."""
    y = topk(x, k, method, temperature=temperature, **options)
    allowed = x != -math.inf
    if get(method).weights is not sigmoid_topk:  # not its name: a copied object is another
        y = y.clamp_min(2.0**20 * torch.finfo(y.dtype).tiny)  # so that a derivative over y is in range
        near = y.detach()  # 1/y² may overflow; the derivatives of y/y*, which is 1, do not
        return torch.where(allowed, near.log() + (y / near).log(), -math.inf)
    saturated = allowed.sum(-1, keepdim=True) <= k
    tau = per_row(_NAME, "temperature", x, within_range(temperature, x.dtype), x.dim() - 1)
    largest = x.detach().amax(-1, keepdim=True).clamp_min(torch.finfo(x.dtype).min)
    halves = torch.where(allowed, x / 2 - largest / 2, 0)  # the difference of two scores may overflow
    z = 2 * divided(halves, without_overflow(tau, halves))
    z = torch.where(allowed & ~saturated, z, -math.inf)
    log_weights = nn.functional.logsigmoid(torch.where(z == -math.inf, 0, z) + _offset(z, x, y, k))
    return torch.where(allowed, torch.where(saturated, 0, log_weights), -math.inf)


def _offset(z: Tensor, x: Tensor, y: Tensor, k: int) -> Tensor:
    """e such that the weights are σ(z + e), (…, 1).

    From a weight that has digits: one up to ½, or not too near to 1. Where the whole row is nearly hard, from
    the balance of the two tails: Σ e^{z + e} over those not selected is Σ e^{−z − e} over those selected.
    """
    with torch.no_grad():
        digits = torch.where(y <= 0.5, y, torch.where(y < 0.99, 1 - y, 0))
        digits = torch.where(z > -math.inf, digits, 0)
        nearest = digits.argmax(-1, keepdim=True)
        # Of smaller tails the balance is right up to rounding; derivatives of the logit may overflow.
        has_digits = digits.sum(-1, keepdim=True) > torch.finfo(y.dtype).eps / 4
        chosen = hard_topk(x, k).bool()
    usable = z.gather(-1, nearest)
    usable = torch.where(usable == -math.inf, 0, usable)
    direct = torch.logit(torch.where(has_digits, y.gather(-1, nearest), 0.5)) - usable
    fill = torch.where(has_digits, 0.0, -math.inf)  # rows that do not need it stay finite
    up = torch.logsumexp(torch.where(chosen & (z > -math.inf), -z, fill), -1, keepdim=True)
    down = torch.logsumexp(torch.where(~chosen & (z > -math.inf), z, fill), -1, keepdim=True)
    balance = torch.where(up.isfinite() & down.isfinite(), (up - down) / 2, 0)
    return torch.where(has_digits, direct, balance)


def _budgets(name: str, k: int | Sequence[float], classes: int | None) -> dict[int, float]:
    """Probability by budget."""
    if is_integer(k):
        budgets = {int(cast("int", k)): 1.0}
    elif isinstance(k, Sequence) and all(map(is_number, k)):
        budgets = {n: float(p) for n, p in enumerate(k, 1) if p != 0}
        if any(not p > 0 for p in budgets.values()) or not math.isclose(
            sum(budgets.values()), 1, abs_tol=1e-6
        ):
            raise ValueError(
                f"{name}: the probabilities of k must not be negative and sum to 1, got {list(k)}"
            )
    else:
        raise TypeError(
            f"{name}: k must be an integer or a sequence of the probabilities of k = 1, 2, …, got {k!r}"
        )
    if min(budgets) < 1 or (classes is not None and max(budgets) > classes):
        limit = "" if classes is None else f" <= {classes} classes"
        raise ValueError(f"{name}: k must satisfy 1 <= k{limit}, got {min(budgets)} to {max(budgets)}")
    return budgets


def _labels(name: str, target: Tensor, scores: Tensor) -> Tensor:
    """Which labels are set, of a multi-label target."""
    if target.shape != scores.shape:
        raise ValueError(
            f"{name}: a multi-label target must have the shape of scores, {tuple(scores.shape)}, "
            f"got {tuple(target.shape)}"
        )
    labels = target != 0
    if has_values() and target.is_floating_point() and not target.is_meta:
        other = target[labels & (target != 1)]
        if other.numel():
            raise ValueError(
                f"{name}: a multi-label target must be 0 or 1, got {other[0].item():g}; "
                "for soft targets there is fenchel_young_loss"
            )
    return labels


def _check_indices(name: str, target: Tensor, counts: Tensor, logits: Tensor) -> None:
    if target.shape != logits.shape[:-1]:
        raise ValueError(
            f"{name}: target must have shape {tuple(logits.shape[:-1])} (class indices) or that of scores "
            f"(multi-label, float or bool), got {tuple(target.shape)}"
        )
    if not has_values() or target.is_meta or not bool(counts.any()):
        return
    low, high = target[counts].aminmax()
    if low < 0 or high >= logits.shape[-1]:
        raise ValueError(
            f"{name}: target must be in [0, {logits.shape[-1] - 1}] or ignore_index, "
            f"got values in [{low.item()}, {high.item()}]"
        )
