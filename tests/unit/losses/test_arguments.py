"""Arguments of the wrong kind are refused by the loss or the metric that was called, by name."""

import warnings

import numpy as np
import pytest
import torch

import khot
from khot import losses, metrics

SCORES = torch.tensor([[2.0, 0.0, 1.0, -1.0], [0.5, 0.25, 0.75, 0.0]])
TARGET = torch.tensor([[1.0, 0.0, 1.0, 0.0], [0.0, 1.0, 0.0, 1.0]])
INDICES = torch.tensor([0, 1])

LOSSES = {
    "fenchel_young_loss": losses.fenchel_young_loss,
    "topk_cross_entropy": lambda x, target, **settings: losses.topk_cross_entropy(x, target, 2, **settings),
    "recall_loss": lambda x, target, **settings: losses.recall_loss(x, target, 2, **settings),
    "ndcg_loss": losses.ndcg_loss,
    "spearman_loss": losses.spearman_loss,
}
METRICS = {
    "recall_at_k": lambda x, target, **settings: metrics.recall_at_k(x, target, 2, **settings),
    "precision_at_k": lambda x, target, **settings: metrics.precision_at_k(x, target, 2, **settings),
    "hit_rate": lambda x, target, **settings: metrics.hit_rate(x, target, 2, **settings),
    "mrr": metrics.mrr,
    "ndcg_at_k": lambda x, target, **settings: metrics.ndcg_at_k(x, target, 2, **settings),
    "topk_overlap": lambda x, target, **settings: metrics.topk_overlap(target, x, 2, **settings),
    "weight_on_topk": lambda x, target, **settings: metrics.weight_on_topk(target, x, 2, **settings),
}
FUNCTIONS = LOSSES | METRICS


with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # one kind is a prototype, the other deprecated
    NESTED = torch.nested.nested_tensor([torch.ones(4), torch.ones(3)])
    QUANTIZED = torch.quantize_per_tensor(TARGET, 0.1, 0, torch.quint8)


def of_another_kind():
    return {
        "sparse": TARGET.to_sparse(),
        "quantized": QUANTIZED,
        "float8": TARGET.to(torch.float8_e4m3fn),
        "complex": TARGET.to(torch.complex64),
        "nested": NESTED,
        "elsewhere": TARGET.to("meta"),
        "list": TARGET.tolist(),
        "text": "a",
        "nothing": None,
    }


@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("kind", of_another_kind())
def test_a_target_is_a_dense_real_tensor_beside_the_scores(name, kind):
    with pytest.raises((TypeError, ValueError), match=f"^{name}: (target|relevance|weights) must .*, got "):
        FUNCTIONS[name](SCORES, of_another_kind()[kind])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_scores_are_dense(name):
    with pytest.raises(TypeError, match=f"^{name}: scores must be dense, got a nested tensor"):
        FUNCTIONS[name](NESTED, TARGET)


@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name != "topk_cross_entropy"])
@pytest.mark.parametrize("kind", ["sparse", "elsewhere"])
def test_a_mask_is_dense_and_beside_the_scores(name, kind):
    mask = {"sparse": TARGET.bool().to_sparse(), "elsewhere": TARGET.bool().to("meta")}[kind]
    rule = {
        "sparse": "be dense, got torch.sparse_coo",
        "elsewhere": "be on the device of the scores, cpu, got",
    }
    with pytest.raises((TypeError, ValueError), match=f"^{name}: mask must {rule[kind]}"):
        FUNCTIONS[name](SCORES, TARGET, mask=mask)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize(
    ("temperature", "error"),
    [
        (torch.ones(3), ValueError),
        (torch.ones((), device="meta"), ValueError),
        (torch.ones(2).to_sparse(), TypeError),
        (10**400, ValueError),
        (None, TypeError),
    ],
)
def test_a_wrong_temperature_is_refused_by_the_loss(name, temperature, error):
    with pytest.raises(error, match=f"^{name}: temperature must "):
        LOSSES[name](SCORES, TARGET, temperature=temperature)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda: losses.recall_loss(SCORES, TARGET, torch.ones(3)), "recall_loss: k must broadcast"),
        (
            lambda: khot.calibrate_temperature(SCORES, torch.ones(3), entropy=0.5),
            "calibrate_temperature: k must broadcast",
        ),
        (lambda: metrics.precision_at_k(SCORES, TARGET, None), "precision_at_k: k must be an integer, got"),
        (lambda: metrics.mrr(SCORES, TARGET, "a"), "mrr: k must be an integer, got 'a'"),
        (lambda: losses.ndcg_loss(SCORES, TARGET, gain=np.array(["a", "b"])), "ndcg_loss: gain must be"),
        (
            lambda: losses.spearman_loss(SCORES, TARGET, regularization=np.array(["l2", "kl"])),
            "spearman_loss: regularization must be",
        ),
        (
            lambda: losses.spearman_loss(SCORES, TARGET, reduction=np.array(["mean", "sum"])),
            "spearman_loss: reduction must be",
        ),
    ],
)
def test_other_arguments_are_named_too(function, message):
    with pytest.raises((TypeError, ValueError), match=f"^{message}"):
        function()


@pytest.mark.parametrize("ignore", [None, "a", [2], True, 1.5])
def test_an_ignored_index_is_an_integer(ignore):
    for name, make in (
        ("topk_cross_entropy", lambda: LOSSES["topk_cross_entropy"](SCORES, INDICES, ignore_index=ignore)),
        ("TopKCrossEntropy", lambda: losses.TopKCrossEntropy(2, ignore_index=ignore)),
    ):
        with pytest.raises(TypeError, match=f"^{name}: ignore_index must be an integer, got "):
            make()


@pytest.mark.parametrize("k", [[True], "1", [None, 1.0], ["1"]])
def test_probabilities_of_k_are_numbers(k):
    with pytest.raises(TypeError, match=r"^topk_cross_entropy: k must be an integer or a sequence"):
        losses.topk_cross_entropy(SCORES, INDICES, k)


@pytest.mark.parametrize("dim", [None, "0", (0, 1), True, 1.5])
@pytest.mark.parametrize(
    "make",
    [
        losses.FenchelYoungLoss,
        losses.NDCGLoss,
        losses.SpearmanLoss,
        lambda **settings: losses.RecallLoss(2, **settings),
    ],
)
def test_a_module_checks_its_dimension_when_it_is_made(make, dim):
    with pytest.raises(TypeError, match=r"^\w+Loss: dim must be an integer, got"):
        make(dim=dim)
