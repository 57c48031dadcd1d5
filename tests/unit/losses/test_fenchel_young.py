"""fenchel_young_loss: its gradient, its zero, its convexity, and the losses it is known to be."""

import functools
import itertools
import math

import numpy as np
import pytest
import torch
from torch.nn import functional

import khot
from khot.losses import FenchelYoungLoss, fenchel_young_loss
from strategies.random_scores import scores

METHODS = [("sigmoid", {}), ("laplace", {}), ("normal", {}), ("sparse", {}), ("sparse", {"norm": 1.5})]
methods = pytest.mark.parametrize(("method", "options"), METHODS)


def multi_hot(rows: int, n: int, seed: int = 1) -> torch.Tensor:
    """A different number of labels in each row."""
    order = scores(rows, n, seed=seed).argsort(-1)
    return (order <= torch.arange(rows).unsqueeze(-1) % (n - 1)).double()


@methods
def test_the_gradient_is_weights_minus_target(method, options):
    """For budgets that differ between rows, and a temperature other than 1."""
    x, target = scores(6, 5).requires_grad_(), multi_hot(6, 5)
    loss = fenchel_young_loss(x, target, method=method, temperature=0.6, reduction="sum", **options)
    (grad,) = torch.autograd.grad(loss, x)
    y = khot.topk(x.detach(), target.sum(-1), method, temperature=0.6, **options)
    torch.testing.assert_close(grad, y - target, rtol=0, atol=1e-14)


