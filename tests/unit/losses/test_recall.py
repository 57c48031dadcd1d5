"""recall_loss against counting, weights from brentq, its edges and derivatives."""

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from scipy.special import expit

from khot.losses import RecallLoss, recall_loss
from strategies.random_scores import scores

METHODS = ["sigmoid", "laplace", "normal", "sparse", "soft_rank", "pairwise"]


def relevant(*shape: int, share: float = 0.4, seed: int = 1) -> torch.Tensor:
    chosen = torch.rand(*shape, generator=torch.Generator().manual_seed(seed)) < share
    chosen[..., 0] = True
    return chosen


def counted(x: torch.Tensor, target: torch.Tensor, k: int) -> list[float]:
    losses = []
    for row, labels in zip(x.numpy(), target.numpy(), strict=True):
        hits = len(set(np.argsort(-row)[:k]) & set(np.flatnonzero(labels)))
        losses.append(1 - hits / min(k, int(labels.sum())))
    return losses


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("k", [1, 3, 9])
def test_cold_it_is_one_minus_recall(method, k):
    x, target = scores(20, 9), relevant(20, 9)
    loss = recall_loss(x, target, k, method=method, temperature=1e-5, reduction="none")
    np.testing.assert_allclose(loss.numpy(), counted(x, target, k), rtol=0, atol=1e-6)


@pytest.mark.parametrize("k", [1, 2, 2.5, 4])
@pytest.mark.parametrize("temperature", [0.3, 2.0])
def test_values_from_brentq(k, temperature):
    x, target = scores(6, 5), relevant(6, 5)
    expected = []
    for row, labels in zip(x.numpy(), target.numpy(), strict=True):
        c = brentq(lambda c, row=row: expit((row + c) / temperature).sum() - k, -60, 60, xtol=1e-13)
        expected.append(1 - expit((row + c) / temperature)[labels].sum() / min(k, labels.sum()))
    loss = recall_loss(x, target, k, temperature=temperature, reduction="none")
    np.testing.assert_allclose(loss.numpy(), expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("temperature", [0.01, 0.5, 5.0])
def test_it_lies_between_zero_and_one(method, temperature):
    x, target = scores(200, 7), relevant(200, 7)
    x[:100] += 2 * target[:100]
    loss = recall_loss(x, target, 3, temperature=temperature, method=method, reduction="none")
    assert (loss >= -1e-12).all()
    assert (loss <= 1 + 1e-12).all()


def test_k_for_each_row():
    x, target, k = scores(4, 6), relevant(4, 6), torch.tensor([1, 2, 3, 6])
    loss = recall_loss(x, target, k, reduction="none")
    for row in range(4):
        torch.testing.assert_close(loss[row], recall_loss(x[row], target[row], int(k[row])))


def test_targets_of_any_kind_are_the_same():
    x, target = scores(4, 6), relevant(4, 6)
    losses = [recall_loss(x, target.to(t), 2).item() for t in (torch.bool, torch.long, torch.float32)]
    assert len(set(losses)) == 1


def test_a_row_with_nothing_to_find_has_loss_zero_and_no_gradient():
    x = scores(3, 4).requires_grad_()
    target, mask = torch.tensor([[0, 0, 0, 0], [1, 0, 0, 0], [1, 1, 0, 0]]), torch.ones(3, 4).bool()
    mask[1, 0] = False
    loss = recall_loss(x, target, 2, mask=mask, reduction="none")
    assert loss[:2].tolist() == [0, 0]
    (grad,) = torch.autograd.grad(loss.sum(), x)
    assert (grad[:2] == 0).all()
    assert (grad[2] != 0).any()
    assert recall_loss(x, target, 0, reduction="none").tolist() == [0, 0, 0]


@pytest.mark.parametrize("excluded_by", ["mask", "-inf"])
def test_what_is_excluded_might_as_well_not_be_there(excluded_by):
    x, target, mask = scores(4, 9), relevant(4, 9), scores(4, 9, seed=3) < 0.6
    if excluded_by == "mask":
        x = torch.where(mask, x, torch.tensor(torch.nan)).requires_grad_()
        loss = recall_loss(x, target, 3, mask=mask, reduction="none")
    else:
        x = torch.where(mask, x, -torch.inf).requires_grad_()
        loss = recall_loss(x, target, 3, reduction="none")
    for row in range(4):
        torch.testing.assert_close(loss[row], recall_loss(x[row, mask[row]], target[row, mask[row]], 3))
    (grad,) = torch.autograd.grad(loss.sum(), x)
    assert (grad[~mask] == 0).all()
    assert (grad[mask] != 0).any()


def test_a_row_shorter_than_k_holds_everything():
    x = scores(1, 5).requires_grad_()
    mask = torch.tensor([[True, True, False, False, False]])
    loss = recall_loss(x, torch.ones(1, 5), 3, mask=mask)
    assert loss.item() == 0
    assert (torch.autograd.grad(loss, x)[0] == 0).all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_infinite_scores_are_the_limit_of_large_ones(dtype):
    tau = torch.tensor(0.5, requires_grad=True)
    results = []
    for top in (torch.inf, 60.0):
        x = torch.tensor([0.3, top, -0.5, 0.4], dtype=dtype, requires_grad=True)
        loss = recall_loss(x, torch.tensor([0, 1, 1, 0]), 2, temperature=tau)
        results.append((loss, *torch.autograd.grad(loss, (x, tau))))
    for infinite, large in zip(*results, strict=True):
        torch.testing.assert_close(infinite, large)


@pytest.mark.parametrize("temperature", [1e-30, 1.0, 1e30])
@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30, 3e38])
def test_nothing_finite_gives_nan(scale, temperature):
    x = (scale * torch.tensor([0.3, -1.0, 1.0, 0.3, 0.9])).requires_grad_()
    tau = torch.tensor(temperature, requires_grad=True)
    loss = recall_loss(x, torch.tensor([1, 1, 0, 1, 0]), 2, temperature=tau)
    grads = torch.autograd.grad(loss, (x, tau))
    assert loss.isfinite()
    assert not any(grad.isnan().any() for grad in grads)


