"""Losses built on the relaxations; each as a function and as a module.

fenchel_young_loss, FenchelYoungLoss      how far scores are from selecting a target; gradient y − target
topk_cross_entropy, TopKCrossEntropy      a classifier's label should be among its k largest logits
"""

from khot.losses.fenchel_young import FenchelYoungLoss, fenchel_young_loss
from khot.losses.topk_cross_entropy import TopKCrossEntropy, topk_cross_entropy

__all__ = ["FenchelYoungLoss", "TopKCrossEntropy", "fenchel_young_loss", "topk_cross_entropy"]
