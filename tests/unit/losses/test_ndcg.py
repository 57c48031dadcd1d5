"""ndcg_loss against scikit-learn; its range, its edges, its derivatives."""

import math

import numpy as np
import pytest
import torch
from sklearn.metrics import ndcg_score

from khot.losses import NDCGLoss, ndcg_loss
from khot.metrics import ndcg_at_k
from strategies.random_scores import scores

METHODS = ["sigmoid", "laplace", "normal", "sparse", "soft_rank", "pairwise"]


def grades(*shape: int, seed: int = 1) -> torch.Tensor:
    return torch.randint(5, shape, generator=torch.Generator().manual_seed(seed))


def hard_loss(x: torch.Tensor, relevance: torch.Tensor, k: int | None, gain: str) -> list[float]:
    gains = relevance.numpy() if gain == "linear" else 2.0 ** relevance.numpy() - 1
    return [1 - ndcg_score(g[None], s[None], k=k) for g, s in zip(gains, x.numpy(), strict=True)]


@pytest.mark.parametrize("gain", ["linear", "exponential"])
@pytest.mark.parametrize("k", [None, 1, 3, 10])
@pytest.mark.parametrize("regularization", ["l2", "kl"])
def test_cold_it_is_one_minus_ndcg(gain, k, regularization):
    x, relevance = scores(20, 10), grades(20, 10)
    loss = ndcg_loss(
        x, relevance, k=k, gain=gain, temperature=1e-7, regularization=regularization, reduction="none"
    )
    np.testing.assert_allclose(loss.numpy(), hard_loss(x, relevance, k, gain), rtol=0, atol=1e-6)


@pytest.mark.parametrize("method", METHODS)
def test_cold_it_is_one_minus_ndcg_for_every_method(method):
    x, relevance = scores(20, 10), grades(20, 10)
    loss = ndcg_loss(x, relevance, k=4, gain="linear", temperature=1e-5, method=method, reduction="none")
    np.testing.assert_allclose(loss.numpy(), hard_loss(x, relevance, 4, "linear"), rtol=0, atol=1e-6)


def test_by_hand():
    """Pooled ranks of two scores d apart are 1.5 ∓ d/2τ, and the sigmoid weights of one of two σ(±d/2τ)."""
    d, tau = 0.4, 2.0
    x, relevance = torch.tensor([d, 0.0], dtype=torch.float64), torch.tensor([0.0, 3.0])
    rank, weight = 1.5 + d / (2 * tau), 1 / (1 + math.exp(d / (2 * tau)))
    found = 1 / math.log2(1 + rank)
    assert ndcg_loss(x, relevance, temperature=tau).item() == pytest.approx(1 - found, abs=1e-12)
    assert ndcg_loss(x, relevance, k=1, temperature=tau).item() == pytest.approx(
        1 - weight * found, abs=1e-12
    )


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("temperature", [0.01, 0.5, 5.0, 100.0])
@pytest.mark.parametrize("k", [None, 1, 4])
def test_it_lies_between_zero_and_one(method, temperature, k):
    x, relevance = scores(200, 7), grades(200, 7)
    x[:100] = relevance[:100] + 1e-3 * x[:100]  # nearly ideal: where it could fall below 0
    loss = ndcg_loss(x, relevance, k=k, temperature=temperature, method=method, reduction="none")
    assert (loss >= -1e-12).all()
    assert (loss <= 1 + 1e-12).all()


def test_every_option_matters():
    x, relevance = scores(8), grades(8)
    options = [
        {},
        {"k": 3},
        {"k": 3, "method": "sparse"},
        {"k": 3, "method": "sparse", "norm": 1.5},
        {"k": 3, "regularization": "kl"},
        {"k": 3, "gain": "linear"},
        {"k": 3, "temperature": 0.3},
    ]
    assert len({round(ndcg_loss(x, relevance, **o).item(), 9) for o in options}) == len(options)


