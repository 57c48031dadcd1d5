"""The layer to start with: any relaxation; temperature and k can be learned."""

from __future__ import annotations

import torch
from torch import Tensor

from khot.nn._relaxed import RelaxedLayer
from khot.relaxations.facade import topk

__all__ = ["TopK"]


class TopK(RelaxedLayer):
    r"""K-hot weights of scores by any relaxation, as a layer; see :func:`khot.topk`.

    ``state_dict`` saves the temperature and a learned budget as float32. It saves a fixed k too, and loading
    into a layer with another k is an error. A learned budget stays in (0, k_max):
    :math:`k = k_{\max}\,\sigma(\kappa)`.

    Args:
        k: how many entries to select, or the starting value if it is learned.
        method: the relaxation, by name or as a :class:`khot.relaxations.Relaxation`.
        temperature: > 0, or its starting value if it is learned; by default 1. Assign to
            ``layer.temperature`` to anneal it, as :class:`khot.schedules.TemperatureScheduler` does.
        learn_temperature: make the temperature a parameter.
        learn_k: make the budget a parameter (methods with real k); needs ``k_max``. Train it with
            ``hard=True``: with soft gates the following layer can scale up small gates again, and the
            budget collapses.
        k_max: the largest budget that can be learned, > k.
        calibrate: use this instead of ``temperature``: the share of the weight, such as 0.9, that should lie
            on the top k. The layer sets its temperature once, from the scores of the first training batch,
            and saves it. Scores of an untrained model are often too small: prefer :meth:`calibrate_` with
            scores of a trained model.
        eval_mode: what ``eval()`` changes. ``"same"``: it removes randomness, nothing else; ``"hard"``: it
            selects exactly round(k) entries; ``"random"``: a random method keeps drawing.
        hard: exact hard top-k forward, the relaxation's gradient backward.
        dim: the dimension along which to select.
        largest: False selects the smallest scores.
        at_most: accept a ``k`` above n, and select all entries.
        options: further options of the method, and ``capped``.

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

        ``generator`` is the source of a random method's noise.
        """
        method, settings = self._now(scores, mask, generator)
        k = self.k
        if settings["hard"] and isinstance(k, float):  # eval_mode="hard": a tensor is rounded, a number not
            k = torch.tensor(k, device=scores.device)
        return topk(scores, k, method, **settings)
