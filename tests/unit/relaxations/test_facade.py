"""khot.topk: the same as the method's own function, and what it adds."""

import numpy as np
import pytest
import torch

import khot
from khot.relaxations import Relaxation, registry, straight_through
from strategies.capped_simplex import projection
from strategies.random_scores import scores

METHODS = registry.names()


def noise(method: str) -> dict[str, torch.Generator]:
    """For a random method, a generator that always starts from the same seed."""
    return {"generator": torch.Generator().manual_seed(0)} if registry.get(method).stochastic else {}


@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.parametrize("method", METHODS)
def test_equals_the_function_of_the_method(method, hard):
    x = scores(3, 5, 4)
    mask = scores(3, 5, 4, seed=1) > -1.5
    function = registry.get(method).weights
    settings = {"temperature": 0.6, "dim": 1, "mask": mask, "hard": hard}
    ours = khot.topk(x, 2, method, **settings, **noise(method))
    assert torch.equal(ours, function(x, 2, **settings, **noise(method)))
    for options in registry.get(method).example_options:
        ours = khot.topk(x, 2, method, **settings, **options, **noise(method))
        assert torch.equal(ours, function(x, 2, **settings, **options, **noise(method)))


def test_the_method_is_sigmoid_if_not_told():
    x = scores(2, 7)
    assert torch.equal(khot.topk(x, 3), khot.sigmoid_topk(x, 3))


def test_options_reach_the_method():
    x = 0.3 * scores(2, 7)
    y = khot.topk(x, 3, "sparse", norm=1.5)
    assert torch.equal(y, khot.sparse_topk(x, 3, norm=1.5))
    assert not torch.allclose(y, khot.topk(x, 3, "sparse"))


def test_an_unknown_method_is_told_the_known_ones():
    with pytest.raises(ValueError, match="unknown method 'sigmoidal'") as error:
        khot.topk(scores(3), 1, "sigmoidal")
    assert all(name in str(error.value) for name in METHODS)


def test_an_unknown_option_is_told_those_of_the_method():
    with pytest.raises(TypeError, match=r"topk: method 'sparse' has no option 'power'; its options: norm$"):
        khot.topk(scores(3), 1, "sparse", power=2)
    with pytest.raises(TypeError, match=r"topk: method 'sigmoid' has no option 'norm'; its options: none$"):
        khot.topk(scores(3), 1, norm=2)


@pytest.mark.parametrize("method", METHODS)
def test_the_smallest_are_the_largest_of_the_negated(method):
    x = scores(3, 6)
    x[0, 0], x[1, 1] = torch.inf, -torch.inf
    y = khot.topk(x, 2, method, largest=False, **noise(method))
    torch.testing.assert_close(y, khot.topk(-x, 2, method, **noise(method)), rtol=0, atol=0)
    assert y[0, 0] == 0
    assert y[1, 1] == 1


@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("method", METHODS)
def test_hard_weights_are_exactly_k_ones(method, largest):
    x = scores(4, 9).round()  # with ties
    y = khot.topk(x, 4, method, hard=True, largest=largest)
    assert ((y == 0) | (y == 1)).all()
    assert (y.sum(-1) == 4).all()
    if method == "gumbel":  # a sample
        return
    chosen = torch.where(y == 1, x, torch.nan)
    others = torch.where(y == 0, x, torch.nan)
    for inside, outside in zip(chosen.numpy(), others.numpy(), strict=True):
        if largest:
            assert np.nanmin(inside) >= np.nanmax(outside)
        else:
            assert np.nanmax(inside) <= np.nanmin(outside)


def steep(x, k, *, temperature=1.0, dim=-1, mask=None, hard=False):
    """k softmax: it sums to k, and may exceed 1."""
    x = x if mask is None else x.masked_fill(~mask, -torch.inf)
    y = k * torch.softmax(x / temperature, dim)
    return straight_through(y, khot.hard_topk(x, k, dim=dim)) if hard else y


UNBOUNDED = Relaxation(name="steep", weights=steep, bounded=False)


def test_the_method_can_be_an_object():
    x = scores(3, 5)
    assert torch.equal(khot.topk(x, 2, UNBOUNDED, temperature=0.5), steep(x, 2, temperature=0.5))
    assert torch.equal(khot.topk(x, 2, registry.get("laplace")), khot.laplace_topk(x, 2))
    with pytest.raises(TypeError, match=r"method 'steep' has no option 'norm'; its options: none"):
        khot.topk(x, 2, UNBOUNDED, norm=2)


