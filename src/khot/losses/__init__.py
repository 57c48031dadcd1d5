"""Losses built on the relaxations; each as a function and as a module.

fenchel_young_loss, FenchelYoungLoss      scores should select the target; gradient y − target
topk_cross_entropy, TopKCrossEntropy      a classifier's label should be among its k largest logits
recall_loss, RecallLoss                   the relevant entries should be among the k largest scores
ndcg_loss, NDCGLoss                       more relevant entries should rank higher
spearman_loss, SpearmanLoss               scores should have the same order as a target
"""

from khot.losses.fenchel_young import FenchelYoungLoss, fenchel_young_loss
from khot.losses.ndcg import NDCGLoss, ndcg_loss
from khot.losses.recall import RecallLoss, recall_loss
from khot.losses.spearman import SpearmanLoss, spearman_loss
from khot.losses.topk_cross_entropy import TopKCrossEntropy, topk_cross_entropy

__all__ = [
    "FenchelYoungLoss",
    "NDCGLoss",
    "RecallLoss",
    "SpearmanLoss",
    "TopKCrossEntropy",
    "fenchel_young_loss",
    "ndcg_loss",
    "recall_loss",
    "spearman_loss",
    "topk_cross_entropy",
]
