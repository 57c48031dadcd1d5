"""soft_quantile and soft_median against torch.quantile, numpy, and the mean; masks, shapes, derivatives."""

import numpy as np
import pytest
import torch

from khot import soft_median, soft_quantile
from khot.testing import truth
from strategies.quick_run import costly
from strategies.random_scores import scores as values

QUANTILES = [0.0, 0.1, 0.25, 0.5, 0.77, 1.0]


@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("q", [0.3, torch.tensor(0.3).double(), torch.tensor(QUANTILES).double()])
def test_cold_it_is_torchs_quantile_of_the_same_shape(dim, keepdim, q):
    x = values(4, 5, 6)
    result = soft_quantile(x, q, dim=dim, keepdim=keepdim, temperature=1e-6)
    torch.testing.assert_close(result, torch.quantile(x, q, dim=dim, keepdim=keepdim), rtol=0, atol=1e-9)


@pytest.mark.parametrize("q", QUANTILES)
@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_cold_it_is_numpys_quantile_ties_included(q, n):
    x = values(n).round()
    expected = np.quantile(x.numpy(), q)
    assert soft_quantile(x, q, temperature=1e-6).item() == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("temperature", [0.05, 1.0, 20.0])
@pytest.mark.parametrize("n", [1, 2, 7])
def test_it_is_what_a_unit_of_budget_adds_to_the_true_weights(n, temperature):
    x = values(n)
    for q in QUANTILES:
        r = (1 - q) * (n - 1)
        more, less = (_weights(x.numpy(), budget, temperature) for budget in (r + 1, r))
        expected = float(((more - less) * x.numpy()).sum())
        assert soft_quantile(x, q, temperature=temperature).item() == pytest.approx(expected, abs=1e-11)


def _weights(row: np.ndarray, budget: float, temperature: float) -> np.ndarray:
    if budget in (0, len(row)):
        return np.full(len(row), float(budget > 0))
    return truth.sigmoid(row, budget, temperature)


def test_hot_it_is_the_mean():
    x = values(3, 7)
    for q in (0.0, 0.4, 1.0):
        torch.testing.assert_close(soft_quantile(x, q, temperature=1e9), x.mean(-1), rtol=0, atol=1e-6)


@pytest.mark.parametrize("scale", [1e-12, 0.3, 1e9])
@pytest.mark.parametrize("shift", [0.0, -40.0, 1e6])
def test_the_temperature_is_in_the_units_of_the_values(scale, shift):
    x, q = values(4, 30), torch.tensor(QUANTILES, dtype=torch.float64)
    for temperature in (0.02, 0.7, 30.0):
        scaled = soft_quantile(scale * (x + shift), q, temperature=scale * temperature)
        expected = scale * (soft_quantile(x, q, temperature=temperature) + shift)
        torch.testing.assert_close(scaled, expected, rtol=1e-12, atol=1e-13 * scale * (1 + abs(shift)))


@pytest.mark.parametrize("temperature", [1e-3, 0.1, 1.0, 10.0])
def test_quantiles_do_not_cross_and_stay_among_the_values(temperature):
    heavy = torch.tan(1.5 * values(5, 40).clamp(-1, 1))
    result = soft_quantile(heavy, torch.linspace(0, 1, 400).double(), temperature=temperature)
    assert result.diff(dim=0).min() >= -1e-12
    assert (result[0] >= heavy.amin(-1) - 1e-12).all()
    assert (result[-1] <= heavy.amax(-1) + 1e-12).all()


def test_at_the_size_of_the_spread_most_entries_have_a_gradient():
    x = values(100).requires_grad_()
    cold, warm = (torch.autograd.grad(soft_median(x, temperature=t), x)[0] for t in (1e-6, 1.0))
    assert (cold.abs() > 1e-6).sum() <= 2
    assert (warm.abs() > 1e-3).sum() > 90
    for gradient in (cold, warm):
        assert gradient.sum().item() == pytest.approx(1)


