"""khot.sample: one call for every design, by scores, probabilities or logits."""

import re
import warnings

import numpy as np
import pytest
import torch

import khot
from khot.designs import ConditionalPoisson, SimpleRandom, TreePivotal, get, names

OF_PROBS = [name for name in names() if "probs" in get(name).parameters]
OF_LOGITS = [name for name in names() if "logits" in get(name).parameters]


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


X = torch.randn(4, 6, 3, generator=seeded())


def calls(name, x=X, k=2, **options):
    """Every way to draw by a design."""
    given = {"scores": x, "probs": khot.sigmoid_topk(x, k, dim=options.get("dim", -1)), "logits": x}
    for argument in get(name).parameters:
        yield khot.sample(**{argument: given[argument]}, k=k, design=name, **options)


@pytest.mark.parametrize("name", names())
def test_every_design(name):
    for y in calls(name, dim=1, sample_shape=(5,)):
        assert y.shape == (5, 4, 6, 3)
        assert (y.sum(2) == 2).all()
        assert not y.requires_grad
    one, two = (list(calls(name, dim=1, generator=seeded(5))) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


@pytest.mark.parametrize("name", [name for name in OF_PROBS if get(name).exact_inclusion])
@pytest.mark.parametrize("argument", ["scores", "probs"])
def test_inclusion_is_that_of_sigmoid_topk(name, argument):
    """Also for conditional Poisson sampling, whose logits have another."""
    x = torch.linspace(-3, 3, 6)
    pi = khot.sigmoid_topk(x, 2)
    given = {"scores": x, "probs": pi}[argument]
    share = khot.sample(
        **{argument: given}, k=2, design=name, sample_shape=(20_000,), generator=seeded(1)
    ).mean(0)
    assert (share - pi).abs().max() < 0.018
    assert (ConditionalPoisson(2, logits=x).mean - pi).abs().max() > 0.02


@pytest.mark.parametrize("name", OF_LOGITS)
def test_logits(name):
    x = torch.linspace(-3, 3, 6)
    share = khot.sample(logits=x, k=2, design=name, sample_shape=(20_000,), generator=seeded(1)).mean(0)
    assert (share - get(name)(2, logits=x).mean).abs().max() < 0.018


def test_one_default_whatever_n():
    for n, k in ((5, 2), (2000, 700)):
        x = torch.randn(n, generator=seeded(3))
        named = khot.sample(x, k, design="random_tree_pivotal", generator=seeded(4))
        assert torch.equal(khot.sample(x, k, generator=seeded(4)), named)


def test_a_class_is_a_design():
    assert torch.equal(
        khot.sample(X, 2, design=TreePivotal, generator=seeded()),
        khot.sample(X, 2, design="tree_pivotal", generator=seeded()),
    )

    class Own(TreePivotal):
        pass

    assert khot.sample(X, 2, design=Own).sum() == 4 * 6 * 2


@pytest.mark.parametrize("name", names())
def test_mask(name):
    mask = torch.tensor([True, True, False, True, False, True])
    argument = "scores" if name in OF_PROBS else "logits"
    y = khot.sample(**{argument: torch.zeros(6)}, k=2, design=name, mask=mask, sample_shape=(200,))
    assert (y[:, ~mask] == 0).all()
    assert (y.sum(-1) == 2).all()
    assert (y.mean(0)[mask] > 0).all()


def test_probabilities_and_a_mask():
    pi, mask = torch.tensor([0.5, 0.5, 0.5, 0.5, 0.0]), torch.tensor([True, True, True, True, False])
    assert khot.sample(probs=pi, k=2, mask=mask)[-1] == 0
    with pytest.raises(ValueError, match=r"probs must sum to k = 2 .*, got the sum 1.5"):
        khot.sample(probs=pi, k=2, mask=mask.roll(1))


def test_smallest():
    assert torch.equal(
        khot.sample(X, 2, largest=False, generator=seeded()), khot.sample(-X, 2, generator=seeded())
    )
    for argument in ("probs", "logits"):
        with pytest.raises(ValueError, match=f"sample: largest=False is for scores, got {argument}"):
            khot.sample(
                **{argument: khot.sigmoid_topk(X, 2)}, k=2, design="conditional_poisson", largest=False
            )


def test_at_most():
    assert torch.equal(khot.sample(X, 7, dim=1, at_most=True), torch.ones_like(X))
    assert (khot.sample(X, 2, dim=1, at_most=True).sum(1) == 2).all()
    with pytest.raises(ValueError, match="sample: k must satisfy 0 <= k <= n = 6, got k = 7"):
        khot.sample(X, 7, dim=1)


@pytest.mark.parametrize("k", [2.0, np.int32(2)])
def test_whole_numbers_of_every_type(k):
    assert torch.equal(khot.sample(X, k, generator=seeded()), khot.sample(X, 2, generator=seeded()))


def test_fractions():
    y = khot.sample(torch.zeros(5), 1.5, design="systematic", sample_shape=(500,))
    assert set(y.sum(-1).tolist()) == {1.0, 2.0}
    message = "k must be an integer for design RandomTreePivotal, got k = 1.5; these take any number: "
    with pytest.raises(ValueError, match=f"sample: {message}(systematic|tree_pivotal), "):
        khot.sample(X, 1.5)


def test_scores_that_look_like_probabilities():
    pi = khot.sigmoid_topk(X.double(), 2, dim=1)
    with pytest.warns(UserWarning, match=r"scores lie in \[0, 1\] and sum to k = 2, .*pass probs="):
        khot.sample(pi, 2, dim=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        khot.sample(probs=pi, k=2, dim=1)
        khot.sample(pi, 1, dim=1)
        khot.sample(2 * pi, 4, dim=1)
        khot.sample(torch.zeros(4), 0)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: khot.sample(X, 2, design="sampfrd"),
            ValueError,
            "sample: unknown design 'sampfrd'; known designs: .*, sampford, pareto",
        ),
        (
            lambda: khot.sample(X, 2, design=SimpleRandom(2, 3)),
            TypeError,
            "sample: design must be a name or a class of khot.designs, got SimpleRandom",
        ),
        (lambda: khot.sample(X.long(), 2), TypeError, "sample: scores must have a floating-point dtype"),
        (lambda: khot.sample([1.0], 1), TypeError, "sample: scores must be a torch.Tensor, got list"),
        (lambda: khot.sample(probs=0 * X, k=2), ValueError, "probs must sum to k = 2"),
        (
            lambda: khot.sample(X, 2, probs=X),
            ValueError,
            "sample: give one of scores, probs, logits, got scores and probs",
        ),
        (lambda: khot.sample(k=2), ValueError, "sample: give one of scores, probs, logits, got none"),
        (lambda: khot.sample(X), TypeError, "sample: give k"),
        (lambda: khot.sample(X, True), TypeError, "sample: k must be a number, got bool"),
        (
            lambda: khot.sample(X, 2, design="plackett_luce"),
            TypeError,
            re.escape("sample: design PlackettLuce takes logits=, got scores"),
        ),
        (
            lambda: khot.sample(logits=X, k=2),
            TypeError,
            re.escape("sample: design RandomTreePivotal takes probs= or scores=, got logits"),
        ),
    ],
)
def test_messages(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_along_a_dimension_beside_an_empty_batch():
    x = khot.sample(torch.zeros(3, 0), 2, dim=0)
    assert x.shape == (3, 0)
    with pytest.raises(ValueError, match=r"sample: scores must have at least one unit, got shape \(3, 0\)"):
        khot.sample(torch.zeros(3, 0), 0)
