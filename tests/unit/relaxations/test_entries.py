"""topk_entries against a stable sort and a gather from the dense weights, with and without the kernel."""

import math

import pytest
import torch
from torch.autograd import forward_ad

import khot
from khot.relaxations.registry import get, names
from khot.relaxations.straight_through import straight_through
from strategies.quick_run import in_turn

pytestmark = pytest.mark.usefixtures("implementation")

SHAPES = [(1, 1), (5, 7), (3, 4, 33), (6, 300), (2, 5000)]
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


def some(shape, dtype=torch.float64, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def expected(scores, k, *, order="score", mask=None, largest=True, hard=False, **settings):
    """Indices, weights, values and which places exist, along the last dimension: a sort, then gathers."""
    n = scores.shape[-1]
    rows = (scores if largest else -scores).detach()
    if mask is not None:
        rows = rows.masked_fill(~mask, -math.inf)
    dense = khot.topk(scores, min(k, n), mask=mask, largest=largest, **settings)
    indices = rows.double().sort(dim=-1, descending=True, stable=True).indices[..., :k]
    exists = rows.gather(-1, indices) != -math.inf
    if order == "position":
        place = torch.where(exists, indices, n).sort(-1).indices
        indices, exists = indices.gather(-1, place), exists.gather(-1, place)
    weights = exists.to(scores.dtype) if hard else torch.where(exists, dense.gather(-1, indices), 0)
    return indices, weights, torch.where(exists, scores.gather(-1, indices), 0), exists


def assert_entries(found, scores, k, **settings):
    indices, weights, values, exists = expected(scores, k, **settings)
    assert found.indices.dtype == torch.int64
    assert found.weights.dtype == found.values.dtype == scores.dtype
    assert found.indices.shape == found.weights.shape == found.values.shape == indices.shape
    assert torch.equal(found.indices[exists], indices[exists])
    assert ((found.indices >= 0) & (found.indices < scores.shape[-1])).all()
    tolerance = 4 * torch.finfo(scores.dtype).eps
    torch.testing.assert_close(found.weights, weights, rtol=tolerance, atol=tolerance)
    assert torch.equal(found.values, values)
    assert (found.weights[~exists] == 0).all()


@pytest.mark.parametrize(("dtype", "order"), in_turn(DTYPES, ["score", "position"]))
def test_is_a_stable_sort_and_a_gather(dtype, order):
    for shape in SHAPES:
        scores = some(shape, dtype)
        n = shape[-1]
        for k in sorted({1, min(2, n), min(8, n), n // 2 or 1, n}):
            found = khot.topk_entries(scores, k, order=order)
            assert_entries(found, scores, k, order=order)
            hard = khot.topk_entries(scores, k, order=order, hard=True)
            assert_entries(hard, scores, k, order=order, hard=True)


@pytest.mark.parametrize(("dtype", "order"), in_turn(DTYPES, ["score", "position"]))
def test_ties_by_index(dtype, order):
    for n in (6, 70, 2000):
        scores = some((4, n)).mul(2).round().to(dtype)
        scores[0] = 1  # all the same
        for k in (1, 3, n // 2, n - 1, n):
            assert_entries(khot.topk_entries(scores, k, order=order), scores, k, order=order)


@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.parametrize("order", ["score", "position"])
def test_masks_infinities_and_fewer_allowed_than_k(order, hard):
    settings = {"order": order, "hard": hard}
    for n in (9, 130):
        scores = some((6, n), torch.float32)
        scores[1, ::2] = -math.inf
        scores[2, ::3] = math.inf
        scores[3] = -math.inf
        scores[4, 2:] = -math.inf
        mask = some((6, n), seed=1) > 0
        mask[5] = False
        for k in (1, 4, n - 1, n):
            assert_entries(khot.topk_entries(scores, k, **settings), scores, k, **settings)
            found = khot.topk_entries(scores, k, mask=mask, **settings)
            assert_entries(found, scores, k, mask=mask, **settings)
            smallest = khot.topk_entries(scores, k, mask=mask, largest=False, **settings)
            assert_entries(smallest, scores, k, mask=mask, largest=False, **settings)
        one_row = khot.topk_entries(scores, 4, mask=mask[0], **settings)  # broadcast
        assert_entries(one_row, scores, 4, mask=mask[:1].expand(6, n), **settings)


def test_no_minus_zero_in_a_missing_place():
    scores = torch.tensor([1.0, 2.0, 3.0])
    values = khot.topk_entries(scores, 2, mask=scores > 2, largest=False).values
    assert values.tolist() == [3, 0]
    assert not values.signbit().any()


@pytest.mark.parametrize("dim", [0, 1, 2, -2])
def test_k_stands_in_the_place_of_dim(dim):
    scores, mask = some((4, 5, 6)), some((4, 5, 6), seed=1) > -1
    found = khot.topk_entries(scores, 3, dim=dim, mask=mask, temperature=0.5)
    moved = khot.topk_entries(scores.movedim(dim, -1), 3, mask=mask.movedim(dim, -1), temperature=0.5)
    for a, b in zip(found, moved, strict=True):
        assert torch.equal(a, b.movedim(-1, dim))
    assert torch.equal(found.values, torch.where(found.weights > 0, scores.gather(dim, found.indices), 0))


def test_no_places_no_rows_and_more_places_than_entries():
    for k, shape in ((0, (3, 5)), (2, (0, 5)), (0, (3, 0))):
        found = khot.topk_entries(torch.zeros(shape), k)
        assert all(t.shape == (shape[0], k) for t in found)
    scores = some((2, 3))
    found = khot.topk_entries(scores, 5, at_most=True)
    assert found.weights.tolist() == [[1, 1, 1, 0, 0]] * 2
    assert (found.values[:, 3:] == 0).all()
    assert torch.equal(found.values[:, :3], scores.sort(-1, descending=True).values)
    assert (found.indices[:, 3:] < 3).all()
    assert (khot.topk_entries(torch.zeros(2, 0), 3, at_most=True).weights == 0).all()


def test_a_nan_makes_its_row_nan_and_comes_first():
    scores = some((2, 90), torch.float32)
    scores[0, 40] = math.nan
    for hard in (False, True):
        found = khot.topk_entries(scores, 3, hard=hard)
        assert found.indices[0, 0] == 40
        assert found.weights[0].isnan().all()
        assert found.weights[1].isfinite().all()
    several = scores.clone()
    several[0, ::9] = math.nan
    assert khot.topk_entries(several, 3).indices[0].tolist() == [0, 9, 18]
    assert khot.topk_entries(several, 3, order="position").indices[0].tolist() == [0, 9, 18]


@pytest.mark.parametrize("method", names())
def test_every_method_gives_its_own_weights(method):
    scores = some((2, 8))
    torch.manual_seed(3)
    dense = khot.topk(scores, 3, method)
    torch.manual_seed(3)
    found = khot.topk_entries(scores, 3, method)
    assert torch.equal(found.weights, dense.gather(-1, found.indices))
    ranked = dense if get(method).stochastic else scores
    assert torch.equal(found.indices, ranked.sort(dim=-1, descending=True, stable=True).indices[:, :3])


def loss(entries):
    """Uses weights and values, each place in its own way."""
    at = torch.arange(1, entries.weights.shape[-1] + 1, dtype=entries.weights.dtype)
    return ((entries.weights * at).sin() + entries.weights * entries.values + at * entries.values).sum()


def gradients(entries, inputs):
    return torch.autograd.grad(loss(entries), inputs)


@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.parametrize("order", ["score", "position"])
@pytest.mark.parametrize("largest", [True, False])
def test_the_gradient_is_that_of_a_gather(largest, order, hard):
    for n, k in ((6, 2), (200, 9), (3000, 40)):
        scores = some((5, n)).requires_grad_()
        temperature = some((5,), seed=2).abs().add(0.5).requires_grad_()
        mask = some((5, n), seed=1) > -0.3
        mask[4, 1:] = False
        settings = {"temperature": temperature, "mask": mask, "largest": largest}
        found = khot.topk_entries(scores, k, order=order, hard=hard, **settings)
        indices, weights, values, exists = expected(scores, k, order=order, **settings)
        soft = khot.Entries(indices, weights, values)
        if hard:
            ones = straight_through(weights, exists.to(weights.dtype))
            soft = khot.Entries(indices, ones, values)
        for a, b in zip(
            gradients(found, (scores, temperature)), gradients(soft, (scores, temperature)), strict=True
        ):
            torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-11)


def test_the_gradient_reaches_entries_that_were_not_selected():
    scores = some((3, 12)).requires_grad_()
    (grad,) = torch.autograd.grad(khot.topk_entries(scores, 2).weights[:, 0].sum(), scores)
    assert (grad != 0).all()
    torch.testing.assert_close(grad.sum(-1), torch.zeros(3, dtype=torch.float64), atol=1e-12, rtol=0)


def test_missing_places_have_no_gradient():
    scores = torch.tensor([1.0, 2.0, -math.inf, 3.0], dtype=torch.float64, requires_grad=True)
    mask = torch.tensor([True, False, True, True])
    found = khot.topk_entries(scores, 3, mask=mask)
    (grad,) = torch.autograd.grad(found.values.sum() + found.weights.sum(), scores)
    assert grad.tolist() == [1, 0, 0, 1]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_types_learn_as_their_float32_values(dtype):
    scores = some((4, 40), dtype).requires_grad_()
    wide = scores.detach().float().requires_grad_()
    (half,) = torch.autograd.grad(khot.topk_entries(scores, 5).weights.sum(), scores)
    (single,) = torch.autograd.grad(khot.topk_entries(wide, 5).weights.sum(), wide)
    assert half.dtype == dtype
    torch.testing.assert_close(half.float(), single, rtol=2 * torch.finfo(dtype).eps, atol=1e-6)


@pytest.mark.parametrize("order", ["score", "position"])
def test_first_and_second_derivatives(order):
    scores, temperature = some((2, 6)).requires_grad_(), torch.tensor(0.8, dtype=torch.float64)
    temperature.requires_grad_()

    def weights_and_values(scores, temperature):
        return khot.topk_entries(scores, 3, temperature=temperature, order=order)[1:]

    assert torch.autograd.gradcheck(weights_and_values, (scores, temperature))
    assert torch.autograd.gradgradcheck(weights_and_values, (scores, temperature))


def test_forward_mode():
    scores, tangent = some((3, 20)), some((3, 20), seed=1)
    with forward_ad.dual_level():
        found = khot.topk_entries(forward_ad.make_dual(scores, tangent), 4)
        moved = forward_ad.unpack_dual(found.weights).tangent
    _, dense = torch.func.jvp(lambda s: khot.sigmoid_topk(s, 4), (scores,), (tangent,))
    torch.testing.assert_close(moved, dense.gather(-1, found.indices))


def test_vmap():
    scores = some((3, 4, 30))
    found = torch.vmap(lambda s: tuple(khot.topk_entries(s, 4)), in_dims=1)(scores)
    for a, b in zip(found, khot.topk_entries(scores.transpose(0, 1), 4), strict=True):
        torch.testing.assert_close(a, b)


def test_arguments_are_checked():
    scores = some((2, 5))
    with pytest.raises(ValueError, match="topk_entries: k must satisfy 0 <= k <= n = 5"):
        khot.topk_entries(scores, 6)
    with pytest.raises(TypeError, match="topk_entries: k must be one integer"):
        khot.topk_entries(scores, torch.tensor(2))
    with pytest.raises(ValueError, match="order must be 'score' or 'position', got 'rank'"):
        khot.topk_entries(scores, 2, order="rank")
    with pytest.raises(ValueError, match="temperature must be positive and finite"):
        khot.topk_entries(scores, 2, temperature=0.0)
    with pytest.raises(ValueError, match="mask must broadcast"):
        khot.topk_entries(scores, 2, mask=torch.ones(3, dtype=torch.bool))
    with pytest.raises(TypeError, match="topk_entries"):
        khot.topk_entries(scores, 2, norm=1.5)


@pytest.mark.parametrize("shape", [(7, 10), (3, 2, 10), (10,)])
@pytest.mark.parametrize("masked", [True, False])
@pytest.mark.parametrize("learned", [True, False])
def test_the_backward_pass_a_few_rows_at_a_time(monkeypatch, shape, masked, learned):
    """As that of all rows at once, which a graph of the gradient takes."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(shape, generator=generator, dtype=torch.float64, requires_grad=True)
    spread = torch.rand(shape[:-1], generator=generator, dtype=torch.float64) + 0.5
    temperature = spread.requires_grad_() if learned else 0.7
    mask = torch.rand(shape, generator=generator) > 0.3 if masked else None
    given = (scores, spread) if learned else (scores,)
    monkeypatch.setattr("khot.relaxations.threshold._sigmoid_entries._AT_ONCE", 20)
    weights = khot.topk_entries(scores, 3, temperature=temperature, mask=mask).weights
    upstream = torch.randn(weights.shape, generator=generator, dtype=torch.float64)
    parts = torch.autograd.grad(weights, given, upstream, retain_graph=True)
    whole = torch.autograd.grad(weights, given, upstream, create_graph=True)
    for mine, expected in zip(parts, whole, strict=True):
        torch.testing.assert_close(mine, expected)