def test_capped_weights_are_the_projection_on_the_capped_simplex():
    x = 3 * scores(5, 6)
    loose = khot.topk(x, 3, UNBOUNDED)
    assert (loose > 1).any(-1).all()  # there is something to cap in every row
    capped = khot.topk(x, 3, UNBOUNDED, capped=True)
    expected = np.stack([projection(row, 3) for row in loose.numpy()])
    np.testing.assert_allclose(capped.numpy(), expected, rtol=0, atol=1e-12)


def test_capped_weights_keep_dim_mask_and_gradient():
    x = 2 * scores(5, 3).requires_grad_()
    mask = torch.tensor([True, True, True, True, False]).unsqueeze(-1)
    y = khot.topk(x, 2, UNBOUNDED, dim=0, mask=mask, capped=True)
    expected = np.stack([projection(row, 2) for row in steep(x[:4].T, 2).detach().numpy()])
    np.testing.assert_allclose(y[:4].T.detach().numpy(), expected, rtol=0, atol=1e-12)
    assert (y[4] == 0).all()
    (grad,) = torch.autograd.grad((y * scores(5, 3, seed=1)).sum(), x)
    assert grad.isfinite().all()
    assert grad.any()


@pytest.mark.parametrize("method", [name for name in METHODS if registry.get(name).bounded])
def test_capped_changes_nothing_for_weights_that_are_bounded(method):
    x = scores(2, 6)
    capped = khot.topk(x, 2, method, capped=True, **noise(method))
    assert torch.equal(capped, khot.topk(x, 2, method, **noise(method)))


@pytest.mark.parametrize("method", [name for name in METHODS if not registry.get(name).bounded])
def test_capped_weights_of_excluded_entries_stay_zero(method):
    inf = torch.inf
    x = torch.tensor([[1.0, -inf, -inf, 0.0], [2.0, 1.0, -inf, 0.0]], dtype=torch.float64)
    y = khot.topk(x, 3, method, capped=True)
    assert y[0].tolist() == [1, 0, 0, 1]  # two are allowed, and the budget of the third goes to nobody
    assert y[1].tolist() == [1, 1, 0, 1]
    if method == "successive_softmax":
        assert torch.equal(khot.successive_softmax_topk(x, 3, capped=True), y)


def test_the_gradient_of_hard_capped_weights_is_that_of_the_capped_ones():
    x = (3 * scores(5, 6)).requires_grad_()
    direction = scores(5, 6, seed=1)
    grads = {}
    for capped in (False, True):
        for hard in (False, True):
            y = khot.topk(x, 3, UNBOUNDED, capped=capped, hard=hard)
            (grads[capped, hard],) = torch.autograd.grad(y, x, direction)
    assert torch.equal(khot.topk(x, 3, UNBOUNDED, capped=True, hard=True), khot.hard_topk(x, 3))
    torch.testing.assert_close(grads[True, True], grads[True, False])
    assert not torch.allclose(grads[True, True], grads[False, True])


@pytest.mark.parametrize("method", METHODS)
def test_at_most_takes_all_where_there_are_fewer(method):
    x = scores(2, 4)
    assert (khot.topk(x, 9, method, at_most=True, **noise(method)) == 1).all()
    few = khot.topk(x, 2, method, at_most=True, **noise(method))
    assert torch.equal(few, khot.topk(x, 2, method, **noise(method)))
    with pytest.raises(ValueError, match="0 <= k <= n = 4"):
        khot.topk(x, 9, method, **noise(method))


def test_at_most_is_of_each_row():
    x, k = scores(3, 4), torch.tensor([1.0, 4.0, 50.0])
    torch.testing.assert_close(khot.topk(x, k, at_most=True).sum(-1), torch.tensor([1.0, 4.0, 4.0]).double())
    for bad in (-1, float("nan"), float("inf")):
        with pytest.raises(ValueError, match=rf"topk: k must be finite and not negative, got k = {bad}"):
            khot.topk(x, bad, at_most=True)


@pytest.mark.parametrize("given", [torch.tensor([True, False]), torch.tensor([1, 2]), None, [1.0, 2.0]])
def test_scores_of_another_type_are_refused_by_name_also_for_the_smallest(given):
    for method in registry.names():
        with pytest.raises(TypeError, match="scores must"):
            khot.topk(given, 1, method, largest=False)
    with pytest.raises(TypeError, match="scores must"):
        khot.hard_topk(given, 1, largest=False)
