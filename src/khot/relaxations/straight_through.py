"""Straight-through: the value of one tensor with the gradient of another."""

from __future__ import annotations

from torch import Tensor

from khot.relaxations._plain_arguments import check_tensor

__all__ = ["straight_through"]


def straight_through(soft: Tensor, hard: Tensor) -> Tensor:
    r"""Return exactly ``hard``, with the gradient of ``soft``.

    .. math:: \mathrm{hard} + (\mathrm{soft} - \mathrm{stop}(\mathrm{soft}))

    The term in brackets is exactly zero for finite ``soft``, so the value is ``hard`` to the last bit. Cost:
    elementwise.

    Args:
        soft: the differentiable relaxation.
        hard: the value to return, of the same shape; its own gradient is dropped.

    Returns:
        A tensor equal to ``hard`` that differentiates like ``soft``.

    Example:
        >>> import torch
        >>> p = torch.tensor([0.2, 0.8], requires_grad=True)
        >>> y = straight_through(p, p.round())
        >>> y.tolist()
        [0.0, 1.0]
        >>> torch.autograd.grad(y[0], p)[0].tolist()
        [1.0, 0.0]

    Reference: Bengio, Léonard & Courville (2013), arXiv:1308.3432.
    """
    check_tensor("straight_through", "soft", soft)
    check_tensor("straight_through", "hard", hard)
    if soft.shape != hard.shape:
        raise ValueError(
            f"straight_through: soft and hard must have one shape, "
            f"got {tuple(soft.shape)} and {tuple(hard.shape)}"
        )
    return hard.detach() + (soft - soft.detach())