@methods
def test_the_gradient_is_that_of_finite_differences(method, options):
    """In the scores and in the temperature: the value belongs to the gradient."""
    target = 0.2 + 0.6 * torch.rand(3, 5, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    inputs = (scores(3, 5).requires_grad_(), torch.tensor([0.7, 1.0, 2.5]).double().requires_grad_())
    assert torch.autograd.gradcheck(
        lambda x, t: fenchel_young_loss(x, target, method=method, temperature=t, reduction="none", **options),
        inputs,
    )


@methods
def test_the_loss_is_never_negative(method, options):
    for scale in (0.1, 1.0, 10.0, 1e3):
        x, target = scale * scores(200, 6, seed=3), multi_hot(200, 6)
        loss = fenchel_young_loss(x, target, method=method, reduction="none", **options)
        assert (loss >= -1e-13 * scale).all()


@methods
def test_the_loss_is_zero_where_the_weights_are_the_target_and_only_there(method, options):
    x = scores(4, 6, seed=4)
    target = khot.topk(x, 2.5, method, **options)
    at_target = fenchel_young_loss(x, target, method=method, reduction="none", **options)
    torch.testing.assert_close(at_target, torch.zeros(4).double(), rtol=0, atol=1e-14)
    elsewhere = fenchel_young_loss(
        x + scores(4, 6, seed=5), target, method=method, reduction="none", **options
    )
    assert (elsewhere > 1e-3).all()


@methods
def test_a_constant_added_to_the_scores_changes_nothing(method, options):
    x, target = scores(4, 6, seed=6), multi_hot(4, 6)
    losses = [
        fenchel_young_loss(x + c, target, method=method, reduction="none", **options) for c in (0.0, -70.0)
    ]
    torch.testing.assert_close(*losses, rtol=0, atol=1e-12)


@methods
def test_the_loss_is_convex_along_lines(method, options):
    a, b, target = 3 * scores(100, 6, seed=7), 3 * scores(100, 6, seed=8), multi_hot(100, 6)

    def loss(x):
        return fenchel_young_loss(x, target, method=method, reduction="none", **options)

    for share in (0.1, 0.5, 0.8):
        chord = share * loss(a) + (1 - share) * loss(b)
        assert (loss(share * a + (1 - share) * b) <= chord + 1e-12).all()


@pytest.mark.parametrize("temperature", [0.3, 1.0, 4.0])
def test_for_one_of_two_it_is_the_logistic_loss(temperature):
    """y₁ = σ(Δ/2τ), and each of the two weights has its entropy: L = 2τ log(1 + e^{−Δ/2τ})."""
    x = 5 * scores(50, 2, seed=9)
    target = torch.tensor([1.0, 0.0]).double().expand(50, 2)
    margin = (x[:, 0] - x[:, 1]) / (2 * temperature)
    expected = 2 * temperature * functional.softplus(-margin)
    loss = fenchel_young_loss(x, target, temperature=temperature, reduction="none")
    torch.testing.assert_close(loss, expected, rtol=1e-10, atol=1e-12)


def test_sparse_in_closed_form():
    """The sparsemax loss (Martins & Astudillo, 2016): ½ Σ_S (x² − θ²) + ½ − x_l, of scores (1, 0.5, −3)."""
    x = torch.tensor([1.0, 0.5, -3.0], dtype=torch.float64)
    threshold = (1.5 - 1) / 2
    for label in range(3):
        target = functional.one_hot(torch.tensor(label), 3).double()
        expected = ((1 - threshold**2) + (0.25 - threshold**2) + 1) / 2 - x[label].item()
        loss = fenchel_young_loss(x, target, method="sparse")
        assert loss.item() == pytest.approx(expected, rel=1e-12)


def test_the_second_derivative_is_the_jacobian_of_the_weights():
    x, target = scores(5, seed=10), multi_hot(3, 5)[2]
    hessian = torch.autograd.functional.hessian(lambda x: fenchel_young_loss(x, target), x)
    step, k = 1e-5, target.sum().item()
    for i, unit in enumerate(torch.eye(5).double()):
        sides = [khot.sigmoid_topk(x + s * unit, k) for s in (step, -step)]
        torch.testing.assert_close(hessian[:, i], (sides[0] - sides[1]) / (2 * step), rtol=0, atol=1e-8)


def test_all_second_derivatives_are_those_of_finite_differences():
    """Also the mixed ones of scores and temperature."""
    target = multi_hot(2, 4)
    inputs = (scores(2, 4, seed=11).requires_grad_(), torch.tensor(0.8).double().requires_grad_())
    assert torch.autograd.gradgradcheck(lambda x, t: fenchel_young_loss(x, target, temperature=t), inputs)


def test_reductions():
    x, target = scores(3, 4, 5), multi_hot(15, 4).reshape(3, 5, 4).movedim(-1, 1)
    each = fenchel_young_loss(x, target, dim=1, reduction="none")
    assert each.shape == (3, 5)
    for i, j in np.ndindex(3, 5):
        torch.testing.assert_close(fenchel_young_loss(x[i, :, j], target[i, :, j]), each[i, j])
    torch.testing.assert_close(fenchel_young_loss(x, target, dim=1, reduction="sum"), each.sum())
    torch.testing.assert_close(fenchel_young_loss(x, target, dim=1), each.mean())


@methods
@pytest.mark.parametrize("hidden", [0.0, 1e30, math.inf, -math.inf])
def test_masked_entries_are_as_if_they_were_not_there(method, options, hidden):
    x, target = scores(3, 6, seed=12), multi_hot(3, 6)
    target[:, 4:] = 0
    target[0, 0] = 1
    mask = torch.arange(6) < 4
    filled = torch.where(mask, x, hidden).requires_grad_()
    loss = fenchel_young_loss(filled, target, method=method, mask=mask, reduction="none", **options)
    expected = fenchel_young_loss(x[:, :4], target[:, :4], method=method, reduction="none", **options)
    torch.testing.assert_close(loss, expected, rtol=1e-12, atol=1e-13)
    (grad,) = torch.autograd.grad(loss.sum(), filled)
    assert (grad[:, 4:] == 0).all()
    assert grad.isfinite().all()


@methods
def test_excluded_scores_give_no_nan(method, options):
    x = torch.tensor([1.0, -math.inf, 0.5, -math.inf, 2.0], dtype=torch.float64, requires_grad=True)
    target = torch.tensor([1.0, 0.0, 1.0, 0.0, 0.0], dtype=torch.float64)
    loss = fenchel_young_loss(x, target, method=method, **options)
    rest = fenchel_young_loss(x.detach()[::2], target[::2], method=method, **options)
    assert loss.item() == pytest.approx(rest.item(), rel=1e-12)
    (grad,) = torch.autograd.grad(loss, x)
    assert grad.isfinite().all()


@methods
@pytest.mark.parametrize("label", [0.0, 1.0])
def test_all_or_nothing_as_target_costs_nothing(method, options, label):
    x = scores(2, 4).requires_grad_()
    loss = fenchel_young_loss(x, torch.full_like(x, label), method=method, **options)
    assert loss.item() == 0
    assert (torch.autograd.grad(loss, x)[0] == 0).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_labels_of_any_type_and_scores_of_any_precision(dtype):
    x, target = scores(4, 6).to(dtype), multi_hot(4, 6)
    expected = fenchel_young_loss(x.double(), target)
    for labels in (target.bool(), target.long(), target.float()):
        loss = fenchel_young_loss(x, labels)
        assert loss.dtype == dtype
        assert loss.item() == pytest.approx(expected.item(), rel=8 * torch.finfo(dtype).eps)


def test_targets_of_another_shape_are_an_error():
    with pytest.raises(
        ValueError, match=r"fenchel_young_loss: target must have the shape of scores, \(3, 4\), got \(3,\)"
    ):
        fenchel_young_loss(scores(3, 4), torch.zeros(3))


def test_targets_out_of_range_are_an_error():
    for target in (torch.tensor([1.5, 0.0]), torch.tensor([-0.5, 1.0]), torch.tensor([math.nan, 1.0])):
        with pytest.raises(
            ValueError, match=r"fenchel_young_loss: target must lie in \[0, 1\], got values in"
        ):
            fenchel_young_loss(scores(2), target)


def test_a_target_behind_the_mask_is_an_error():
    with pytest.raises(ValueError, match="fenchel_young_loss: target must be 0 where mask is False"):
        fenchel_young_loss(scores(2), torch.tensor([1.0, 0.0]), mask=torch.tensor([False, True]))


def test_other_bad_arguments_are_errors():
    target = torch.tensor([1.0, 0.0])
    with pytest.raises(
        ValueError, match=r"method must be 'sigmoid', 'laplace', 'normal' or 'sparse', got 'soft'"
    ):
        fenchel_young_loss(scores(2), target, method="soft")
    with pytest.raises(ValueError, match=r"fenchel_young_loss: reduction must be .* got 'max'"):
        fenchel_young_loss(scores(2), target, reduction="max")
    with pytest.raises(
        ValueError, match="fenchel_young_loss: temperature must be positive and finite, got 0"
    ):
        fenchel_young_loss(scores(2), target, temperature=0)
    with pytest.raises(ValueError, match=r"fenchel_young_loss: norm must be in \(1, 2\], got 3"):
        fenchel_young_loss(scores(2), target, method="sparse", norm=3)
    with pytest.raises(TypeError, match="'sigmoid' has no option 'norm'"):
        fenchel_young_loss(scores(2), target, norm=2)


@methods
def test_the_module_is_the_function(method, options):
    x, target = scores(3, 5, 2), multi_hot(6, 5).reshape(3, 2, 5).movedim(-1, 1)
    mask = target.bool() | (scores(3, 5, 2, seed=3) > 0)
    settings = {"method": method, "temperature": 0.4, "dim": 1, "reduction": "sum", **options}
    criterion = FenchelYoungLoss(**settings)
    assert torch.equal(criterion(x, target), fenchel_young_loss(x, target, **settings))
    assert torch.equal(criterion(x, target, mask), fenchel_young_loss(x, target, mask=mask, **settings))
    assert not list(criterion.parameters())


def test_the_module_shows_its_settings():
    expected = "FenchelYoungLoss(method='sparse', temperature=0.5, dim=-1, reduction='mean', norm=1.5)"
    assert repr(FenchelYoungLoss(method="sparse", temperature=0.5, norm=1.5)) == expected


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "soft"}, "method must be 'sigmoid', .* or 'sparse', got 'soft'"),
        ({"reduction": "max"}, "reduction must be .*, got 'max'"),
        ({"temperature": -1.0}, r"temperature must be positive and finite, got -1\.0"),
        ({"method": "sparse", "norm": 1}, r"norm must be in \(1, 2\], got 1"),
    ],
)
def test_bad_settings_are_errors_of_the_module(settings, message):
    with pytest.raises(ValueError, match=f"FenchelYoungLoss: {message}"):
        FenchelYoungLoss(**settings)