@pytest.mark.parametrize("k", [None, 2])
@pytest.mark.parametrize("gain", ["linear", "exponential"])
def test_a_query_without_relevant_entries_has_loss_zero_and_no_gradient(k, gain):
    x = scores(3, 4).requires_grad_()
    relevance, mask = torch.tensor([[0, 0, 0, 0], [3, 0, 0, 0], [1, 0, 2, 0]]), torch.ones(3, 4).bool()
    mask[1, 0] = False  # what was relevant is excluded
    tau = torch.tensor(0.5, requires_grad=True)
    loss = ndcg_loss(x, relevance, k=k, gain=gain, mask=mask, temperature=tau, reduction="none")
    assert loss[:2].tolist() == [0, 0]
    assert loss[2] > 0
    grads = torch.autograd.grad(loss[:2].sum(), (x, tau), retain_graph=True)
    assert all((grad == 0).all() for grad in grads)
    assert ndcg_loss(x, relevance, k=k, gain=gain, mask=mask, temperature=tau).item() == pytest.approx(
        loss[2].item() / 3
    )


@pytest.mark.parametrize("k", [None, 3])
@pytest.mark.parametrize("excluded_by", ["mask", "-inf"])
def test_what_is_excluded_might_as_well_not_be_there(k, excluded_by):
    x, relevance, mask = scores(4, 9), grades(4, 9), scores(4, 9, seed=3) < 0.6
    if excluded_by == "mask":
        x = torch.where(mask, x, torch.tensor(torch.nan)).requires_grad_()
        relevance = torch.where(mask, relevance.double(), torch.nan)
        loss = ndcg_loss(x, relevance, k=k, mask=mask, reduction="none")
    else:
        x = torch.where(mask, x, -torch.inf).requires_grad_()
        loss = ndcg_loss(x, relevance, k=k, reduction="none")
    for row in range(4):
        alone = ndcg_loss(x[row, mask[row]], relevance[row, mask[row]], k=k)
        torch.testing.assert_close(loss[row], alone)
    (grad,) = torch.autograd.grad(loss.sum(), x)
    assert (grad[~mask] == 0).all()
    assert (grad[mask] != 0).any()


def test_fewer_allowed_than_k_is_ndcg_of_those():
    x, relevance = scores(6), torch.tensor([1, 4, 0, 2, 3, 0])
    mask = torch.tensor([True, True, False, False, True, False])
    expected = 1 - ndcg_score(relevance[mask][None].numpy(), x[mask][None].numpy())
    loss = ndcg_loss(x, relevance, k=5, gain="linear", temperature=1e-6, mask=mask)
    assert loss.item() == pytest.approx(expected, abs=1e-6)


def test_relevance_of_any_size():
    """2¹⁰⁰⁰ overflows, the ratio of gains does not: only the largest one counts."""
    x = torch.tensor([1.0, 3.0, 2.0], requires_grad=True)
    for dtype in (torch.float32, torch.float64):
        loss = ndcg_loss(x.to(dtype), torch.tensor([2000.0, 1000.0, 0.0]), temperature=1e-3)
        assert loss.item() == pytest.approx(1 - 1 / math.log2(1 + 3), abs=1e-6)
        assert torch.autograd.grad(loss, x)[0].isfinite().all()
    tiny = ndcg_loss(x, torch.tensor([1e-30, 0.0, 0.0]), temperature=1e-3)
    assert tiny.item() == pytest.approx(0.5, abs=1e-6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_infinite_scores_are_the_limit_of_large_ones(dtype):
    tau = torch.tensor(0.5, requires_grad=True)
    results = []
    for top in (torch.inf, 60.0):
        x = torch.tensor([0.3, top, -0.5, 0.4], dtype=dtype, requires_grad=True)
        loss = ndcg_loss(x, torch.tensor([3, 1, 2, 0]), k=2, temperature=tau)
        results.append((loss, *torch.autograd.grad(loss, (x, tau))))
    for infinite, large in zip(*results, strict=True):
        torch.testing.assert_close(infinite, large)


@pytest.mark.parametrize("temperature", [1e-30, 1e-3, 1.0, 1e30])
@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30, 3e38])
@pytest.mark.parametrize("k", [None, 2])
def test_nothing_finite_gives_nan(k, scale, temperature):
    x = (scale * torch.tensor([0.3, -1.0, 1.0, 0.3, 0.9])).requires_grad_()
    tau = torch.tensor(temperature, requires_grad=True)
    loss = ndcg_loss(x, torch.tensor([1, 1, 0, 4, 2]), temperature=tau, k=k)
    grads = torch.autograd.grad(loss, (x, tau))
    assert loss.isfinite()
    assert not any(grad.isnan().any() for grad in grads)