def test_derivatives():
    inputs = (
        scores(3, 6).requires_grad_(),
        torch.tensor([1.5, 2.0, 2.2], dtype=torch.float64, requires_grad=True),
        torch.tensor(0.4, dtype=torch.float64, requires_grad=True),
    )
    target = torch.tensor([[1, 1, 1, 0, 1, 0]]).expand(3, 6)

    def call(x, k, tau):
        return recall_loss(x, target, k, temperature=tau, reduction="none")

    assert torch.autograd.gradcheck(call, inputs, check_forward_ad=True)
    assert torch.autograd.gradgradcheck(call, inputs)


def test_under_vmap_and_jacobians():
    x, target = scores(3, 6), relevant(3, 6)

    def call(x, target):
        return recall_loss(x, target, 2)

    alone = torch.stack([call(a, b) for a, b in zip(x, target, strict=True)])
    torch.testing.assert_close(torch.func.vmap(call)(x, target), alone)
    reverse = torch.func.vmap(torch.func.jacrev(call))(x, target)
    torch.testing.assert_close(reverse, torch.func.vmap(torch.func.jacfwd(call))(x, target))


@pytest.mark.slow
def test_compiled_and_exported_it_is_the_same():
    x, target, mask = scores(3, 6), relevant(3, 6), scores(3, 6, seed=4) > -1
    criterion = RecallLoss(2)
    expected = criterion(x, target, mask)
    torch.testing.assert_close(
        torch.compile(criterion, fullgraph=True, backend="aot_eager")(x, target, mask), expected
    )
    exported = torch.export.export(criterion, (x, target, mask)).module()
    torch.testing.assert_close(exported(x, target, mask), expected)


def test_shapes_and_reductions():
    x, target = scores(3, 7, 2), relevant(3, 2, 7).movedim(-1, 1)
    each = recall_loss(x, target, 3, dim=1, reduction="none")
    assert each.shape == (3, 2)
    for i, j in np.ndindex(3, 2):
        torch.testing.assert_close(recall_loss(x[i, :, j], target[i, :, j], 3), each[i, j])
    torch.testing.assert_close(recall_loss(x, target, 3, dim=1), each.mean())
    torch.testing.assert_close(recall_loss(x, target, 3, dim=1, reduction="sum"), each.sum())
    assert recall_loss(torch.zeros(0, 4), torch.zeros(0, 4), 2, reduction="none").shape == (0,)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_types_are_computed_in_float32(dtype):
    x, target = (4 * scores(2, 300)).to(dtype), relevant(2, 300)
    loss = recall_loss(x, target, 200, reduction="none")
    assert loss.dtype == dtype
    exact = recall_loss(x.double(), target, 200, reduction="none")
    torch.testing.assert_close(loss.double(), exact, rtol=torch.finfo(dtype).eps, atol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"target": torch.zeros(3)}, ValueError, r"target must have the shape of scores, \(4,\)"),
        ({"k": 5}, ValueError, r"k must satisfy 0 <= k <= n = 4 .* got k = 5"),
        ({"k": -1}, ValueError, r"k must satisfy 0 <= k <= n = 4 .* got k = -1"),
        ({"temperature": 0.0}, ValueError, "temperature must be positive and finite, got 0"),
        ({"reduction": "max"}, ValueError, "reduction must be 'none', 'mean' or 'sum', got 'max'"),
        ({"scores": torch.arange(4)}, TypeError, "scores must have a floating-point dtype"),
    ],
)
def test_bad_arguments_are_named(arguments, error, message):
    with pytest.raises(error, match=f"recall_loss: {message}"):
        recall_loss(**({"scores": torch.zeros(4), "target": torch.zeros(4), "k": 2} | arguments))


def test_the_module_is_the_function():
    settings = {"method": "sparse", "norm": 1.5, "temperature": 2.0, "dim": 0, "reduction": "sum"}
    x, target, mask = scores(5, 3), relevant(5, 3), scores(5, 3, seed=5) > -1
    criterion = RecallLoss(2, **settings)
    assert torch.equal(criterion(x, target, mask), recall_loss(x, target, 2, mask=mask, **settings))
    assert not torch.equal(
        criterion(x, target, mask), RecallLoss(2, **(settings | {"norm": 2.0}))(x, target, mask)
    )
    assert repr(criterion) == (
        "RecallLoss(k=2, method='sparse', temperature=2, dim=0, reduction='sum', norm=1.5)"
    )
    with pytest.raises(ValueError, match="RecallLoss: k must be finite and not negative, got k = -1"):
        RecallLoss(-1)