@methods
def test_torch_func_sees_the_same_gradient(method, options):
    x, target = scores(4, 5).requires_grad_(), multi_hot(4, 5)
    loss = functools.partial(fenchel_young_loss, method=method, reduction="sum", **options)
    (expected,) = torch.autograd.grad(loss(x, target), x)
    torch.testing.assert_close(torch.func.grad(loss)(x.detach(), target), expected)
    each = torch.func.vmap(torch.func.grad(loss))(x.detach(), target)
    torch.testing.assert_close(each, expected)


@methods
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_scores_at_both_ends_of_the_type_give_no_nan(method, options, dtype):
    """Products with them add up to infinities of both signs."""
    most = torch.finfo(dtype).max
    x = torch.tensor([[most, most, most, -most, -most, -most]] * 2, dtype=dtype, requires_grad=True)
    target = torch.tensor([[1.0, 1, 1, 0, 0, 0], [0, 0, 0, 1, 1, 1]])
    temperature = torch.tensor(0.5, dtype=dtype, requires_grad=True)
    losses = fenchel_young_loss(
        x, target, method=method, temperature=temperature, reduction="none", **options
    )
    assert losses.tolist() == [0, float("inf")]
    for grad in torch.autograd.grad(losses[0], (x, temperature)):
        assert (grad == 0).all()
    (grad,) = torch.autograd.grad(fenchel_young_loss(x, target, method=method, reduction="sum", **options), x)
    assert grad.tolist() == [[0] * 6, [1, 1, 1, -1, -1, -1]]


