"""soft_rank and soft_sort against scikit-learn, scipy and a quadratic programme over the permutahedron."""

import itertools

import numpy as np
import pytest
import torch
from scipy.optimize import minimize
from scipy.stats import rankdata
from sklearn.isotonic import IsotonicRegression

from khot.kernels import cpu, loader
from khot.relaxations import soft_rank, soft_sort
from khot.relaxations.ranks import _isotonic
from strategies.quick_run import in_turn

DTYPES = [torch.float32, torch.float64]


@pytest.fixture(params=["compiled", "portable"], autouse=True)
def path(request, monkeypatch):
    if request.param == "portable":
        absent = (None, loader.NativeStatus(False, "switched off by the test"), False)
        monkeypatch.setattr(loader, "_decision", lambda: absent)
    return request.param


def row(n, seed=0, dtype=torch.float64):
    return torch.randn(n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def nearest_in_the_permutahedron(z):
    """By a quadratic programme over convex combinations of all n! permutations."""
    vertices = np.array(list(itertools.permutations(range(1, len(z) + 1))), dtype=float)
    weights = np.full(len(vertices), 1 / len(vertices))
    answer = minimize(
        lambda p: 0.5 * np.sum((p @ vertices - z) ** 2),
        weights,
        jac=lambda p: vertices @ (p @ vertices - z),
        bounds=[(0, 1)] * len(vertices),
        constraints={"type": "eq", "fun": lambda p: p.sum() - 1, "jac": lambda p: np.ones_like(p)},
        method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 1000},
    )
    return answer.x @ vertices


