"""A target that is no target is refused by every loss, unless the mask hides it; so are unknown settings."""

import math

import pytest
import torch

from khot import losses

SCORES = torch.tensor([[2.0, 0.0, 1.0, -1.0]])
TARGET = torch.tensor([[1.0, 0.0, 1.0, 0.0]])

CALLS = {
    "fenchel_young_loss": lambda target, **settings: losses.fenchel_young_loss(SCORES, target, **settings),
    "topk_cross_entropy": lambda target, **settings: losses.topk_cross_entropy(SCORES, target, 2, **settings),
    "recall_loss": lambda target, **settings: losses.recall_loss(SCORES, target, 2, **settings),
    "ndcg_loss": lambda target, **settings: losses.ndcg_loss(SCORES, target, **settings),
    "spearman_loss": lambda target, **settings: losses.spearman_loss(SCORES, target, **settings),
}
MODULES = {
    "FenchelYoungLoss": losses.FenchelYoungLoss,
    "TopKCrossEntropy": lambda **settings: losses.TopKCrossEntropy(2, **settings),
    "RecallLoss": lambda **settings: losses.RecallLoss(2, **settings),
    "NDCGLoss": losses.NDCGLoss,
}
SELECTING = [*(name for name in CALLS if name != "spearman_loss"), *MODULES]


def with_value(value: float) -> torch.Tensor:
    target = TARGET.clone()
    target[0, 1] = value
    return target


def called(name: str, **settings: object) -> None:
    if name in MODULES:
        MODULES[name](**settings)
    else:
        CALLS[name](TARGET, **settings)


@pytest.mark.parametrize("name", CALLS)
def test_nan_is_no_target(name):
    with pytest.raises(ValueError, match=f"^{name}: .*(target|relevance) must"):
        CALLS[name](with_value(math.nan))


@pytest.mark.parametrize("name", ["recall_loss", "ndcg_loss", "spearman_loss"])
def test_what_takes_no_part_may_be_nan(name):
    mask = torch.tensor([[True, False, True, True]])
    assert torch.equal(CALLS[name](with_value(math.nan), mask=mask), CALLS[name](with_value(0.0), mask=mask))


@pytest.mark.parametrize("value", [0.5, -1.0, 2.0, math.inf])
def test_a_label_is_set_or_not(value):
    message = rf"topk_cross_entropy: a multi-label target must be 0 or 1, got {value:g}"
    with pytest.raises(ValueError, match=message):
        CALLS["topk_cross_entropy"](with_value(value))


def test_the_order_of_infinite_targets_is_one():
    infinite, finite = with_value(-math.inf), with_value(-1.0)
    assert torch.equal(CALLS["spearman_loss"](infinite), CALLS["spearman_loss"](finite))


@pytest.mark.parametrize("name", SELECTING)
def test_an_unknown_method_is_refused_by_all(name):
    with pytest.raises(ValueError, match=rf"^{name}: (unknown method|method must be) .*'nope'|got 'nope'"):
        called(name, method="nope")


@pytest.mark.parametrize("name", SELECTING)
def test_an_unknown_option_is_refused_by_all(name):
    with pytest.raises(TypeError, match=rf"^{name}: method 'sigmoid' has no option 'nope'"):
        called(name, nope=3)


@pytest.mark.parametrize("name", ["ndcg_loss", "NDCGLoss"])
def test_an_option_that_would_not_be_read_is_refused(name):
    with pytest.raises(TypeError, match=f"{name}: norm is an option of the selection, which there is with k"):
        called(name, method="sparse", norm=1.5)


@pytest.mark.parametrize("name", [*CALLS, *MODULES])
def test_an_unknown_reduction_is_refused_by_all(name):
    with pytest.raises(ValueError, match=f"^{name}: reduction must be 'none', 'mean' or 'sum', got 'max'"):
        called(name, reduction="max")
