r"""A loss over neighbours: the k nearest neighbours of a query, by a soft top-k, should have its label.

With distances :math:`d_{ij}` from query i to references j (without i itself), and
:math:`w_i` = top-k weights of :math:`-d_i` at temperature τ,

    share_i = Σ_j w_ij [label_j = label_i] / k,      loss_i = −log share_i  or  1 − share_i,

where k is at most the number of references with the label.

``"share"`` with ``method="neuralsort"`` is the loss of Grover et al. (2019), with ``method="sinkhorn"`` that
of Xie et al. (2020). With k = 1 and softmax instead of top-k, ``"log"`` would be NCA (Goldberger et al.
2004): there one neighbour with the right label is enough, here all k must have it. Queries are processed in
blocks, and blocks are recomputed in the backward pass, so that memory holds one block and the embeddings.
With more than one block there are no second derivatives.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any, Literal, cast, get_args

import torch
from torch import Tensor

from khot.apps.neighbors._graphless import graphless
from khot.apps.neighbors._nearness import Metric, blocks, nearness, unit_vectors
from khot.apps.neighbors._pairs import Pairs, pairs_of
from khot.losses._reduction import Reduction, check_reduction
from khot.losses.topk_cross_entropy import log_weights
from khot.nn._layer import whole_k
from khot.nn._tempered import Tempered
from khot.relaxations._arguments import check_temperature, compute_dtype
from khot.relaxations._plain_arguments import check_choice, check_switch
from khot.relaxations.facade import checked_options, topk
from khot.relaxations.registry import Relaxation, get

__all__ = ["NeighborLoss"]

Kind = Literal["log", "share"]


class NeighborLoss(Tempered):
    """The k nearest neighbours of an embedding should have its label.

    It is called like the losses of pytorch-metric-learning, and works with their miners and
    ``CrossBatchMemory``. Cost: distances between all queries and references and one top-k per query, in
    blocks. ``torch.compile`` has a graph break here, because how many neighbours are asked depends on the
    labels.

    Args:
        k: how many neighbours, an integer ≥ 1. For a query with fewer references of its label, k is reduced
            to their number, so that a loss of 0 is always possible.
        method: the relaxation of the top-k, a name in ``khot.relaxations.names()`` or a
            :class:`khot.relaxations.Relaxation`.
        temperature: > 0, in the units of the distances (0 to 4 if normalised and squared). It is float32
            state that is saved; a :class:`khot.schedules.TemperatureScheduler` can anneal it.
        learn_temperature: make the temperature a parameter.
        metric: ``"sqeuclidean"``, ``"euclidean"`` or ``"cosine"`` (one minus the cosine).
        normalize: divide embeddings by their norms first.
        loss: ``"log"``, minus the logarithm of the share of neighbours with the label, or ``"share"``, one
            minus the share.
        reduction: ``"mean"`` (over the queries that have a positive), ``"sum"``, or ``"none"``; queries
            without a positive have loss 0.
        block_size: queries per block; by default about four million distances per block.
        options: further options of the method.

    Example:
        >>> embeddings = torch.tensor([[0.0, 1.0], [0.1, 1.0], [1.0, 0.0], [1.0, 0.1]], requires_grad=True)
        >>> loss = NeighborLoss(k=1)(embeddings, torch.tensor([0, 0, 1, 1]))
        >>> loss.item() < 1e-3, NeighborLoss(k=1)(embeddings, torch.tensor([0, 1, 0, 1])).item() > 5
        (True, True)

    Reference: Grover, Wang, Zweig & Ermon (2019), Stochastic Optimization of Sorting Networks via Continuous
    Relaxations; Xie et al. (2020), Differentiable Top-k with Optimal Transport.
    """

    def __init__(
        self,
        k: int,
        *,
        method: str | Relaxation = "sigmoid",
        temperature: float = 0.1,
        learn_temperature: bool = False,
        metric: Metric = "sqeuclidean",
        normalize: bool = True,
        loss: Kind = "log",
        reduction: Reduction = "mean",
        block_size: int | None = None,
        **options: Any,
    ) -> None:
        name = type(self).__name__
        check_temperature(name, temperature)
        super().__init__(temperature, learn_temperature)
        if whole_k(name, k) < 1:
            raise ValueError(f"{name}: k must be at least 1, got {k}")
        check_switch(name, "normalize", normalize)
        check_choice(name, "metric", metric, get_args(Metric))
        check_choice(name, "loss", loss, get_args(Kind))
        check_reduction(name, reduction)
        if block_size is not None and (not isinstance(block_size, int) or block_size < 1):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"{name}: block_size must be an integer of at least 1, got {block_size}")
        checked_options(name, get(method, name), options)
        self.k, self.method, self.options = int(k), method, options
        self.metric: Metric = metric
        self.loss: Kind = loss
        self.reduction: Reduction = reduction
        self.normalize, self.block_size = normalize, block_size

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor | None = None,
        indices_tuple: Sequence[Tensor] | None = None,
        ref_emb: Tensor | None = None,
        ref_labels: Tensor | None = None,
    ) -> Tensor:
        """The loss of embeddings as queries.

        Args:
            embeddings: (n, d).
            labels: (n,), integers.
            indices_tuple: the result of a miner, pairs or triplets; then only these references compete.
            ref_emb: the references (m, d), among which neighbours are searched; by default the other
                embeddings.
            ref_labels: the labels (m,) of ``ref_emb``.

        Returns:
            A scalar, or (n,) with ``reduction="none"``; in the dtype of the embeddings, computed in at least
            float32.
        """
        name = type(self).__name__
        given = {"embeddings": embeddings, "labels": labels, "ref_emb": ref_emb, "ref_labels": ref_labels}
        for argument, tensor in given.items():
            if tensor is None and argument != "embeddings":
                continue
            if not isinstance(tensor, Tensor):
                raise TypeError(f"{name}: {argument} must be a tensor, got {type(tensor).__name__}")
        if embeddings.dim() != 2:
            raise ValueError(f"{name}: embeddings must be (n, d), got the shape {tuple(embeddings.shape)}")
        if not embeddings.is_floating_point():
            raise TypeError(f"{name}: embeddings must have a floating-point dtype, got {embeddings.dtype}")
        if ref_emb is None and ref_labels is not None:
            raise ValueError(f"{name}: ref_labels need ref_emb, got None")
        if ref_emb is not None and ref_emb.shape[1:] != embeddings.shape[1:]:
            raise ValueError(
                f"{name}: ref_emb must be (m, {embeddings.shape[1]}), got the shape {tuple(ref_emb.shape)}"
            )
        if ref_emb is not None and ref_labels is None and indices_tuple is None:
            raise ValueError(f"{name}: ref_emb needs ref_labels, got None")
        same = ref_emb is None or ref_emb is embeddings
        found = embeddings if ref_emb is None else ref_emb
        pairs = pairs_of(name, len(embeddings), len(found), same, labels, ref_labels, indices_tuple)
        dtype = compute_dtype(embeddings)
        queries, references = self._prepared(embeddings, dtype), self._prepared(found, dtype)
        temperature = torch.as_tensor(self._current_temperature(), dtype=dtype, device=queries.device)
        parts = list(blocks(len(queries), len(references), self.block_size))
        again = len(parts) > 1 and torch.is_grad_enabled() and not get(self.method, name).stochastic
        results: list[tuple[Tensor, Tensor]] = []
        for rows in parts:
            part = functools.partial(self._block, pairs, rows)
            inputs = queries[rows], references, temperature
            results.append(graphless(part, *inputs) if again else part(*inputs))
        if not results:
            losses, counted = queries.sum(-1), torch.zeros(0, dtype=torch.bool, device=queries.device)
        else:
            losses = torch.cat([part for part, _ in results])
            counted = torch.cat([part for _, part in results])
        return self._reduced(losses, counted).to(embeddings.dtype)

    def _prepared(self, points: Tensor, dtype: torch.dtype) -> Tensor:
        points = points.to(dtype)
        return unit_vectors(points) if self.normalize else points

    def _block(
        self, pairs: Pairs, rows: slice, queries: Tensor, references: Tensor, temperature: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The losses of some queries, and which of them have a positive to be near to."""
        allowed, positive = pairs.block(rows, queries.device)
        scores = nearness(queries, references, self.metric)
        asked = positive.sum(-1).clamp_max(self.k)
        counted = asked > 0
        scores = torch.where(allowed, scores, -math.inf)
        losses = 0 * queries.sum(-1)  # a graph also where nothing is asked
        values = cast("list[int]", asked[counted].unique().tolist())  # pyright: ignore[reportUnknownMemberType]
        for k in values:  # mostly one
            here = (asked == k).nonzero().squeeze(-1)
            losses = losses.index_put((here,), self._losses(scores[here], positive[here], k, temperature))
        return losses, counted

    def _losses(self, scores: Tensor, positive: Tensor, k: int, temperature: Tensor) -> Tensor:
        """The losses of queries that have at least k positives each."""
        if self.loss == "share":
            weights = topk(scores, k, self.method, temperature=temperature, **self.options)
            return 1 - torch.where(positive, weights, 0).sum(-1) / k
        logs = log_weights(scores, k, self.method, temperature, self.options)
        return math.log(k) - torch.where(positive, logs, -math.inf).logsumexp(-1)

    def _reduced(self, losses: Tensor, counted: Tensor) -> Tensor:
        if self.reduction == "none":
            return losses
        total = losses.sum()
        return total if self.reduction == "sum" else total / counted.sum().clamp_min(1)

    def extra_repr(self) -> str:
        """Show the settings."""
        return (
            f"k={self.k}, method={get(self.method).name!r}, {self._shown_temperature()}, "
            f"metric={self.metric!r}, normalize={self.normalize}, "
            f"loss={self.loss!r}, reduction={self.reduction!r}"
        )
