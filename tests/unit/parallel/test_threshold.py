"""Rows that several processes hold have the weights and gradients of one process, wherever they are cut."""

import math

import pytest
import torch

import khot
from khot import parallel
from strategies.thread_group import in_threads, unwrapped

INF = math.inf
CUTS = ([5, 25], [7, 0, 20, 3])


def halves(x, cut, rank):
    return x.split(cut, -1)[rank]


def both(method, x, k, temperature, cut, *, mask=None, **options):
    """(weights, gradients in scores, k and temperature) of one process, and of several put together."""

    def results(scores, mask, grad, call):
        scores = scores.clone().requires_grad_()
        budget = torch.as_tensor(k, dtype=x.dtype).clone().requires_grad_()
        tau = torch.as_tensor(temperature, dtype=x.dtype).clone().requires_grad_()
        y = call(scores, budget, method, temperature=tau, mask=mask, **options)
        return (y.detach(), *torch.autograd.grad((y * grad).sum(), (scores, budget, tau)))

    grad = torch.randn(x.shape, dtype=x.dtype, generator=torch.Generator().manual_seed(9))
    one = results(x, mask, grad, khot.topk)

    def work(group):
        cut_mask = None if mask is None else halves(mask, cut, group.rank)
        parts = halves(x, cut, group.rank), cut_mask, halves(grad, cut, group.rank)
        return results(*parts, lambda *a, **b: parallel.topk(*a, group=group, **b))

    parts = unwrapped(in_threads(len(cut), work))
    for part in parts[1:]:  # all have the whole gradient of k and of the temperature
        assert torch.equal(part[2], parts[0][2])
        assert torch.equal(part[3], parts[0][3])
    several = (
        torch.cat([part[0] for part in parts], -1),
        torch.cat([part[1] for part in parts], -1),
        *parts[0][2:],
    )
    return one, several


def assert_equal(one, several, tolerance=1e-6, temperature=1.0):
    """Gradients in scores relative to the largest of the row; to 1/τ in nearly hard rows, where it vanishes.

    Those in k and in the temperature are sums over the row.
    """
    for name, a, b in zip(("weights", "scores", "k", "temperature"), one, several, strict=True):
        unit = max(1.0, a.abs().max().item(), 1 / temperature if name == "temperature" else 1.0)
        if name == "scores":
            least = 1e-12 if temperature >= 0.1 else 1 / temperature
            unit = a.abs().amax(-1, keepdim=True).clamp_min(least)
        assert ((a - b).abs() <= tolerance * unit).all(), (name, a, b)


def scores(kind, dtype):
    x = torch.randn(4, 30, dtype=dtype, generator=torch.Generator().manual_seed(1))
    if kind == "tied":
        return x.round()
    if kind == "infinite":
        x[0, 3], x[1, :8], x[2, :9], x[3, 4:] = INF, -INF, INF, -INF
    if kind == "large":
        x = 1e30 * x.round()
    return x


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("method", ["sigmoid", "laplace", "sparse"])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_as_one_process(method, cut, dtype):
    each_row = torch.tensor([1.0, 2.5, 7.0, 30.0], dtype=dtype)
    budgets = {"plain": (1, 2.5, 30, each_row), "tied": (0, 15, 29.5), "infinite": (3, 8)}
    for kind, ks in budgets.items():
        for k in ks:
            temperature = 0.01 if kind == "tied" else 1.0
            one, several = both(method, scores(kind, dtype), k, temperature, cut)
            assert_equal(one, several, temperature=temperature)


