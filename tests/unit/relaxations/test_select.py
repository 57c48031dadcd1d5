"""Selecting vectors, over every method."""

import math

import pytest
import torch

from khot import hard_topk, select, topk, topk_entries, topk_matrix
from khot.relaxations import registry
from strategies.quick_run import costly

STEADY = [name for name, spec in registry.specs().items() if not spec.stochastic]
BLENDING = [name for name in STEADY if registry.get(name).matrix is not None]
WEIGHING = [name for name in STEADY if registry.get(name).matrix is None]


def problem(*shape, d=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(*shape, generator=generator, dtype=torch.float64)
    return torch.randn(*shape, d, generator=generator, dtype=torch.float64), scores


@pytest.mark.parametrize("method", STEADY)
def test_by_default_the_vectors_are_those_of_the_hard_selection(method):
    values, scores = problem(4, 9)
    scores.requires_grad_()
    chosen = select(values, scores, 3, method)
    best = scores.detach().topk(3)
    assert torch.equal(chosen.indices, best.indices)
    expected = values.gather(1, best.indices.unsqueeze(-1).expand(4, 3, 3))
    torch.testing.assert_close(chosen.values.detach(), expected)
    torch.testing.assert_close(chosen.weights, topk(scores, 3, method, **registry.get(method).row_options))
    (grad,) = torch.autograd.grad(chosen.values.pow(2).sum(), scores)
    assert grad.abs().max() > 1e-4
    torch.testing.assert_close(grad.sum(-1), torch.zeros(4).double(), atol=1e-9, rtol=0)


@pytest.mark.parametrize("method", WEIGHING)
def test_soft_weighs_the_selected_vectors(method):
    values, scores = problem(4, 9)
    chosen = select(values, scores, 3, method, temperature=0.5, hard=False)
    weights = topk(scores, 3, method, temperature=0.5)
    for row in range(4):
        for place, index in enumerate(scores[row].argsort(descending=True)[:3]):
            torch.testing.assert_close(chosen.values[row, place], weights[row, index] * values[row, index])


@pytest.mark.parametrize("method", BLENDING)
def test_soft_blends_by_the_rows(method):
    values, scores = problem(2, 9)
    scores[0, 2], scores[1, 3] = math.inf, -math.inf
    chosen = select(values, scores, 3, method, temperature=0.5, hard=False)
    rows = topk_matrix(scores, 3, method, temperature=0.5)
    torch.testing.assert_close(chosen.values, rows @ values)
    options = registry.get(method).row_options
    torch.testing.assert_close(chosen.weights, topk(scores, 3, method, temperature=0.5, **options))


@pytest.mark.parametrize("method", ["sigmoid", "softsort", "successive_halving"])
@pytest.mark.parametrize("hard", [True, False])
def test_order_by_position(method, hard):
    values, scores = problem(5, 8)
    by_score = select(values, scores, 4, method, hard=hard)
    by_position = select(values, scores, 4, method, hard=hard, order="position")
    assert (by_position.indices.diff(dim=-1) > 0).all()
    for row in range(5):
        for place, index in enumerate(by_position.indices[row]):
            at = by_score.indices[row].tolist().index(index)
            torch.testing.assert_close(by_position.values[row, place], by_score.values[row, at])


@pytest.mark.parametrize("method", STEADY)
def test_padding_is_left_out(method):
    values, scores = problem(2, 6)
    mask = torch.tensor([[True, False, True, True, True, True], [False, True, False, False, False, True]])
    values[~mask], scores[~mask] = math.nan, 50.0
    chosen = select(values, scores, 3, method, mask=mask, order="position")
    assert chosen.values.isfinite().all()
    assert chosen.indices[1].tolist() == [1, 5, -1]
    assert not chosen.values[1, 2].any()
    assert not chosen.weights[~mask].any()
    scores[~mask] = -math.inf
    torch.testing.assert_close(select(values, scores, 3, method, order="position").values, chosen.values)
    shorter = select(values[:1, mask[0]], scores[:1, mask[0]], 3, method, order="position")
    torch.testing.assert_close(chosen.values[:1], shorter.values)


@pytest.mark.parametrize("method", STEADY)
def test_nothing_selected(method):
    values, scores = problem(2, 5)
    chosen = select(values, scores, 0, method)
    assert chosen.values.shape == (2, 0, 3)
    assert chosen.indices.shape == (2, 0)
    assert not chosen.weights.any()


@pytest.mark.parametrize("method", ["sigmoid", "iterative", "successive_halving"])
def test_any_dim_smallest_and_ties(method):
    values, scores = problem(3, 7, 2)
    moved = select(values, scores, 3, method, dim=1)
    assert moved.values.shape == (3, 3, 2, 3)
    plain = select(values.movedim(1, 2), scores.movedim(1, 2), 3, method)
    torch.testing.assert_close(moved.values.movedim(1, 2), plain.values)
    torch.testing.assert_close(moved.weights.movedim(1, 2), plain.weights)
    assert torch.equal(moved.indices.movedim(1, 2), plain.indices)
    smallest = select(values, -scores, 3, method, dim=1, largest=False)
    torch.testing.assert_close(smallest.values, moved.values)
    ties = select(values, torch.zeros(3, 7, 2), 3, method, dim=1)
    assert torch.equal(ties.indices[:, :, 0], torch.arange(3).expand(3, 3))
    assert hard_topk(torch.zeros(7), 3).nonzero().flatten().tolist() == [0, 1, 2]


@pytest.mark.parametrize("method", ["sigmoid", "softsort", costly("successive_halving")])
def test_other_dtypes_and_transforms(method):
    values, scores = problem(4, 8)
    half = select(values.bfloat16(), scores.bfloat16(), 2, method)
    assert half.values.dtype == half.weights.dtype == torch.bfloat16
    mixed = select(values.float(), scores.bfloat16(), 2, method)
    assert mixed.values.dtype == torch.float32

    def call(values, scores):
        return select(values, scores, 2, method).values

    torch.testing.assert_close(torch.func.vmap(call)(values, scores), call(values, scores))
    compiled = torch.compile(call, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(values, scores), call(values, scores))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"values": torch.randn(2, 5)}, ValueError, "shape of scores and one dimension more"),
        ({"scores": torch.arange(10).view(2, 5)}, TypeError, "scores must have a floating-point dtype"),
        ({"values": [1.0]}, TypeError, r"values must be a torch\.Tensor, got list"),
        ({"k": 6}, ValueError, "0 <= k <= n = 5"),
        ({"k": torch.tensor(2)}, TypeError, "k must be one integer, got a tensor"),
        ({"order": "index"}, ValueError, "order must be 'score' or 'position', got 'index'"),
        ({"method": "successive_softmax", "capped": True}, TypeError, "no option 'capped'"),
        ({"norm": 2.0}, TypeError, "select: method 'sigmoid' has no option 'norm'"),
        ({"mask": torch.ones(3, 5, dtype=torch.bool)}, ValueError, "mask must broadcast"),
    ],
)
def test_wrong_arguments_are_named(change, error, message):
    arguments = {"values": torch.randn(2, 5, 3), "scores": torch.randn(2, 5), "k": 2, **change}
    with pytest.raises(error, match=message):
        select(**arguments)


