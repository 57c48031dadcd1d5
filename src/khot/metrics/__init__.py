"""Metrics for selections and rankings: one number per row.

A soft selection against the exact one:

topk_overlap      share of the true top k that is among the k largest weights
weight_on_topk    share of the budget that lies on the true top k
entropy           how soft k-hot weights are
nccs              how close k approximate vectors are to the k true ones

A ranking by scores against the relevant entries:

recall_at_k       share of the relevant entries that are among the k largest scores
precision_at_k    share of the k largest scores that are relevant
hit_rate          whether any of the k largest scores is relevant
mrr               one over the rank of the first relevant entry
ndcg_at_k         discounted gain of the k largest scores, relative to the best possible
"""

from khot.metrics.retrieval import hit_rate, mrr, ndcg_at_k, precision_at_k, recall_at_k
from khot.metrics.selection import entropy, nccs, topk_overlap, weight_on_topk

__all__ = [
    "entropy",
    "hit_rate",
    "mrr",
    "nccs",
    "ndcg_at_k",
    "precision_at_k",
    "recall_at_k",
    "topk_overlap",
    "weight_on_topk",
]