@pytest.mark.parametrize("k", [None, 2])
@pytest.mark.parametrize("regularization", ["l2", "kl"])
def test_derivatives(k, regularization):
    x, tau = scores(3, 6).requires_grad_(), torch.tensor(0.4, dtype=torch.float64, requires_grad=True)
    mask = torch.arange(6) < torch.tensor([[6], [5], [3]])

    def call(x, tau):
        return ndcg_loss(
            x,
            grades(3, 6),
            k=k,
            temperature=tau,
            regularization=regularization,
            mask=mask,
            reduction="none",
        )

    assert torch.autograd.gradcheck(call, (x, tau), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(call, (x, tau))


def test_gradient_descent_puts_the_relevant_entries_first():
    x, relevance = -grades(6, 12).double() + 0.1 * scores(6, 12), grades(6, 12)
    x.requires_grad_()
    optimizer = torch.optim.Adam([x], lr=0.1)
    for _ in range(300):
        loss = ndcg_loss(x, relevance, k=5, temperature=1.0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert np.mean(hard_loss(x.detach(), relevance, 5, "exponential")) < 0.05


def test_under_vmap_and_jacobians():
    x, relevance = scores(3, 6), grades(3, 6)

    def call(x, relevance):
        return ndcg_loss(x, relevance, k=2)

    alone = torch.stack([call(a, b) for a, b in zip(x, relevance, strict=True)])
    torch.testing.assert_close(torch.func.vmap(call)(x, relevance), alone)
    reverse = torch.func.vmap(torch.func.jacrev(call))(x, relevance)
    torch.testing.assert_close(reverse, torch.func.vmap(torch.func.jacfwd(call))(x, relevance))
    assert (reverse != 0).any()


@pytest.mark.full
def test_compiled_and_exported_it_is_the_same():
    x, relevance, mask = scores(3, 6), grades(3, 6), scores(3, 6, seed=4) > -1
    criterion = NDCGLoss(k=2)
    expected = criterion(x, relevance, mask)
    torch.testing.assert_close(
        torch.compile(criterion, fullgraph=True, backend="aot_eager")(x, relevance, mask), expected
    )
    exported = torch.export.export(criterion, (x, relevance, mask)).module()
    torch.testing.assert_close(exported(x, relevance, mask), expected)


def test_shapes_and_reductions():
    x, relevance = scores(3, 7, 2), grades(3, 7, 2)
    each = ndcg_loss(x, relevance, k=3, dim=1, reduction="none")
    assert each.shape == (3, 2)
    for i, j in np.ndindex(3, 2):
        torch.testing.assert_close(ndcg_loss(x[i, :, j], relevance[i, :, j], k=3), each[i, j])
    torch.testing.assert_close(ndcg_loss(x, relevance, k=3, dim=1), each.mean())
    torch.testing.assert_close(ndcg_loss(x, relevance, k=3, dim=1, reduction="sum"), each.sum())
    assert ndcg_loss(torch.zeros(0, 4), torch.zeros(0, 4), reduction="none").shape == (0,)
    assert ndcg_loss(torch.zeros(2, 0), torch.zeros(2, 0), reduction="none").tolist() == [0, 0]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_types_are_computed_in_float32(dtype):
    x, relevance = (4 * scores(2, 300)).to(dtype), grades(2, 300)
    loss = ndcg_loss(x, relevance, k=20, temperature=0.1, reduction="none")
    assert loss.dtype == dtype
    exact = ndcg_loss(x.double(), relevance, k=20, temperature=0.1, reduction="none")
    torch.testing.assert_close(loss.double(), exact, rtol=torch.finfo(dtype).eps, atol=0)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (
            {"relevance": torch.zeros(3)},
            ValueError,
            r"relevance must have the shape of scores, \(4,\)",
        ),
        (
            {"relevance": torch.tensor([0.0, -1.0, 2.0, 0.0])},
            ValueError,
            r"relevance must be finite and not negative, got values in \[-1, 2\]",
        ),
        (
            {"relevance": torch.tensor([0.0, torch.inf, 2.0, 0.0])},
            ValueError,
            r"relevance must be finite and not negative, got values in \[0, inf\]",
        ),
        ({"k": 5}, ValueError, "k must satisfy 1 <= k <= n = 4, got 5"),
        ({"k": 0}, ValueError, "k must be at least 1, got 0"),
        ({"k": 2.0}, TypeError, r"k must be an integer, got 2\.0"),
        ({"gain": "square"}, ValueError, "gain must be 'exponential' or 'linear', got 'square'"),
        ({"regularization": "l1"}, ValueError, "regularization must be 'l2' or 'kl', got 'l1'"),
        ({"temperature": 0.0}, ValueError, "temperature must be positive and finite, got 0"),
        ({"reduction": "max"}, ValueError, "reduction must be 'none', 'mean' or 'sum', got 'max'"),
        ({"scores": torch.arange(4)}, TypeError, "scores must have a floating-point dtype"),
    ],
)
def test_bad_arguments_are_named(arguments, error, message):
    with pytest.raises(error, match=f"ndcg_loss: {message}"):
        ndcg_loss(**({"scores": torch.zeros(4), "relevance": torch.zeros(4)} | arguments))


