"""The layer to start with: any relaxation, with a temperature and a budget that can be learned."""

from __future__ import annotations

import torch
from torch import Tensor

from khot.nn._relaxed import RelaxedLayer
from khot.relaxations.facade import topk

__all__ = ["TopK"]


class TopK(RelaxedLayer):
    r"""K-hot weights of scores by any relaxation, as a layer; see :func:`khot.topk`.

    Temperature and learned budget are float32 state that ``state_dict`` saves; a fixed k is saved beside
    them, and loading into a layer with another one is an error. A learned budget stays in (0, k_max) as
    :math:`k = k_{\max}\,\sigma(\kappa)`.

    Args:
        k: how many, or the starting value if it is learned.
        method: the relaxation, by name or as a :class:`khot.relaxations.Relaxation`.
        temperature: > 0, or its starting value if it is learned; by default 1. Assign to
            ``layer.temperature`` to anneal it, as :class:`khot.schedules.TemperatureScheduler` does.
        learn_temperature: make the temperature a parameter.
        learn_k: make the budget a parameter (methods with real k); needs ``k_max``. Train it with
            ``hard=True``: with soft gates the slope undoes the gate and the budget collapses.
        k_max: the largest budget that can be learned, > k.
        calibrate: in place of ``temperature``: the share of the weight that is to lie on the top k, as 0.9.
            The temperature is set once, by the scores of the first training batch, and saved. Those of an
            untrained scorer are often too small: prefer :meth:`calibrate_` with scores of a trained one.
        eval_mode: what ``eval()`` changes. ``"same"``: randomness is gone, nothing else; ``"hard"``: exactly
            round(k) are selected; ``"random"``: a random method goes on drawing.
        hard: exact hard top-k forward, the relaxation's gradient backward.
        dim: the dimension along which to select.
        largest: False selects the smallest scores.
        at_most: a ``k`` above n selects all, instead of an error.
        options: of the method, and ``capped``.

    Example:
        >>> layer = TopK(2, temperature=0.5)
        >>> layer(torch.tensor([[4.0, 1.0, 3.0, 2.0]])).sum(-1)
        tensor([2.])
        >>> layer.selected(torch.tensor([[4.0, 1.0, 3.0, 2.0]]))
        tensor([[0, 2]])
        >>> TopK(2, learn_k=True, k_max=4, learn_temperature=True)
        TopK(k=2 (learned, k_max=4), method='sigmoid', temperature=1 (learned), dim=-1, hard=False)
    """

    def forward(
        self, scores: Tensor, mask: Tensor | None = None, *, generator: torch.Generator | None = None
    ) -> Tensor:
        """The k-hot weights of ``scores``; ``mask`` is True where an entry may be selected.

        ``generator`` is where the noise of a random method comes from.
        """
        method, settings = self._now(scores, mask, generator)
        k = self.k
        if settings["hard"] and isinstance(k, float):  # eval_mode="hard": a tensor is rounded, a number not
            k = torch.tensor(k, device=scores.device)
        return topk(scores, k, method, **settings)
