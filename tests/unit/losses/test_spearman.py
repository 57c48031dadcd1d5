"""spearman_loss against scipy, ties and masks included; rows without a correlation; its derivatives."""

import numpy as np
import pytest
import torch
from scipy.stats import pearsonr, rankdata, spearmanr

from khot.losses import SpearmanLoss, spearman_loss
from strategies.random_scores import scores

regularizations = pytest.mark.parametrize("regularization", ["l2", "kl"])


def grades(*shape: int, seed: int = 1) -> torch.Tensor:
    """Integers with many ties."""
    return torch.randint(4, shape, generator=torch.Generator().manual_seed(seed))


@regularizations
@pytest.mark.parametrize("n", [2, 3, 9, 40])
@pytest.mark.parametrize("ties", [False, True])
def test_cold_it_is_one_minus_spearmans_rho(regularization, n, ties):
    x, target = scores(5, n), scores(5, n, seed=1)
    if ties:
        x = x.round()
        x[:, 0] = 7.0  # never constant
        target = grades(5, n)
        target[:, -1] = 9
    expected = [1 - spearmanr(a, b).statistic for a, b in zip(x.numpy(), target.numpy(), strict=True)]
    loss = spearman_loss(x, target, regularization=regularization, temperature=1e-7, reduction="none")
    np.testing.assert_allclose(loss.numpy(), expected, rtol=0, atol=1e-9)


def test_at_the_ends_of_its_range():
    x = torch.arange(6.0)
    assert spearman_loss(x, x.exp(), temperature=0.1).item() == pytest.approx(0, abs=1e-6)
    assert spearman_loss(x, -x, temperature=0.1).item() == pytest.approx(2, abs=1e-6)


def test_hot_it_is_the_correlation_of_the_scores_themselves():
    x, target = scores(12), scores(12, seed=1)
    expected = 1 - pearsonr(x.numpy(), rankdata(target.numpy())).statistic
    assert spearman_loss(x, target, temperature=1e3).item() == pytest.approx(expected, abs=1e-9)


def test_regularization_and_temperature_matter():
    x, target = scores(9), scores(9, seed=1)
    losses = {
        round(spearman_loss(x, target, regularization=r, temperature=t).item(), 8)
        for r in ("l2", "kl")
        for t in (0.3, 1.0)
    }
    assert len(losses) == 4


@regularizations
@pytest.mark.parametrize("excluded_by", ["mask", "-inf"])
def test_what_is_excluded_might_as_well_not_be_there(regularization, excluded_by):
    x, target = scores(4, 8), grades(4, 8)
    mask = scores(4, 8, seed=3) < 0.7
    if excluded_by == "mask":
        x = torch.where(mask, x, 1e6 * scores(4, 8, seed=4)).requires_grad_()
        loss = spearman_loss(x, target, regularization=regularization, mask=mask, reduction="none")
    else:
        x = torch.where(mask, x, -torch.inf).requires_grad_()
        loss = spearman_loss(x, target, regularization=regularization, reduction="none")
    for row in range(4):
        alone = spearman_loss(x[row, mask[row]], target[row, mask[row]], regularization=regularization)
        torch.testing.assert_close(loss[row], alone)
    (grad,) = torch.autograd.grad(loss.sum(), x)
    assert (grad[~mask] == 0).all()
    assert (grad[mask] != 0).any()


def test_an_excluded_nan_does_no_harm():
    x = torch.tensor([1.0, torch.nan, 0.0, 2.0], requires_grad=True)
    mask, target = torch.tensor([True, False, True, True]), torch.tensor([1.0, torch.nan, 5.0, 2.0])
    loss = spearman_loss(x, target, mask=mask)
    (grad,) = torch.autograd.grad(loss, x)
    assert loss.isfinite()
    assert grad.isfinite().all()
    assert loss.item() == pytest.approx(spearman_loss(x[mask], target[mask]).item())


