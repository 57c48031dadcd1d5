"""Top-k in JAX against torch: values, gradients in every argument and mode, transformations, precisions."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import khot
from khot.designs.systematic.systematic import systematic_indices
from khot.interop import jax as door
from khot.interop.jax.systematic import systematic

NAMES = ["sigmoid_topk", "laplace_topk", "sparse_topk"]
CASES = [(name, {}) for name in NAMES] + [("sparse_topk", {"norm": 1.5}), ("sparse_topk", {"norm": 1.1})]
RNG = np.random.default_rng(0)
X = 3 * RNG.normal(size=(5, 9))
G = RNG.normal(size=(5, 9))


@pytest.fixture(params=[False, True], ids=["x64 off", "x64 on"])
def dtype(request):
    jax.config.update("jax_enable_x64", request.param)
    yield np.float64 if request.param else np.float32
    jax.config.update("jax_enable_x64", False)


def tolerance(dtype):
    return {"rtol": 1e-4, "atol": 2e-6} if dtype == np.float32 else {"rtol": 1e-9, "atol": 1e-12}


def torch_results(name, x, k, temperature, g, **options):
    leaves = [torch.tensor(a, requires_grad=True) for a in (x, k, temperature)]
    y = getattr(khot, name)(leaves[0], leaves[1], temperature=leaves[2], **options)
    return y.detach().numpy(), [a.numpy() for a in torch.autograd.grad(y, leaves, torch.tensor(g))]


@pytest.mark.parametrize(("name", "norm"), CASES)
def test_values_and_gradients_in_all_arguments(name, norm, dtype):
    x, g = X.astype(dtype), G.astype(dtype)
    for k, temperature in (
        (np.array([0.0, 1.0, 2.5, 8.0, 9.0], dtype), np.array([0.1, 0.5, 1.0, 2.0, 1e-3], dtype)),
        (np.array(3.0, dtype), np.array(0.7, dtype)),
        (np.array(3.0, dtype), np.array(0.01, dtype)),
    ):
        expected, gradients = torch_results(name, x, k, temperature, g, **norm)

        def weights(x, k, temperature):
            return getattr(door, name)(x, k, temperature=temperature, **norm)

        y, pull = jax.vjp(weights, x, k, temperature)
        assert y.dtype == dtype
        np.testing.assert_allclose(y, expected, **tolerance(dtype))
        for mine, theirs in zip(pull(jnp.asarray(g)), gradients, strict=True):
            np.testing.assert_allclose(mine, theirs, **tolerance(dtype))
        moved = jax.jvp(weights, (x, k, temperature), (g, jnp.zeros_like(k), jnp.zeros_like(temperature)))[1]
        np.testing.assert_allclose(moved, pull(jnp.asarray(g))[0], **tolerance(dtype))


@pytest.mark.parametrize(("name", "norm"), CASES)
def test_masks_infinities_ties_and_directions(name, norm, dtype):
    inf = np.inf
    x = np.array(
        [[inf, 1, 0.5, 0], [inf, inf, inf, 0], [-inf, 2, 1, 0], [-inf, -inf, -inf, 1], [2, 2, 2, 0]], dtype
    )
    mask = RNG.random(X.shape) < 0.6
    door_function, function = (partial(getattr(module, name), **norm) for module in (door, khot))
    np.testing.assert_allclose(door_function(x, 2), function(torch.tensor(x), 2).numpy(), **tolerance(dtype))
    gradient = jax.grad(lambda x: (door_function(x, 2) ** 2).sum())(x)
    assert np.isfinite(gradient).all()
    assert not np.asarray(gradient)[np.isinf(x)].any()
    for options in ({"mask": mask}, {"largest": False}, {"hard": True}):
        tensors = {a: torch.tensor(v) if isinstance(v, np.ndarray) else v for a, v in options.items()}
        y = door_function(X.astype(dtype), 3, **options)
        np.testing.assert_allclose(
            y, function(torch.tensor(X.astype(dtype)), 3, **tensors).numpy(), **tolerance(dtype)
        )
    np.testing.assert_allclose(
        door_function(X.astype(dtype), 2, axis=0), function(torch.tensor(X.astype(dtype)), 2, dim=0).numpy(),
        **tolerance(dtype),
    )  # fmt: skip


@pytest.mark.parametrize(("name", "norm"), CASES)
def test_transformations(name, norm, dtype):
    f, x = partial(getattr(door, name), **norm), X.astype(dtype)
    expected = f(x, 3)
    np.testing.assert_allclose(
        jax.jit(lambda x, k: f(x, k))(x, 3), expected, **tolerance(dtype)
    )  # k is traced
    np.testing.assert_allclose(jax.vmap(lambda row: f(row, 3))(x), expected, **tolerance(dtype))
    budgets = jnp.asarray([1.0, 2.0, 3.0, 4.0, 5.0])
    many = jax.vmap(f)(x, budgets)
    np.testing.assert_allclose(many.sum(-1), budgets, rtol=1e-5)
    jacobian = jax.jacfwd(lambda row: f(row, 3))(x[0])
    np.testing.assert_allclose(jacobian, jax.jacrev(lambda row: f(row, 3))(x[0]), **tolerance(dtype))


@pytest.mark.parametrize(
    ("name", "norm"), [("sigmoid_topk", {}), ("laplace_topk", {}), ("sparse_topk", {"norm": 1.5})]
)
def test_second_derivatives(name, norm):
    jax.config.update("jax_enable_x64", True)
    try:
        mine = jax.hessian(lambda row: (getattr(door, name)(row, 3, temperature=2.0, **norm) ** 2).sum())(
            X[0]
        )
    finally:
        jax.config.update("jax_enable_x64", False)
    row = torch.tensor(X[0])
    theirs = torch.autograd.functional.hessian(
        lambda row: (getattr(khot, name)(row, 3, temperature=2.0, **norm) ** 2).sum(), row
    )
    np.testing.assert_allclose(mine, theirs.numpy(), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("norm", [1.01, 1.2, 1.7])
def test_sparse_rows_of_every_kind(norm, dtype):
    """Adversarial rows, budgets and temperatures: sums are k, and weights those of torch."""
    x = np.concatenate([X * 10.0**e for e in range(-4, 4)] + [np.zeros((1, 9)), np.arange(9.0)[None]])
    x = x.astype(dtype)
    for k in (0.3, 1.0, 4.5, 8.9, 9.0):
        for temperature in (0.01, 1.0, 100.0):
            y = np.asarray(door.sparse_topk(x, k, norm=norm, temperature=temperature))
            expected = khot.sparse_topk(torch.tensor(x), k, norm=norm, temperature=temperature).numpy()
            # A rounding of the argument is 1/(norm − 1) times as large in the weight.
            np.testing.assert_allclose(y, expected, rtol=0, atol=16 * np.finfo(dtype).eps / (norm - 1))


@pytest.mark.parametrize("kind", [jnp.bfloat16, jnp.float16])
def test_half_types(kind):
    x = jnp.asarray(X, kind)
    y = door.sigmoid_topk(x, 3)
    assert y.dtype == kind
    wide = door.sigmoid_topk(x.astype(jnp.float32), 3)
    np.testing.assert_allclose(y.astype(jnp.float32), wide, atol=8e-3)


def test_hard_topk(dtype):
    x = RNG.integers(0, 4, size=(6, 20)).astype(dtype)
    x[0, 3], x[1, :15] = np.nan, -np.inf
    for k in (0, 3, 20, np.array([0.0, 1.0, 5.0, 7.0, 19.0, 20.0], dtype)):
        expected = khot.hard_topk(torch.tensor(x), torch.tensor(k) if isinstance(k, np.ndarray) else k)
        np.testing.assert_array_equal(door.hard_topk(x, k), expected.numpy())
    assert not jax.grad(lambda x: door.hard_topk(x, 3).sum())(X.astype(dtype)).any()


def test_systematic_draws(dtype):
    probs = khot.sparse_topk(torch.tensor(X), 4).numpy()
    u = RNG.random((50, 5, 1))
    if dtype == np.float64:  # the sums of torch
        indices = systematic_indices(torch.tensor(probs), 4, torch.tensor(u))
        expected = torch.zeros(50, 5, 9).scatter(-1, indices, 1.0)
        np.testing.assert_array_equal(systematic(jnp.asarray(probs), 4, jnp.asarray(u)), expected.numpy())
    sample = jax.jit(lambda key: door.systematic_sample(key, probs.astype(dtype), 4, sample_shape=(4000,)))
    x = np.asarray(sample(jax.random.key(0)))
    assert x.dtype == dtype
    assert (x.sum(-1) == 4).all()
    # The largest of 45 binomial means over 4000 draws: five standard errors are passed once in 4e4 runs.
    np.testing.assert_allclose(x.mean(0), probs, atol=5 * 0.5 / np.sqrt(4000))
    np.testing.assert_array_equal(x.mean(0)[probs == 0], 0)
    np.testing.assert_array_equal(x.mean(0)[probs == 1], 1)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: door.sigmoid_topk(jnp.arange(3), 1), TypeError, "floating-point"),
        (lambda: door.sigmoid_topk(X, 10), ValueError, "0 <= k <= n = 9"),
        (lambda: door.sigmoid_topk(X, np.int64(10)), ValueError, "0 <= k <= n = 9"),
        (lambda: door.hard_topk(X, jnp.array(10)), ValueError, "0 <= k <= n = 9"),
        (lambda: door.sigmoid_topk(X, "2"), TypeError, "k must be a number"),
        (lambda: door.sigmoid_topk(X, 1, temperature=0.0), ValueError, "positive"),
        (lambda: door.sigmoid_topk(X, 1, temperature=jnp.array(-1.0)), ValueError, "positive"),
        (lambda: door.sigmoid_topk(X, 1, temperature=True), TypeError, "temperature must be a number"),
        (lambda: door.sigmoid_topk(X, 1, mask=X), TypeError, "mask must be boolean"),
        (lambda: door.sigmoid_topk(X, 1, axis=2), IndexError, "axis must be in"),
        (lambda: door.sigmoid_topk(X, jnp.ones(3)), ValueError, "k must broadcast"),
        (lambda: door.sparse_topk(X, 1, norm=3), ValueError, r"norm must be in \(1, 2\], got 3"),
        (lambda: door.sparse_topk(X, 1, norm=jnp.ones(())), TypeError, "norm must be a number"),
        (lambda: door.hard_topk(X, 1.5), ValueError, "k must be an integer"),
        (lambda: door.systematic_sample(jax.random.key(0), X, 1.0), TypeError, "k must be an integer"),
    ],
)
def test_errors(call, error, words):
    with pytest.raises(error, match=words):
        call()
