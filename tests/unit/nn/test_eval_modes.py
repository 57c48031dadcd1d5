"""eval() removes randomness and nothing else, unless eval_mode says so; and what is selected, as indices."""

import pytest
import torch

import khot
from khot.nn import GumbelTopK, PerturbedTopK, Select, SigmoidTopK, TopK
from khot.relaxations.registry import names, specs

X = torch.randn(5, 9, generator=torch.Generator().manual_seed(0))
RANDOM = [name for name in names() if specs()[name].stochastic]
CERTAIN = [name for name in names() if not specs()[name].stochastic]


def seeded():
    return torch.Generator().manual_seed(1)


@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.parametrize("method", CERTAIN)
def test_same_is_the_same_without_randomness(method, hard):
    layer = TopK(3, method, temperature=0.5, hard=hard)
    assert torch.equal(layer(X), layer.eval()(X))


@pytest.mark.parametrize("method", RANDOM)
def test_same_is_always_the_same_of_a_random_method(method):
    layer = TopK(3, method, temperature=0.5)
    assert not torch.equal(layer(X), layer(X))
    before = torch.get_rng_state()
    first = layer.eval()(X)
    assert torch.equal(layer(X), first)
    assert torch.equal(layer(X, generator=seeded()), first)
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.equal(first, khot.hard_topk(X, 3))  # soft as in training
    torch.testing.assert_close(first.sum(-1), torch.full((5,), 3.0))


@pytest.mark.parametrize("method", RANDOM)
def test_what_becomes_of_a_row_does_not_depend_on_its_batch(method):
    layer = TopK(3, method, temperature=0.5).eval()
    together = layer(X)
    assert torch.equal(layer(X[2]), together[2])
    assert torch.equal(layer(X[1:3].reshape(2, 1, 9)).squeeze(1), together[1:3])


def test_gumbel_without_noise_is_sigmoid():
    layer = GumbelTopK(3, temperature=0.5, largest=False).eval()
    assert torch.equal(layer(X), khot.sigmoid_topk(X, 3, temperature=0.5, largest=False))


def test_perturbed_keeps_its_own_kind_and_options():
    layer = PerturbedTopK(3, samples=7).eval()
    y = layer(X)
    torch.testing.assert_close(y * 7, (y * 7).round())
    assert ((y > 0) & (y < 1)).any()


@pytest.mark.parametrize("method", names())
def test_hard_is_exactly_k(method):
    layer = TopK(3, method, eval_mode="hard")
    scores = X.clone().requires_grad_()
    assert not torch.equal(layer(scores), khot.hard_topk(X, 3))
    y = layer.eval()(scores)
    assert torch.equal(y, khot.hard_topk(X, 3))
    (y * X).sum().backward()
    assert scores.grad.any()
    assert "eval_mode='hard'" in repr(layer)


@pytest.mark.parametrize(("k", "rounded"), [(2.4, 2), (2.6, 3)])
def test_hard_rounds_the_budget(k, rounded):
    for layer in (
        SigmoidTopK(k, eval_mode="hard"),
        SigmoidTopK(k, learn_k=True, k_max=9, eval_mode="hard"),
    ):
        assert torch.equal(layer.eval()(X), khot.hard_topk(X, rounded))
        assert layer.selected(X).shape == (5, rounded)


def test_hard_with_at_most_takes_all_there_are():
    for learned in ({}, {"learn_k": True, "k_max": 30}):
        layer = SigmoidTopK(20, at_most=True, eval_mode="hard", **learned)
        assert (layer.eval()(X) == 1).all()


@pytest.mark.parametrize("method", RANDOM)
def test_random_goes_on_drawing(method):
    layer = TopK(3, method, eval_mode="random")
    drawn = layer(X, generator=seeded())
    assert torch.equal(layer.eval()(X, generator=seeded()), drawn)
    assert not torch.equal(layer(X), layer(X))


@pytest.mark.parametrize("method", CERTAIN)
def test_random_needs_randomness(method):
    with pytest.raises(ValueError, match="TopK: eval_mode = 'random' needs a random method"):
        TopK(3, method, eval_mode="random")


def test_an_unknown_mode_is_named():
    with pytest.raises(ValueError, match="TopK: eval_mode must be 'same', 'hard' or 'random', got 'soft'"):
        TopK(3, eval_mode="soft")


def test_the_generator_belongs_to_the_call():
    with pytest.raises(TypeError, match="GumbelTopK: generator belongs to the call"):
        GumbelTopK(3, generator=seeded())


def test_select_in_evaluation():
    values = torch.eye(9).expand(5, 9, 9)
    soft = Select(3, hard=False, eval_mode="hard", order="position")
    assert not torch.equal(soft(values, X).values.sum(-2), khot.hard_topk(X, 3))
    assert torch.equal(soft.eval()(values, X).values.sum(-2), khot.hard_topk(X, 3))
    random = Select(3, "gumbel", temperature=0.1)
    assert not torch.equal(random(values, X).indices, random(values, X).indices)
    assert torch.equal(random.eval()(values, X).indices, X.topk(3).indices)


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_selected_are_the_indices_of_the_hard_selection(dim, largest):
    mask = torch.rand(5, 9, generator=seeded()) > 0.3
    layer = TopK(3, dim=dim, largest=largest, eval_mode="hard")
    for allowed in (None, mask):
        indices = layer.selected(X, allowed)
        marked = torch.zeros(5, 9).scatter_add(dim, indices.clamp_min(0), (indices >= 0).float())
        assert torch.equal(marked, layer.eval()(X, allowed))
        best = X.gather(dim, indices.clamp_min(0))
        best = torch.where(indices >= 0, best if largest else -best, -torch.inf)
        assert torch.equal(best, best.sort(dim, descending=True).values)


def test_selected_where_fewer_are_allowed_and_where_scores_tie():
    layer = TopK(3)
    mask = torch.tensor([False, True, False, True])
    assert layer.selected(torch.zeros(4), mask).tolist() == [1, 3, -1]
    assert layer.selected(torch.zeros(4)).tolist() == [0, 1, 2]
    assert TopK(6, at_most=True).selected(torch.zeros(4)).tolist() == [0, 1, 2, 3, -1, -1]
    with pytest.raises(ValueError, match=r"TopK\.selected: k must satisfy 0 <= k <= n = 2"):
        layer.selected(torch.zeros(2))