def test_the_largest_target_may_be_level_with_those_excluded():
    x, mask = torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.tensor([True, True, True, False])
    target = torch.tensor([0.0, torch.inf, torch.inf, 1.0])
    expected = 1 - spearmanr([1, 2, 3], [0, 1, 1]).statistic
    assert spearman_loss(x, target, mask=mask, temperature=1e-3).item() == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("x", "target", "mask"),
    [
        ([1.0, 2.0, 3.0], [5.0, 5.0, 5.0], [True, True, True]),
        ([2.0, 2.0, 2.0], [1.0, 2.0, 3.0], [True, True, True]),
        ([1.0, 2.0, 3.0], [1.0, 2.0, 3.0], [False, True, False]),
        ([1.0, 2.0, 3.0], [1.0, 2.0, 3.0], [False, False, False]),
        ([1.0], [1.0], [True]),
    ],
)
def test_a_row_without_variance_has_loss_one_and_no_gradient(x, target, mask, dtype):
    x, mask = torch.tensor(x, dtype=dtype, requires_grad=True), torch.tensor(mask)
    tau = torch.tensor(0.7, requires_grad=True)
    loss = spearman_loss(x, torch.tensor(target), mask=mask, temperature=tau)
    assert loss.item() == 1
    assert all((grad == 0).all() for grad in torch.autograd.grad(loss, (x, tau)))


def test_scores_that_differ_by_rounding_only_do_not_vary():
    """At this temperature float32 ranks are (n + 1)/2 and noise: no correlation of noise."""
    x = torch.randn(50, generator=torch.Generator().manual_seed(0), requires_grad=True)
    loss = spearman_loss(x, torch.arange(50), temperature=1e6)
    assert loss.item() == 1
    assert (torch.autograd.grad(loss, x)[0] == 0).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_infinite_scores_are_the_limit_of_large_ones(dtype):
    tau = torch.tensor(0.5, requires_grad=True)
    results = []
    for top in (torch.inf, 60.0):
        x = torch.tensor([0.3, top, -0.5, 0.4], dtype=dtype, requires_grad=True)
        loss = spearman_loss(x, torch.tensor([3, 1, 2, 0]), temperature=tau)
        results.append((loss, *torch.autograd.grad(loss, (x, tau))))
    for infinite, large in zip(*results, strict=True):
        torch.testing.assert_close(infinite, large)


@pytest.mark.parametrize("temperature", [1e-30, 1e-3, 1.0, 1e30])
@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30, 3e38])
@regularizations
def test_nothing_finite_gives_nan(regularization, scale, temperature):
    x = (scale * torch.tensor([0.3, -1.0, 1.0, 0.3, 0.9])).requires_grad_()
    tau = torch.tensor(temperature, requires_grad=True)
    loss = spearman_loss(x, torch.tensor([1, 1, 0, 4, 2]), temperature=tau, regularization=regularization)
    grads = torch.autograd.grad(loss, (x, tau))
    assert loss.isfinite()
    assert not any(grad.isnan().any() for grad in grads)