@pytest.mark.parametrize("method", ["sigmoid", "laplace", "sparse"])
def test_nearly_hard_rows_have_the_gradient_in_k_of_one_process(method):
    """Slopes underflow, their ratios do not."""
    x = scores("plain", torch.float64)
    for temperature in (1e-4, 1e-6):
        one, several = both(method, x, 4, temperature, CUTS[1])
        torch.testing.assert_close(several[0], one[0], atol=1e-6, rtol=0)
        torch.testing.assert_close(several[2], one[2], atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("method", ["sigmoid", "laplace", "sparse"])
def test_masks_also_of_whole_shards(method):
    x = scores("plain", torch.float64)
    mask = torch.rand(4, 30, generator=torch.Generator().manual_seed(3)) < 0.6
    mask[:, 7:27] = False  # all of the third shard
    mask[0, :] = False
    for k in (0, 2, 5.5):
        assert_equal(*both(method, x, k, 0.5, CUTS[1], mask=mask))


def test_another_norm_of_the_sparse_gate():
    assert_equal(*both("sparse", scores("plain", torch.float64), 3.5, 0.7, CUTS[0], norm=1.5))


def test_the_smallest_and_another_dimension():
    x = torch.randn(3, 30, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    one = khot.laplace_topk(x, 4, dim=1, largest=False)

    def work(group):
        return parallel.laplace_topk(x.split([10, 20], 1)[group.rank], 4, dim=1, largest=False, group=group)

    torch.testing.assert_close(torch.cat(unwrapped(in_threads(2, work)), 1), one, atol=1e-9, rtol=0)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_types(dtype):
    x = scores("plain", torch.float32).to(dtype)

    def work(group):
        part = halves(x, CUTS[0], group.rank).clone().requires_grad_()
        y = parallel.sigmoid_topk(part, 5, group=group)
        y.sum().backward()
        return y.detach(), part.grad

    parts = unwrapped(in_threads(2, work))
    assert {part.dtype for pair in parts for part in pair} == {dtype}
    one = khot.sigmoid_topk(x, 5)
    assert (torch.cat([y for y, _ in parts], -1) - one).abs().max() <= torch.finfo(dtype).eps


def test_hard_has_the_value_of_hard_and_the_gradient_of_the_relaxation():
    x = scores("tied", torch.float64)

    def work(group):
        part = halves(x, CUTS[1], group.rank).clone().requires_grad_()
        y = parallel.topk(part, 6, hard=True, group=group)
        (y * halves(weight, CUTS[1], group.rank)).sum().backward()
        return y.detach(), part.grad

    weight = torch.randn(4, 30, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    parts = unwrapped(in_threads(4, work))
    whole = x.clone().requires_grad_()
    y = khot.topk(whole, 6, hard=True)
    (y * weight).sum().backward()
    assert torch.equal(torch.cat([each for each, _ in parts], -1), y.detach())
    torch.testing.assert_close(torch.cat([each for _, each in parts], -1), whole.grad, atol=1e-9, rtol=0)


def test_a_nan_spoils_its_row_alone():
    x = scores("plain", torch.float32)
    x[1, 20] = math.nan
    parts = unwrapped(
        in_threads(2, lambda group: parallel.sigmoid_topk(halves(x, CUTS[0], group.rank), 3, group=group))
    )
    y = torch.cat(parts, -1)
    assert y[1].isnan().all()
    assert torch.equal(y[[0, 2, 3]].isnan(), torch.zeros(3, 30, dtype=torch.bool))
    torch.testing.assert_close(y[0], khot.sigmoid_topk(x[0], 3), atol=1e-6, rtol=0)


def test_large_scores():
    x = scores("large", torch.float32)
    x[0, :3] = 1e38
    for method in ("sigmoid", "laplace", "sparse"):
        one, several = both(method, x, 2, 1.0, CUTS[1])
        torch.testing.assert_close(several[0], one[0], atol=1e-6, rtol=0)


def test_a_long_row_is_solved_first_by_a_part_of_it_and_no_score_is_sent():
    """What is sent does not grow with n: 32 numbers a message at most, of one row."""
    sent = {}
    for n in (3_000, 600_000):
        x = torch.randn(n, generator=torch.Generator().manual_seed(0))
        cut = [n // 3, n - n // 3]

        def work(group, x=x, cut=cut):
            part = halves(x, cut, group.rank).clone().requires_grad_()
            y = parallel.sigmoid_topk(part, x.numel() // 50, temperature=0.3, group=group)
            before = len(group.calls)
            y.square().sum().backward()
            assert len(group.calls) == before + 1  # one message in the backward pass
            return y.detach(), part.grad, list(group.calls)

        parts = unwrapped(in_threads(2, work))
        assert parts[0][2] == parts[1][2]  # all make the same calls
        sent[n] = parts[0][2]
        whole = x.clone().requires_grad_()
        y = khot.sigmoid_topk(whole, n // 50, temperature=0.3)
        y.square().sum().backward()
        torch.testing.assert_close(torch.cat([p[0] for p in parts]), y.detach(), atol=1e-6, rtol=0)
        largest = whole.grad.abs().max().item()
        torch.testing.assert_close(torch.cat([p[1] for p in parts]), whole.grad, atol=1e-6 * largest, rtol=0)
    for n, (most, messages) in {3_000: (33, 20), 600_000: (16, 7)}.items():
        assert max(math.prod(shape) for _, shape in sent[n]) <= most
        assert len(sent[n]) <= messages


def test_shards_that_are_sorted():
    """Each process has other scores than the others: the guess of a bracket is wrong."""
    x = torch.randn(600_000, generator=torch.Generator().manual_seed(0)).sort().values

    def work(group):
        return parallel.laplace_topk(x.chunk(3)[group.rank], 1000, temperature=0.2, group=group)

    one = khot.laplace_topk(x, 1000, temperature=0.2)
    torch.testing.assert_close(torch.cat(unwrapped(in_threads(3, work))), one, atol=1e-6, rtol=0)


LONG = 1 << 18


@pytest.mark.parametrize("method", ["sigmoid", "laplace", "sparse"])
@pytest.mark.parametrize("kind", ["plain", "infinite", "masked", "tied", "nearly hard", "apart", "hard"])
def test_long_rows_of_every_kind(method, kind):
    """Those with a good guess, and those that must do without: values and gradients are of one process."""
    x = torch.randn(1, LONG, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    temperature = {"nearly hard": 1e-4, "hard": 1e-9}.get(kind, 0.5)
    mask = None
    if kind == "infinite":
        x[0, :5], x[0, 5:900] = INF, -INF
    if kind == "masked":
        mask = torch.rand(x.shape, generator=torch.Generator().manual_seed(3)) < 0.4
    if kind == "tied":
        x = x.mul(4).round()
    if kind == "apart":
        x[:, : LONG // 4] += 3  # the first process has most of what is chosen
    one, several = both(method, x, 2000, temperature, [LONG // 4, LONG - LONG // 4], mask=mask)
    if kind == "hard":  # derivatives are beyond any number
        one, several = (each[:1] + each[2:3] for each in (one, several))
        assert all((a - b).abs().max() <= 1e-6 for a, b in zip(one, several, strict=True))
    else:
        assert_equal(one, several, temperature=temperature)


def test_a_nan_in_a_long_row():
    x = torch.randn(LONG, generator=torch.Generator().manual_seed(0))
    x[7] = math.nan
    parts = unwrapped(
        in_threads(2, lambda group: parallel.sigmoid_topk(x.chunk(2)[group.rank], 100, group=group))
    )
    assert torch.cat(parts).isnan().all()


def test_one_process_alone_calls_the_operator_itself():
    x = scores("plain", torch.float32)
    for name in ("sigmoid", "laplace", "sparse"):
        assert torch.equal(parallel.topk(x, 3, name), khot.topk(x, 3, name))


def test_second_derivatives_are_refused():
    x = scores("plain", torch.float64)

    def work(group):
        part = halves(x, CUTS[0], group.rank).clone().requires_grad_()
        y = parallel.sigmoid_topk(part, 3, group=group)
        (grad,) = torch.autograd.grad(y.square().sum(), part, create_graph=True)
        try:
            grad.sum().backward()
        except RuntimeError as error:
            return str(error)
        return "no error"

    assert all("once_differentiable" in text for text in unwrapped(in_threads(2, work)))


def test_unknown_methods_and_options():
    x = scores("plain", torch.float32)
    with pytest.raises(ValueError, match="method must be 'sigmoid', 'laplace' or 'sparse', got 'softsort'"):
        parallel.topk(x, 3, "softsort")
    with pytest.raises(TypeError, match="method 'sigmoid' has no option norm; it has none"):
        parallel.topk(x, 3, norm=1.5)