@methods
def test_a_far_score_counts_as_much_as_its_weight_is_off(method, options):
    x = torch.tensor([[1e35, 2.0, -3e35, 0.5]], dtype=torch.float64)
    target = torch.tensor([[0.0, 1.0, 1.0, 0.0]])
    loss = fenchel_young_loss(x, target, method=method, **options)
    assert loss.item() == pytest.approx(4e35, rel=1e-12)


@methods
def test_forward_mode_and_every_mix_of_the_modes(method, options):
    """In scores and temperature, eager; forward over forward is what torch has for no function of its own."""
    x, target = scores(5), torch.tensor([1.0, 0.0, 0.5, 0.5, 0.0], dtype=torch.float64)
    temperature = torch.tensor(0.7, dtype=torch.float64)

    def loss(x, temperature):
        return fenchel_young_loss(x, target, method=method, temperature=temperature, **options)

    both = (0, 1)
    forward = torch.func.jacfwd(loss, both)(x, temperature)
    reverse = torch.func.jacrev(loss, both)(x, temperature)
    torch.testing.assert_close(forward, reverse, rtol=1e-12, atol=1e-14)
    expected = torch.func.jacrev(torch.func.jacrev(loss, both), both)(x, temperature)
    for found in (
        torch.func.hessian(loss, both)(x, temperature),
        torch.func.jacrev(torch.func.jacfwd(loss, both), both)(x, temperature),
    ):
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-14)


def test_forward_mode_in_a_compiled_graph():
    x, target = scores(5), torch.tensor([1.0, 0.0, 0.5, 0.5, 0.0])
    direction = scores(5, seed=1)

    def moved(x, direction):
        return torch.func.jvp(lambda x: fenchel_young_loss(x, target), (x,), (direction,))

    compiled = torch.compile(moved, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(x, direction), moved(x, direction))


@methods
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_extreme_temperatures_give_no_nan(method, options, dtype):
    """As in the operators, a temperature that the type cannot hold is the nearest that it can."""
    most = torch.finfo(dtype).max
    rows = ([0.0, 0.0, 0.0], [4.86, -math.inf, 4.86], [most, -most, -most], [-most, most, most])
    for row, number in itertools.product(rows, [1e-320, 1e-50, 1e50, 1e308]):
        for temperature in (number, torch.tensor(number, dtype=torch.float64, requires_grad=True)):
            x = torch.tensor(row, dtype=dtype, requires_grad=True)
            target = torch.tensor([0.5, 0.0, 0.5])
            loss = fenchel_young_loss(x, target, method=method, temperature=temperature, **options)
            assert loss >= -1e-6, (row, temperature)
            inputs = [x, temperature] if isinstance(temperature, torch.Tensor) else [x]
            for grad in torch.autograd.grad(loss, inputs):
                assert not grad.isnan().any(), (row, temperature)