@regularizations
def test_derivatives(regularization):
    x, tau = scores(3, 6).requires_grad_(), torch.tensor(0.4, dtype=torch.float64, requires_grad=True)
    mask = torch.arange(6) < torch.tensor([[6], [5], [3]])

    def call(x, tau):
        return spearman_loss(
            x,
            grades(3, 6),
            temperature=tau,
            regularization=regularization,
            mask=mask,
            reduction="none",
        )

    assert torch.autograd.gradcheck(call, (x, tau), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(call, (x, tau))


def test_under_vmap_and_jacobians():
    x, target = scores(3, 6), grades(3, 6)
    alone = torch.stack([spearman_loss(a, b) for a, b in zip(x, target, strict=True)])
    torch.testing.assert_close(torch.func.vmap(spearman_loss)(x, target), alone)
    reverse = torch.func.vmap(torch.func.jacrev(spearman_loss))(x, target)
    forward = torch.func.vmap(torch.func.jacfwd(spearman_loss))(x, target)
    torch.testing.assert_close(reverse, forward)
    assert (reverse != 0).any()


@pytest.mark.full
def test_compiled_and_exported_it_is_the_same():
    x, target, mask = scores(3, 6), grades(3, 6), scores(3, 6, seed=4) > -1
    expected = spearman_loss(x, target, mask=mask)
    torch.testing.assert_close(
        torch.compile(spearman_loss, fullgraph=True, backend="aot_eager")(x, target, mask=mask), expected
    )
    exported = torch.export.export(SpearmanLoss(), (x, target, mask)).module()
    torch.testing.assert_close(exported(x, target, mask), expected)


def test_shapes_and_reductions():
    x, target = scores(3, 7, 2), scores(3, 7, 2, seed=1)
    each = spearman_loss(x, target, dim=1, reduction="none")
    assert each.shape == (3, 2)
    for i, j in np.ndindex(3, 2):
        torch.testing.assert_close(spearman_loss(x[i, :, j], target[i, :, j]), each[i, j])
    torch.testing.assert_close(spearman_loss(x, target, dim=1), each.mean())
    torch.testing.assert_close(spearman_loss(x, target, dim=1, reduction="sum"), each.sum())
    per_row = torch.tensor([0.5, 2.0]).expand(3, 2)
    both = spearman_loss(x, target, dim=1, temperature=per_row, reduction="none")
    torch.testing.assert_close(
        both[:, 1], spearman_loss(x, target, dim=1, temperature=2.0, reduction="none")[:, 1]
    )
    assert spearman_loss(torch.zeros(0, 4), torch.zeros(0, 4), reduction="none").shape == (0,)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_types_are_computed_in_float32(dtype):
    x, target = (4 * scores(2, 300)).to(dtype), scores(2, 300, seed=1)
    loss = spearman_loss(x, target, temperature=0.1, reduction="none")
    assert loss.dtype == dtype
    exact = spearman_loss(x.double(), target, temperature=0.1, reduction="none")
    torch.testing.assert_close(loss.double(), exact, rtol=torch.finfo(dtype).eps, atol=0)


def test_the_target_is_not_differentiated():
    x, target = scores(5).requires_grad_(), scores(5, seed=1).requires_grad_()
    assert torch.autograd.grad(spearman_loss(x, target), target, allow_unused=True)[0] is None


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            {"target": torch.zeros(3)},
            ValueError,
            r"target must have the shape of scores, \(4,\), got .*\(3,\)",
        ),
        ({"scores": torch.arange(4)}, TypeError, "scores must have a floating-point dtype, got torch.int64"),
        ({"scores": torch.tensor(1.0)}, ValueError, "scores must have at least one dimension"),
        ({"regularization": "l1"}, ValueError, "regularization must be 'l2' or 'kl', got 'l1'"),
        ({"temperature": 0.0}, ValueError, "temperature must be positive and finite, got 0"),
        ({"reduction": "max"}, ValueError, "reduction must be 'none', 'mean' or 'sum', got 'max'"),
        ({"dim": 1}, IndexError, r"dim must be in \[-1, 0\], got 1"),
        ({"mask": torch.ones(4)}, TypeError, "mask must be a boolean tensor"),
    ],
)
def test_bad_arguments_are_named(arguments, error, message):
    with pytest.raises(error, match=f"spearman_loss: {message}"):
        spearman_loss(**({"scores": torch.zeros(4), "target": torch.zeros(4)} | arguments))


def test_the_module_is_the_function():
    settings = {"regularization": "kl", "temperature": 0.5, "dim": 0, "reduction": "sum"}
    x, target, mask = scores(5, 3), grades(5, 3), scores(5, 3, seed=5) > -1
    criterion = SpearmanLoss(**settings)
    assert torch.equal(criterion(x, target, mask), spearman_loss(x, target, mask=mask, **settings))
    assert repr(criterion) == "SpearmanLoss(regularization='kl', temperature=0.5, dim=0, reduction='sum')"
    with pytest.raises(ValueError, match="SpearmanLoss: temperature must be positive"):
        SpearmanLoss(temperature=-1.0)