def test_the_gradient_in_q_is_right_at_the_ends():
    x = values(6)
    for end, step in ((0.0, 1e-6), (1.0, -1e-6)):
        q = torch.tensor(end, dtype=torch.float64, requires_grad=True)
        (slope,) = torch.autograd.grad(soft_quantile(x, q, temperature=0.5), q)
        inside, further = (soft_quantile(x, end + factor * step, temperature=0.5) for factor in (1, 2))
        at_end = soft_quantile(x, end, temperature=0.5)
        one_sided = (4 * inside - further - 3 * at_end) / (2 * step)
        assert slope.item() == pytest.approx(one_sided.item(), rel=1e-4)


def test_a_value_that_is_not_finite_gives_nan_in_its_row_alone():
    x = values(4, 5)
    x[0, 1], x[1, 2], x[2, 3] = torch.inf, -torch.inf, torch.nan
    assert soft_quantile(x, 0.5).isnan().tolist() == [True, True, True, False]
    assert soft_quantile(x, 0.5, mask=x.isfinite()).isfinite().all()


@pytest.mark.parametrize("n", [5, 6])
def test_the_median_of_an_even_number_is_the_mean_of_the_middle_two(n):
    x = values(3, n)
    expected = np.median(x.numpy(), axis=-1)
    np.testing.assert_allclose(soft_median(x, temperature=1e-6).numpy(), expected, atol=1e-9)
    for settings in ({"temperature": 3.0}, {"dim": 0, "keepdim": True}):
        assert torch.equal(soft_median(x, **settings), soft_quantile(x, 0.5, **settings))


@pytest.mark.parametrize("temperature", [1e-6, 0.5, 4.0])
@pytest.mark.parametrize("scale", [1.0, 1e20])
def test_what_is_excluded_might_as_well_not_be_there(temperature, scale):
    mask = values(6, 9, seed=1) < 0.5
    x = scale * torch.where(mask, values(6, 9), torch.tensor([-7.0, 7.0, torch.nan]).double().repeat(3))
    x.requires_grad_()
    q = torch.tensor(QUANTILES, dtype=torch.float64)
    settings = {"temperature": scale * temperature}
    result = soft_quantile(x, q, mask=mask, **settings)
    (grad,) = torch.autograd.grad(result.sum(), x)
    assert (grad[~mask] == 0).all()
    for row in range(6):
        alone = x.detach()[row, mask[row]].requires_grad_()
        expected = soft_quantile(alone, q, **settings)
        torch.testing.assert_close(result[:, row], expected, rtol=1e-9, atol=1e-9 * scale)
        torch.testing.assert_close(grad[row, mask[row]], torch.autograd.grad(expected.sum(), alone)[0])


def test_a_row_without_allowed_entries_is_zero():
    x = values(2, 3).requires_grad_()
    mask = torch.tensor([[False, False, False], [False, True, False]])
    result = soft_quantile(x, 0.3, mask=mask)
    assert result.tolist() == [0, x[1, 1].item()]
    (grad,) = torch.autograd.grad(result.sum(), x)
    assert grad.tolist() == [[0, 0, 0], [0, 1, 0]]


@pytest.mark.parametrize("temperature", [0.2, costly(3.0)])
def test_derivatives(temperature):
    inputs = (
        values(3, 6).requires_grad_(),
        torch.tensor([0.13, 0.5, 0.9], dtype=torch.float64, requires_grad=True),
        torch.tensor(temperature, dtype=torch.float64, requires_grad=True),
    )
    mask = torch.arange(6) < torch.tensor([[6], [4], [1]])

    def call(x, q, tau):
        return soft_quantile(x, q, temperature=tau, mask=mask)

    assert torch.autograd.gradcheck(call, inputs, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(call, inputs, fast_mode=True)


@pytest.mark.parametrize("temperature", [1e-45, 1e-30, 1.0, 1e30])
@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e37])
@pytest.mark.parametrize("masked", [False, True])
def test_nothing_finite_gives_nan(scale, temperature, masked):
    x = (scale * torch.tensor([0.3, -1.0, 1.0, 0.3, 0.9])).requires_grad_()
    mask = torch.tensor([True, True, True, False, True]) if masked else None
    result = soft_quantile(x, 0.4, temperature=temperature, mask=mask)
    assert result.isfinite()
    assert torch.autograd.grad(result, x)[0].isfinite().all()


