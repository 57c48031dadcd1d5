"""Expert choice against sorting by hand."""

import pytest
import torch

import khot
from khot.apps.moe import ExpertChoiceRouter


def made(**options):
    torch.manual_seed(0)
    router = ExpertChoiceRouter(6, 4, **options)
    torch.nn.init.normal_(router.weight)
    return router


X = torch.randn(10, 6, generator=torch.Generator().manual_seed(1))


def test_each_expert_takes_its_best_tokens():
    logits, weights, indices = made(capacity=3)(X)
    probs = logits.softmax(-1)
    for e in range(4):
        best = sorted(range(10), key=lambda t, e=e: -probs[t, e].item())[:3]
        assert indices[e].tolist() == best
        assert torch.equal(weights[e], probs[best, e])


@pytest.mark.parametrize(("factor", "take"), [(1.0, 3), (2.0, 5), (0.01, 1), (100.0, 10)])
def test_the_capacity_of_a_factor(factor, take):
    assert made(capacity_factor=factor)(X).weights.shape == (4, take)


@pytest.mark.parametrize("routing", ["topk", "sigmoid_topk", "straight_through", "sparse"])
def test_padding_is_never_taken(routing):
    mask = torch.arange(10) % 5 == 0
    router = made(capacity=4, routing=routing)
    _, weights, indices = router(X, mask)
    assert (weights[:, 2:] == 0).all()  # two real tokens for four places
    assert mask[indices[:, :2]].all()
    weights.sum().backward()
    assert not router.weight.grad.isnan().any()
    assert (router(X, mask * 0).weights == 0).all()


def test_soft_weights():
    router = made(capacity=3, routing="sigmoid_topk", temperature=0.5)
    logits, weights, indices = router(X)
    dense = khot.sigmoid_topk(logits.T, 3, temperature=0.5)
    torch.testing.assert_close(weights, dense.gather(1, indices))


def test_float32_under_autocast():
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = made(capacity=3)(X)
    assert torch.equal(inside.logits, made(capacity=3)(X).logits)


def test_errors():
    with pytest.raises(ValueError, match=r"the last dimension 6, got the shape \(5, 7\)"):
        made(capacity=1)(torch.zeros(5, 7))
    with pytest.raises(ValueError, match="hidden must be at least 1, got 0"):
        ExpertChoiceRouter(0, 4, 1.0)
    for options, message in (
        ({}, "give capacity_factor or capacity"),
        ({"capacity": 0}, "ExpertChoiceRouter: capacity must be at least 1, got 0"),
        (
            {"capacity": 2, "score": "relu"},
            "score must be 'softmax', 'sigmoid' or 'sqrtsoftplus', got 'relu'",
        ),
        ({"capacity": 2, "routing": "sampled"}, r"routing must be 'topk', .* or 'sparse', got 'sampled'"),
        ({"capacity": 2, "temperature": 2.0}, "routing='topk' has no temperature"),
    ):
        with pytest.raises(ValueError, match=message):
            made(**options)
