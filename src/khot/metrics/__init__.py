"""How good a selection is: one number per row.

A soft selection against the exact one:

topk_overlap      the share of the true top k that is among the k largest weights
weight_on_topk    the share of the budget that lies on the true top k
entropy           how undecided k-hot weights are
nccs              how near k approximate vectors come to the k true ones

A ranking by scores against what is relevant:

recall_at_k       the share of the relevant entries that is among the k largest scores
precision_at_k    the share of the k places that holds a relevant entry
hit_rate          whether one of the k places does
mrr               one over the rank of the first relevant entry
ndcg_at_k         the gain of the k places, discounted by rank, over the largest possible
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
