"""The layers of the random operators. In evaluation they are not random: see ``eval_mode``."""

from __future__ import annotations

from typing import Any

from khot.nn.topk import TopK
from khot.relaxations._noise import Noise

__all__ = ["GumbelTopK", "PerturbedTopK"]


class GumbelTopK(TopK):
    """Gumbel top-k as a layer; see :func:`khot.gumbel_topk`. In evaluation it is sigmoid top-k: no noise.

    Args:
        k: how many.
        settings: further arguments of :class:`TopK`; the temperature is that of the relaxation, not of the
            noise.

    Example:
        >>> layer = GumbelTopK(2, hard=True)
        >>> layer(torch.zeros(3, 5), generator=torch.Generator().manual_seed(0)).sum(-1)
        tensor([2., 2., 2.])
        >>> layer.eval()(torch.tensor([3.0, 1.0, 2.0]))
        tensor([1., 0., 1.])
    """

    def __init__(self, k: int, **settings: Any) -> None:
        super().__init__(k, "gumbel", **settings)


class PerturbedTopK(TopK):
    """Perturbed top-k as a layer; see :func:`khot.perturbed_topk`. In evaluation its noise is fixed.

    Args:
        k: how many.
        samples: how many hard selections to average, at least 2.
        noise: ``"normal"`` or ``"gumbel"``.
        settings: further arguments of :class:`TopK`; the temperature is the scale of the noise.

    Example:
        >>> layer = PerturbedTopK(2, samples=64, temperature=0.1)
        >>> layer(torch.zeros(3, 5), generator=torch.Generator().manual_seed(0)).sum(-1)
        tensor([2., 2., 2.])
    """

    def __init__(self, k: int, *, samples: int = 100, noise: Noise = "normal", **settings: Any) -> None:
        super().__init__(k, "perturbed", samples=samples, noise=noise, **settings)
