"""The layers of the threshold family: k may be any real number and can be learned."""

from __future__ import annotations

from typing import Any

from khot.nn.topk import TopK

__all__ = ["LaplaceTopK", "NormalTopK", "SigmoidTopK", "SparseTopK"]


class SigmoidTopK(TopK):
    r"""Sigmoid top-k as a layer; see :func:`khot.sigmoid_topk`.

    Args:
        k: the budget, or its starting value if it is learned.
        settings: further arguments of :class:`TopK`.

    Example:
        >>> layer = SigmoidTopK(2, temperature=0.5)
        >>> layer(torch.tensor([[4.0, 1.0, 3.0, 2.0]])).sum(-1)
        tensor([2.])
        >>> learned = SigmoidTopK(2, learn_k=True, k_max=4, learn_temperature=True)
        >>> sorted(name for name, _ in learned.named_parameters())
        ['kappa', 'log_temperature']
    """

    def __init__(self, k: float, **settings: Any) -> None:
        super().__init__(k, "sigmoid", **settings)


class LaplaceTopK(TopK):
    r"""Laplace top-k as a layer; see :func:`khot.laplace_topk`.

    Args:
        k: the budget, or its starting value if it is learned.
        settings: further arguments of :class:`TopK`.

    Example:
        >>> LaplaceTopK(2, temperature=0.5)(torch.tensor([[4.0, 1.0, 3.0, 2.0]])).sum(-1)
        tensor([2.])
    """

    def __init__(self, k: float, **settings: Any) -> None:
        super().__init__(k, "laplace", **settings)


class NormalTopK(TopK):
    r"""Normal top-k as a layer; see :func:`khot.normal_topk`.

    Args:
        k: the budget, or its starting value if it is learned.
        settings: further arguments of :class:`TopK`.

    Example:
        >>> NormalTopK(2, temperature=0.5)(torch.tensor([[4.0, 1.0, 3.0, 2.0]])).sum(-1)
        tensor([2.])
    """

    def __init__(self, k: float, **settings: Any) -> None:
        super().__init__(k, "normal", **settings)


class SparseTopK(TopK):
    r"""Sparse top-k as a layer; see :func:`khot.sparse_topk`.

    Args:
        k: the budget, or its starting value if it is learned.
        norm: q in (1, 2]; 2 is the Euclidean projection on the capped simplex.
        settings: further arguments of :class:`TopK`.

    Example:
        >>> SparseTopK(2, norm=1.5)
        SparseTopK(k=2, temperature=1, dim=-1, hard=False, norm=1.5)
    """

    def __init__(self, k: float, *, norm: float = 2.0, **settings: Any) -> None:
        super().__init__(k, "sparse", norm=norm, **settings)