@pytest.mark.parametrize("temperature", [0.2, 1.0, 4.0])
@pytest.mark.parametrize("seed", range(3))
def test_ranks_are_the_nearest_point_of_the_permutahedron(seed, temperature):
    x = row(4, seed)
    expected = nearest_in_the_permutahedron(x.numpy() / temperature)
    np.testing.assert_allclose(soft_rank(x, temperature=temperature).numpy(), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("n", [2, 7, 60])
@pytest.mark.parametrize("temperature", [0.05, 0.7, 30.0])
def test_ranks_by_isotonic_regression(n, temperature):
    x = row(n, n).numpy() / temperature
    order = np.argsort(-x)
    targets = x[order] - np.arange(n, 0, -1)
    dual = IsotonicRegression(increasing=False).fit_transform(np.arange(n), targets)
    expected = np.empty(n)
    expected[order] = x[order] - dual
    result = soft_rank(torch.from_numpy(x), temperature=1.0)
    np.testing.assert_allclose(result.numpy(), expected, rtol=0, atol=1e-9 * max(1, np.abs(x).max()))


@pytest.mark.parametrize("regularization", ["l2", "kl"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_cold_ranks_are_ranks_and_ties_share(regularization, dtype):
    x = torch.tensor([3.0, -1.0, 2.0, 3.0, 1e30, -1e30, 2.5], dtype=dtype)
    ranks = soft_rank(x, temperature=1e-6, regularization=regularization)
    np.testing.assert_allclose(ranks.numpy(), rankdata(x.numpy()), rtol=1e-6)
    down = soft_rank(x, temperature=1e-6, regularization=regularization, descending=True)
    np.testing.assert_allclose(down.numpy(), rankdata(-x.numpy()), rtol=1e-6)


@pytest.mark.parametrize("regularization", ["l2", "kl"])
@pytest.mark.parametrize("temperature", [0.01, 1.0, 100.0])
def test_ranks_always_sum_to_the_same(regularization, temperature):
    x = torch.stack([row(9, seed) for seed in range(4)])
    ranks = soft_rank(x, temperature=temperature, regularization=regularization)
    np.testing.assert_allclose(ranks.sum(-1).numpy(), 45, rtol=1e-12)
    assert (ranks >= 1 - 1e-9).all()
    assert (ranks <= 9 + 1e-9).all()


@pytest.mark.parametrize("path", ["compiled"], indirect=True)  # elsewhere O(n²) memory, as documented
@pytest.mark.parametrize("regularization", ["l2", "kl"])
def test_a_million_ranks_in_float32_are_right(regularization):
    x = row(1_000_000, 1, torch.float32)
    ranks = soft_rank(x, temperature=2**-30, regularization=regularization)  # exact: no new ties
    assert np.array_equal(ranks.numpy(), rankdata(x.numpy()).astype(np.float32))


@pytest.mark.parametrize("regularization", ["l2", "kl"])
@pytest.mark.parametrize("temperature", [0.1, 1.0])
def test_a_mask_is_as_if_the_entries_were_not_there(regularization, temperature):
    x = torch.stack([row(10, seed) for seed in range(3)]).requires_grad_()
    mask = torch.rand(3, 10, generator=torch.Generator().manual_seed(5)) < 0.6
    mask[2] = False
    options = {"temperature": temperature, "regularization": regularization, "descending": True}
    ranks = soft_rank(x, mask=mask, **options)
    (grad,) = torch.autograd.grad(ranks, x, row(30, 9).reshape(3, 10))
    assert (ranks[~mask] == 0).all()
    assert (grad[~mask] == 0).all()
    assert grad.isfinite().all()
    for r in range(2):
        np.testing.assert_allclose(
            ranks[r, mask[r]].detach().numpy(),
            soft_rank(x[r, mask[r]].detach(), **options).numpy(),
            atol=1e-12,
        )


@pytest.mark.parametrize("regularization", ["l2", "kl"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_mask_is_as_if_the_entries_were_not_there_at_every_magnitude(dtype, regularization):
    mask = torch.tensor([True, True, False, True, True, False])
    coefficients = torch.arange(1.0, 7.0, dtype=dtype)
    largest = torch.finfo(dtype).max
    for scale, temperature, descending, excluded in itertools.product(
        [1e-3, 1.0, 1e9, 1e15, 1e27], [1e-10, 1.0, 1e6], [False, True], [0.0, largest, -torch.inf, torch.nan]
    ):
        case = f"{scale = }, {temperature = }, {descending = }, {excluded = }"
        x = scale * torch.tensor([1.0, 1, 0, -1, -1, 0], dtype=dtype)
        x = torch.where(mask, x, excluded).requires_grad_()
        options = {"temperature": temperature, "regularization": regularization, "descending": descending}
        ranks, alone = soft_rank(x, mask=mask, **options), soft_rank(x[mask], **options)
        torch.testing.assert_close(ranks[mask], alone, msg=case)
        assert (ranks[~mask] == 0).all(), case
        (grad,) = torch.autograd.grad(ranks, x, coefficients)
        (expected,) = torch.autograd.grad(alone, x, coefficients[mask])
        rounding = 1e-6 / temperature  # of ties, where terms cancel
        torch.testing.assert_close(grad, expected, msg=case, rtol=1e-5, atol=rounding)


@pytest.mark.parametrize("regularization", ["l2", "kl"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_the_gradient_in_the_temperature_is_finite_for_the_largest_scores(dtype, regularization):
    largest = 0.97 * torch.finfo(dtype).max
    temperature = torch.tensor(1e6, dtype=dtype, requires_grad=True)
    x = largest * torch.tensor([1.0, -1.0, 1.0], dtype=dtype)
    ranks = soft_rank(x, temperature=temperature, regularization=regularization)
    (grad,) = torch.autograd.grad(ranks, temperature, torch.tensor([1.0, 7.0, 4.0], dtype=dtype))
    assert grad.item() == 0  # the ranks are hard


@pytest.mark.parametrize(
    ("function", "regularization", "temperature"), in_turn([soft_rank, soft_sort], ["l2", "kl"], [0.3, 3.0])
)
def test_derivatives(function, regularization, temperature):
    x = row(12, 3).reshape(2, 6).requires_grad_()
    tau = torch.tensor(temperature, dtype=torch.float64, requires_grad=True)

    def call(x, tau):
        return function(x, temperature=tau, regularization=regularization)

    assert torch.autograd.gradcheck(call, (x, tau), check_forward_ad=True, check_batched_grad=True)
    assert torch.autograd.gradgradcheck(call, (x, tau))


@pytest.mark.parametrize("descending", [True, False])
@pytest.mark.parametrize("regularization", ["l2", "kl"])
def test_soft_sort_at_its_ends(descending, regularization):
    x = row(9, 2)
    cold = soft_sort(x, temperature=1e-6, descending=descending, regularization=regularization)
    torch.testing.assert_close(cold, x.sort(descending=descending).values)
    warm = soft_sort(x, temperature=1e9, descending=descending, regularization=regularization)
    # The mean; of the exponentials for kl, which ascending takes of −x.
    sign = 1 if descending else -1
    mean = x.mean() if regularization == "l2" else sign * (sign * x).exp().mean().log()
    torch.testing.assert_close(warm, mean.expand(9), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("path", ["compiled"], indirect=True)
@pytest.mark.parametrize("kind", ["l2", "kl", "log_kl"])
@pytest.mark.parametrize("seed", range(4))
def test_compiled_and_portable_projections_agree(kind, seed):
    s = (3 * row(40, seed)).reshape(2, 20).sort(-1, descending=True).values
    w = row(20, seed + 9).abs().sort(descending=True).values.expand(2, 20) + 0.1
    p, start = cpu.isotonic(s, w, kind)
    other, other_start = _isotonic._portable(s, w, kind)
    torch.testing.assert_close(p, other, rtol=1e-10, atol=1e-10)
    assert torch.equal(start, other_start)


@pytest.mark.parametrize(
    ("shape", "dim"), [((3, 4, 5), 1), ((5,), 0), ((2, 1, 6), -1), ((0, 4), -1), ((3, 0), -1)]
)
def test_any_rank_and_dim(shape, dim):
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    ranks = soft_rank(x, dim=dim)
    assert ranks.shape == x.shape
    torch.testing.assert_close(ranks, soft_rank(x.movedim(dim, -1)).movedim(-1, dim))
    assert soft_sort(x, dim=dim).shape == x.shape


@pytest.mark.parametrize("function", [soft_rank, soft_sort])
def test_bad_arguments_are_named(function):
    x = torch.zeros(3)
    with pytest.raises(ValueError, match=r"regularization must be 'l2' or 'kl', got 'l1'"):
        function(x, regularization="l1")
    with pytest.raises(ValueError, match="temperature must be positive and finite, got 0"):
        function(x, temperature=0)
    with pytest.raises(TypeError, match="floating-point"):
        function(torch.arange(3))


@pytest.mark.parametrize("regularization", ["l2", "kl"])
@pytest.mark.parametrize("temperature", [1e-6, 0.3, 3.0])
@pytest.mark.parametrize("descending", [False, True])
def test_sorting_under_a_mask_puts_the_allowed_values_first(regularization, temperature, descending):
    x = torch.stack([row(10, seed) for seed in range(3)])
    mask = torch.rand(3, 10, generator=torch.Generator().manual_seed(5)) < 0.6
    mask[2] = False
    x[0] = torch.where(mask[0], x[0], x[0][mask[0]].min())  # those excluded level with the smallest
    x[1] = torch.where(mask[1], x[1], torch.tensor([torch.nan, torch.inf]).double().repeat(5))
    x.requires_grad_()
    options = {"temperature": temperature, "regularization": regularization, "descending": descending}
    values = soft_sort(x, mask=mask, **options)
    (grad,) = torch.autograd.grad(values, x, row(30, 9).reshape(3, 10))
    assert (grad[~mask] == 0).all()
    for r in range(3):
        count = int(mask[r].sum())
        assert (values[r, count:] == 0).all()
        alone = x.detach()[r, mask[r]].requires_grad_()
        expected = soft_sort(alone, **options)
        np.testing.assert_allclose(values[r, :count].detach().numpy(), expected.detach().numpy(), atol=1e-12)
        (expected_grad,) = torch.autograd.grad(expected, alone, row(30, 9).reshape(3, 10)[r, :count])
        np.testing.assert_allclose(grad[r, mask[r]].numpy(), expected_grad.numpy(), atol=1e-12)


@pytest.mark.parametrize(("scale", "temperature"), [(1e8, 1.0), (1e8, 1e-8), (1e12, 1e-11)])
def test_a_masked_sort_keeps_those_excluded_apart_where_one_is_less_than_the_rounding(scale, temperature):
    x = (scale * torch.stack([row(12, seed, torch.float32) for seed in range(40)])).requires_grad_()
    mask = torch.rand(40, 12, generator=torch.Generator().manual_seed(5)) < 0.6
    upstream = torch.stack([row(12, seed + 50, torch.float32) for seed in range(40)])
    (grad,) = torch.autograd.grad(soft_sort(x, temperature=temperature, mask=mask), x, upstream)
    for r in range(40):
        alone = x.detach()[r, mask[r]].requires_grad_()
        expected = soft_sort(alone, temperature=temperature)
        (expected_grad,) = torch.autograd.grad(expected, alone, upstream[r, : len(alone)])
        torch.testing.assert_close(grad[r, mask[r]], expected_grad)


@pytest.mark.parametrize("function", [soft_rank, soft_sort])
@pytest.mark.parametrize("regularization", ["l2", "kl"])
@pytest.mark.parametrize("temperature", [1e-45, 1e-38, 1e-2, 1.0, 1e38])
@pytest.mark.parametrize("scale", [1e-38, 1.0, 1e38])
def test_no_nan_at_the_ends_of_float32_nor_in_the_gradient_of_the_temperature(
    function, regularization, temperature, scale
):
    x = (scale * torch.tensor([1.0, -1.0, 0.3, 0.3])).requires_grad_()
    tau = torch.tensor(temperature, dtype=torch.float64, requires_grad=True)
    result = function(x, temperature=tau, regularization=regularization)
    assert result.isfinite().all()
    grads = torch.autograd.grad(result.sum() + result[0], (x, tau))
    assert not any(grad.isnan().any() for grad in grads)
    number = function(x, temperature=temperature, regularization=regularization)
    torch.testing.assert_close(number, result)


@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("temperature", [1e-3, 0.7, 50.0])
@pytest.mark.parametrize("regularization", ["l2", "kl"])
def test_infinities_keep_their_places_and_the_others_are_sorted_among_themselves(
    regularization, temperature, descending
):
    finite = row(15).view(3, 5)
    inf = torch.full((3, 1), torch.inf, dtype=torch.float64)
    x = torch.cat([inf, finite[:, :2], -inf, finite[:, 2:], inf], -1).requires_grad_()
    settings = {"regularization": regularization, "temperature": temperature, "descending": descending}
    result = soft_sort(x, **settings)
    below, above = (2, 1) if descending else (1, 2)
    ends = -1 if descending else 1
    assert (result[:, :below] == -ends * torch.inf).all()
    assert (result[:, -above:] == ends * torch.inf).all()
    torch.testing.assert_close(result[:, below:-above].detach(), soft_sort(finite, **settings))
    (grad,) = torch.autograd.grad(result[:, below:-above].pow(2).sum(), x)
    assert grad.isfinite().all()
    assert not grad[x.isinf()].any()
    mask = torch.tensor([True, True, True, False, True, True, True, False])
    masked = soft_sort(x, mask=mask, **settings).detach()
    assert (masked[:, 0 if descending else 5] == torch.inf).all()
    assert not masked[:, 6:].any()


@pytest.mark.parametrize("call", [soft_rank, soft_sort])
def test_a_wrong_mask_of_nothing_is_refused(call):
    with pytest.raises(TypeError, match="mask must be a boolean tensor"):
        call(torch.zeros(2, 0), mask=torch.zeros(2, 0))


@pytest.mark.parametrize("regularization", ["l2", "kl"])
def test_ranks_under_vmap_are_those_of_the_batch(regularization):
    x = torch.randn(3, 6, generator=torch.Generator().manual_seed(0))

    def ranks(rows):
        return soft_rank(rows, regularization=regularization)

    def gradient(row):
        return torch.func.grad(lambda one: ranks(one).square().sum())(row)

    torch.testing.assert_close(torch.func.vmap(ranks)(x), ranks(x))
    torch.testing.assert_close(torch.func.vmap(gradient)(x), torch.stack([gradient(row) for row in x]))
