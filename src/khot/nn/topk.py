"""The layer to start with: any relaxation, with a temperature and a budget that can be learned."""

from __future__ import annotations

import torch
from torch import Tensor

from khot.nn._evaluation import noise_free
from khot.nn._layer import SelectingLayer
from khot.relaxations.facade import topk
from khot.relaxations.hard import hard_topk
from khot.relaxations.straight_through import straight_through

__all__ = ["TopK"]


class TopK(SelectingLayer):
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
            Set once, from the scores of the first training batch, and saved; see :meth:`calibrate_`.
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
        """The k-hot weights of ``scores``; ``mask`` is True where an entry may be selected."""
        if not self._calibrated:
            self._first_batch(scores, mask)
        exact = not self.training and self.eval_mode == "hard"
        method, options = self._relaxation, dict(self.options)
        if method.stochastic:
            if self.training or self.eval_mode == "random":
                options["generator"] = generator
            else:
                method, options = noise_free(method, options, scores.device)
        soft = topk(
            scores,
            self.k,
            method,
            temperature=self._current_temperature(),
            hard=self.hard and not exact,
            dim=self.dim,
            mask=mask,
            largest=self.largest,
            at_most=self.at_most,
            **options,
        )
        return straight_through(soft, self._exact(scores, mask)) if exact else soft

    def _exact(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        k = self.k.detach() if isinstance(self.k, Tensor) else round(self.k)
        if self.at_most and not isinstance(k, Tensor):
            k = min(k, scores.shape[self.dim])
        return hard_topk(scores, k, dim=self.dim, mask=mask, largest=self.largest)
