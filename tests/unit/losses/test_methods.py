"""The method of a loss is a name or an object, as everywhere, with the same result."""

import copy
import dataclasses

import pytest
import torch

from khot.apps.neighbors import NeighborLoss
from khot.losses import FenchelYoungLoss, NDCGLoss, RecallLoss, TopKCrossEntropy
from khot.relaxations import get

SCORES = 30 * torch.randn(6, 8, generator=torch.Generator().manual_seed(0))
LABELS = torch.tensor([0, 1, 0, 1, 0, 1])
RELEVANCE = (torch.arange(48).view(6, 8) % 3 == 0).float()
LOSSES = {
    "fenchel_young": (FenchelYoungLoss, {}, RELEVANCE),
    "ndcg": (NDCGLoss, {"k": 3}, RELEVANCE),
    "recall": (RecallLoss, {"k": 3}, RELEVANCE),
    "topk_cross_entropy": (TopKCrossEntropy, {"k": 3}, LABELS),
    "neighbors": (NeighborLoss, {"k": 2}, LABELS),
}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("method", ["sigmoid", "laplace"])
def test_an_object_is_its_name(loss, method):
    """Also where sigmoid has a way of its own, which is right for weights that underflow."""
    kind, settings, target = LOSSES[loss]
    by_name, by_object = (kind(method=m, **settings) for m in (method, get(method)))
    assert torch.equal(by_name(SCORES, target), by_object(SCORES, target))
    assert repr(by_object) == repr(by_name)
    assert torch.equal(copy.deepcopy(by_object)(SCORES, target), by_name(SCORES, target))


def test_an_object_of_the_same_name_is_its_own():
    """A changed sigmoid does not take the way of khot's."""
    mine = dataclasses.replace(get("sigmoid"), weights=get("laplace").weights)
    kind, settings, target = LOSSES["topk_cross_entropy"]
    loss = kind(method=mine, **settings)(SCORES, target)
    assert torch.equal(loss, kind(method="laplace", **settings)(SCORES, target))