def test_the_module_is_the_function():
    settings = {"k": 2, "gain": "linear", "method": "sparse", "norm": 1.5, "regularization": "kl", "dim": 0}
    x, relevance, mask = scores(5, 3), grades(5, 3), scores(5, 3, seed=5) > -1
    criterion = NDCGLoss(temperature=0.5, reduction="sum", **settings)
    expected = ndcg_loss(x, relevance, temperature=0.5, reduction="sum", mask=mask, **settings)
    assert torch.equal(criterion(x, relevance, mask), expected)
    assert repr(criterion) == (
        "NDCGLoss(k=2, temperature=0.5, gain='linear', method='sparse', regularization='kl', dim=0, "
        "reduction='sum', norm=1.5)"
    )
    with pytest.raises(ValueError, match="NDCGLoss: k must be at least 1, got 0"):
        NDCGLoss(k=0)
    with pytest.raises(ValueError, match="unknown method 'nothing'"):
        NDCGLoss(method="nothing")


def test_k_may_be_an_integer_of_numpy():
    x, relevance = scores(3, 5), torch.tensor([[0, 1, 2, 1, 0]]).expand(3, 5)
    assert torch.equal(ndcg_loss(x, relevance, k=np.uint8(2)), ndcg_loss(x, relevance, k=2))


@pytest.mark.parametrize("gain", ["linear", "exponential"])
@pytest.mark.parametrize("k", [None, 2])
def test_relevance_beyond_the_type_of_the_scores(gain, k):
    x = torch.tensor([0.1, 0.2, -0.1], requires_grad=True)
    relevance = torch.tensor([1e39, 0, 1e39], dtype=torch.float64)
    loss = ndcg_loss(x, relevance, gain=gain, k=k)
    expected = ndcg_loss(x, relevance / 1e38, gain=gain, k=k)
    torch.testing.assert_close(loss, expected, rtol=1e-3 if gain == "exponential" else 1e-6, atol=0)
    assert torch.autograd.grad(loss, x)[0].isfinite().all()
    found = ndcg_at_k(x, relevance, 2, gain=gain)
    torch.testing.assert_close(found, ndcg_at_k(x, relevance / 1e38, 2, gain=gain), rtol=1e-3, atol=0)