@pytest.mark.parametrize("share", [0.9, 1.0])
@pytest.mark.parametrize("signs", [[1, -1, -1], [1, -1, -1, 1, -1], [1, -1, -1, 1, -1, -1, -1]])
def test_differences_of_values_beyond_all_numbers(share, signs):
    largest = share * torch.finfo(torch.float64).max
    x = (largest * torch.tensor(signs, dtype=torch.float64)).requires_grad_()
    result = soft_quantile(x, torch.tensor([0.0, 1.0, 0.25]))
    torch.testing.assert_close(result, x.detach()[[1, 0, 1]])
    assert torch.autograd.grad(result.sum(), x)[0].isfinite().all()


def test_the_place_is_right_in_a_long_row():
    n = 3_000_001
    x = torch.arange(n, dtype=torch.float32) - 370_370
    assert soft_quantile(x, 0.1234567, temperature=1e-3).item() == pytest.approx(0.1, abs=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_types_are_rounded_once(dtype):
    x = values(3, 40).to(dtype)
    result = soft_quantile(x, 0.3, temperature=2.0)
    assert result.dtype == dtype
    exact = soft_quantile(x.double(), 0.3, temperature=2.0)
    torch.testing.assert_close(result.double(), exact, rtol=torch.finfo(dtype).eps / 2, atol=0)


def test_under_vmap_and_jacobians():
    x = values(3, 6)
    torch.testing.assert_close(torch.func.vmap(soft_median)(x), soft_median(x))
    reverse = torch.func.vmap(torch.func.jacrev(soft_median))(x)
    torch.testing.assert_close(reverse, torch.func.vmap(torch.func.jacfwd(soft_median))(x))


@pytest.mark.full
def test_compiled_and_exported_it_is_the_same():
    x, mask, q = values(3, 6), values(3, 6, seed=1) > -1, torch.tensor([0.2, 0.9])

    class Quantiles(torch.nn.Module):
        def forward(self, x, q, mask):
            return soft_quantile(x, q, mask=mask)

    expected = soft_quantile(x, q, mask=mask)
    compiled = torch.compile(soft_quantile, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled(x, q, mask=mask), expected)
    torch.testing.assert_close(torch.export.export(Quantiles(), (x, q, mask)).module()(x, q, mask), expected)


def test_empty_batches_and_empty_rows():
    assert soft_quantile(torch.zeros(0, 3), torch.tensor([0.1, 0.2])).shape == (2, 0)
    with pytest.raises(ValueError, match=r"soft_quantile: x must have an entry along dim -1, got .*\(3, 0\)"):
        soft_quantile(torch.zeros(3, 0), 0.5)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"q": 1.5}, ValueError, r"q must lie in \[0, 1\], got 1.5"),
        (
            {"q": torch.tensor([0.5, -0.5])},
            ValueError,
            r"q must lie in \[0, 1\], got values in \[-0.5, 0.5\]",
        ),
        ({"q": torch.zeros(2, 2)}, ValueError, r"at most one dimension, got .* \(2, 2\)"),
        ({"q": torch.tensor(1)}, ValueError, "q must be a number or a floating-point tensor .* torch.int64"),
        ({"temperature": 0.0}, ValueError, "temperature must be positive and finite, got 0"),
        ({"q": "a"}, TypeError, "q must be a number or a tensor, got 'a'"),
        ({"q": True}, TypeError, "q must be a number or a tensor, got True"),
        ({"temperature": torch.ones(3)}, ValueError, r"temperature must broadcast to .* got shape \(3,\)"),
        ({"mask": torch.ones(3)}, TypeError, "mask must be a boolean tensor"),
        ({"x": torch.arange(3)}, TypeError, "x must have a floating-point dtype"),
        ({"dim": 2}, IndexError, r"dim must be in \[-1, 0\], got 2"),
    ],
)
def test_bad_arguments_are_named(arguments, error, message):
    with pytest.raises(error, match=f"soft_quantile: .*{message}"):
        soft_quantile(**({"x": torch.zeros(3), "q": 0.5} | arguments))
