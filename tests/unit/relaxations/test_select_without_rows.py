"""`select` by sigmoid top-k writes no dense row, and has the gradients of the dense weights all the same."""

import copy
import pickle

import pytest
import torch

from khot import Selection, select, topk
from khot.kernels.loader import native


def dense_route(values, scores, k, *, hard, temperature, mask=None, largest=True):
    """The same with a weight for every entry, by torch's own indexing."""
    weights = topk(scores, k, temperature=temperature, mask=mask, largest=largest)
    order = scores if largest else -scores
    indices = (order if mask is None else order.masked_fill(~mask, -torch.inf)).topk(k).indices
    factor = weights.gather(-1, indices).unsqueeze(-1)
    return values[indices] * (1 + factor - factor.detach() if hard else factor)


@pytest.mark.parametrize("hard", [True, False])
@pytest.mark.parametrize("largest", [True, False])
@pytest.mark.parametrize("masked", [True, False])
def test_first_and_second_gradients_are_those_of_the_dense_route(hard, largest, masked):
    generator = torch.Generator().manual_seed(0)
    table = torch.randn(50, 3, generator=generator, dtype=torch.float64, requires_grad=True)
    scores = torch.randn(4, 50, generator=generator, dtype=torch.float64, requires_grad=True)
    tau = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    upstream = torch.randn(4, 5, 3, generator=generator, dtype=torch.float64)
    mask = torch.rand(4, 50, generator=generator) > 0.3 if masked else None
    settings = {"hard": hard, "temperature": tau, "mask": mask, "largest": largest}
    given = (table, scores, tau)
    found = []
    for values in (select(table, scores, 5, **settings).values, dense_route(table, scores, 5, **settings)):
        grads = torch.autograd.grad((values**2 * upstream).sum(), given, create_graph=True)
        twice = torch.autograd.grad(sum((g**2).sum() for g in grads), given)
        found.append((values, *grads, *twice))
    for mine, expected in zip(*found, strict=True):
        torch.testing.assert_close(mine, expected)


def peak(call):
    """The most bytes that tensors made by the call take at a time; the result counts."""
    with torch.autograd.profiler.profile(profile_memory=True) as record:
        kept = call()  # noqa: F841
    assert record.kineto_results is not None
    changes = [event for event in record.kineto_results.events() if event.name() == "[memory]"]
    now = most = 0
    for change in sorted(changes, key=lambda event: event.start_ns()):
        now += change.nbytes()
        most = max(most, now)
    return most


@pytest.mark.skipif(native() is None, reason="the portable path has dense rows")
@pytest.mark.parametrize("learns", [True, False])
@pytest.mark.parametrize("settings", [{}, {"order": "position"}, {"hard": False}, {"masked": True}])
def test_one_table_takes_at_most_twice_the_memory_of_topk_and_indexing(learns, settings):
    table, scores = torch.randn(10_000, 64), torch.randn(64, 10_000, requires_grad=learns)
    options = {name: value for name, value in settings.items() if name != "masked"}
    mask = torch.rand(64, 10_000) > 0.1 if "masked" in settings else None

    def by_hand():
        best = scores.detach().topk(10)
        return best, table[best.indices]

    assert peak(lambda: select(table, scores, 10, mask=mask, **options)) <= 2 * peak(by_hand)


@pytest.mark.skipif(native() is None, reason="the portable path has dense rows")
def test_backward_too():
    """Of what is dense only the gradient is whole, as it is by hand."""
    table, scores = torch.randn(10_000, 32), torch.randn(64, 10_000, requires_grad=True)

    def by_hand():
        best = scores.topk(10)
        return torch.autograd.grad((table[best.indices] * best.values.unsqueeze(-1)).sum(), scores)

    ours = peak(lambda: torch.autograd.grad(select(table, scores, 10).values.sum(), scores))
    assert ours <= 2 * peak(by_hand)


def test_weights_are_computed_when_asked_for():
    generator = torch.Generator().manual_seed(3)
    table, scores = torch.randn(20, 4, generator=generator), torch.randn(3, 20, generator=generator)
    scores.requires_grad_()
    mask = torch.rand(3, 20, generator=generator) < 0.8
    chosen = select(table, scores, 5, temperature=0.5, mask=mask, largest=False)
    expected = topk(scores, 5, temperature=0.5, mask=mask, largest=False)
    values, weights, indices = chosen
    assert weights is chosen.weights is chosen[1]
    torch.testing.assert_close(weights, expected, rtol=0, atol=0)
    assert values is chosen.values is chosen[0]
    assert indices is chosen.indices is chosen[2]
    assert isinstance(chosen, Selection)
    assert len(chosen) == 3
    upstream = torch.randn(3, 20, generator=generator)
    (gradient,) = torch.autograd.grad(weights, scores, upstream)
    torch.testing.assert_close(gradient, torch.autograd.grad(expected, scores, upstream)[0])
    for copied in (copy.copy(chosen), pickle.loads(pickle.dumps(select(table, scores.detach(), 5)))):
        assert copied.weights.shape == (3, 20)


def test_scores_changed_before_the_weights_are_asked_for():
    table, scores = torch.randn(20, 4), torch.randn(3, 20)
    chosen, before = select(table, scores, 5), topk(scores, 5)
    scores.mul_(2)
    if native() is None:  # computed with the indices
        torch.testing.assert_close(chosen.weights, before)
        return
    with pytest.raises(RuntimeError, match="scores were changed in place"):
        _ = chosen.weights