@pytest.mark.parametrize("method", STEADY)
@pytest.mark.parametrize("hard", [True, False])
def test_one_table_for_all_rows_is_as_if_expanded(method, hard):
    table, scores = problem(7)[0], problem(4, 2, 7)[1]
    mask = problem(4, 2, 7, seed=1)[1] > -1
    table.requires_grad_()
    settings = {"method": method, "hard": hard, "order": "position"}
    for options in (settings, {**settings, "mask": mask}):
        one = select(table, scores, 3, **options)
        each = select(table.expand(4, 2, 7, 3), scores, 3, **options)
        for mine, expected in zip(one, each, strict=True):
            torch.testing.assert_close(mine, expected)
        grads = [torch.autograd.grad(s.values.pow(2).sum(), table)[0] for s in (one, each)]
        torch.testing.assert_close(*grads)


@pytest.mark.parametrize("method", STEADY)
def test_at_most_leaves_places_empty(method):
    values, scores = problem(2, 4)
    chosen = select(values, scores, 6, method, at_most=True)
    all_of_them = select(values, scores, 4, method)
    assert chosen.values.shape == (2, 6, 3)
    torch.testing.assert_close(chosen.values[:, :4], all_of_them.values)
    assert not chosen.values[:, 4:].any()
    assert chosen.indices[:, 4:].unique().tolist() == [-1]
    torch.testing.assert_close(chosen.weights, all_of_them.weights)
    with pytest.raises(ValueError, match="0 <= k <= n = 4"):
        select(values, scores, 6, method)


def test_rows_without_entries_have_empty_places():
    for values in (torch.zeros(3, 0, 4), torch.zeros(0, 4)):
        scores = torch.zeros(3, 0, requires_grad=True)
        chosen = select(values, scores, 2, at_most=True)
        assert torch.equal(chosen.values, torch.zeros(3, 2, 4))
        assert (chosen.indices == -1).all()
        entries = topk_entries(scores, 2, at_most=True)
        (entries.weights.sum() + entries.values.sum()).backward()
