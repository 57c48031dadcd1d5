"""Arrays: the same values and gradients as for tensors, over the same memory."""

import numpy as np
import pytest
import torch

import khot
from khot.interop import numpy as door
from khot.interop.numpy import threshold
from khot.kernels import loader

NAMES = ["sigmoid_topk", "laplace_topk", "normal_topk", "sparse_topk", "hard_topk"]
RNG = np.random.default_rng(0)
X = RNG.normal(size=(4, 9))
MASK = RNG.random((4, 9)) < 0.7


def both(name, x, k, axis=-1, mask=None, **options):
    y = getattr(door, name)(x, k, axis=axis, mask=mask, **options)
    tensors = {a: torch.tensor(v) if isinstance(v, np.ndarray) else v for a, v in options.items()}
    k = torch.tensor(k) if isinstance(k, np.ndarray) else k
    m = None if mask is None else torch.tensor(mask)
    expected = getattr(khot, name)(torch.tensor(np.ascontiguousarray(x)), k, dim=axis, mask=m, **tensors)
    return y, expected.numpy()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("name", NAMES)
def test_values(name, dtype):
    x = X.astype(dtype)
    budgets = np.array([0.0, 1.0, 3.0, 9.0])
    for options in ({}, {"mask": MASK}, {"axis": 0}, {"largest": False}):
        y, expected = both(name, x, 3, **options)
        assert y.dtype == dtype
        np.testing.assert_array_equal(y, expected)
    np.testing.assert_array_equal(*both(name, x, budgets))


@pytest.mark.parametrize("name", NAMES[:-1])
def test_products(name):
    k, t, g = np.array([1.0, 2.5, 3.0, 8.0]), np.array([0.5, 1.0, 2.0, 0.1]), RNG.normal(size=X.shape)
    y, pull = door.vjp(getattr(door, name), X, k, temperature=t)
    leaves = [torch.tensor(a, requires_grad=True) for a in (X, k, t)]
    expected = getattr(khot, name)(leaves[0], leaves[1], temperature=leaves[2])
    np.testing.assert_array_equal(y, expected.detach().numpy())
    for mine, theirs in zip(pull(g), torch.autograd.grad(expected, leaves, torch.tensor(g)), strict=True):
        np.testing.assert_allclose(mine, theirs.numpy(), rtol=1e-12, atol=1e-14)
    np.testing.assert_array_equal(pull(g).scores, pull(g).scores)  # again
    moved = door.jvp(getattr(door, name), X, 3, g)[1]
    h = 1e-6
    f = getattr(door, name)
    np.testing.assert_allclose(moved, (f(X + h * g, 3) - f(X - h * g, 3)) / (2 * h), atol=1e-6)


def test_numbers_have_no_gradient():
    gradients = door.vjp(door.sigmoid_topk, X, 3)[1](X)
    assert gradients.k is None
    assert gradients.temperature is None


def test_strides_and_flags():
    expected = door.sigmoid_topk(X, 3)
    for x in (X[::-1][::-1], np.asfortranarray(X), np.repeat(X, 2, -1)[:, ::2]):
        y = door.sigmoid_topk(x, 3)
        np.testing.assert_allclose(y, expected, rtol=1e-14)
        if loader.native() is not None:  # by a contiguous copy; torch adds in the order of the strides
            np.testing.assert_array_equal(y, expected)
    np.testing.assert_allclose(door.sigmoid_topk(X[:, ::-1], 3), expected[:, ::-1], rtol=1e-14)
    np.testing.assert_array_equal(door.sigmoid_topk(X[:1, :1][::-1, ::-1], 1), [[1]])  # contiguous, too
    frozen = X.copy()
    frozen.flags.writeable = False
    np.testing.assert_array_equal(door.sigmoid_topk(frozen, 3), expected)
    np.testing.assert_array_equal(frozen, X)
    assert door.vjp(door.sigmoid_topk, frozen, 3)[1](frozen).scores.shape == X.shape


def test_nothing_is_copied(monkeypatch):
    """The kernel reads where the array is."""
    seen = []
    taken = threshold.tensor_over

    def watched(name, argument, value):
        tensor = taken(name, argument, value)
        if argument == "scores":
            seen.append((tensor.data_ptr(), value.ctypes.data))
        return tensor

    monkeypatch.setattr(threshold, "tensor_over", watched)
    frozen = X.copy()
    frozen.flags.writeable = False
    for x in (X, frozen, X.T):
        y = door.sigmoid_topk(x, 3, axis=0 if x is X.T else -1)
        assert y.base is not None  # a view of the memory that was written
    assert all(a == b for a, b in seen)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.uint32, np.uint64])
def test_unsigned_budgets(dtype):
    budgets = np.array([0, 1, 3, 9])
    np.testing.assert_array_equal(door.sigmoid_topk(X, budgets.astype(dtype)), door.sigmoid_topk(X, budgets))
    np.testing.assert_array_equal(door.hard_topk(X, dtype(3)), door.hard_topk(X, 3))


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: door.sigmoid_topk([1.0, 2.0], 1), TypeError, "scores must be a numpy.ndarray, got list"),
        (lambda: door.sigmoid_topk(np.arange(3), 1), TypeError, "floating-point"),
        (lambda: door.sigmoid_topk(X, 10), ValueError, "0 <= k <= n = 9"),
        (lambda: door.sigmoid_topk(X.astype(">f8"), 1), TypeError, "byte order"),
        (lambda: door.sigmoid_topk(X.astype(complex), 1), TypeError, "64 bits, got complex128"),
        (lambda: door.sigmoid_topk(X.astype(np.longdouble), 1), TypeError, "scores must be of a real"),
        (lambda: door.sigmoid_topk(X, X[0].astype([("a", float)])), TypeError, "k must be of a real dtype"),
        (lambda: door.sigmoid_topk(np.ma.masked_less(X, 0), 1), TypeError, "scores must be a plain array"),
        (lambda: door.sigmoid_topk(X, 1, mask=X), TypeError, "mask must be a boolean"),
        (lambda: door.vjp(door.hard_topk, X, 1), ValueError, "must be one of laplace_topk"),
        (
            lambda: door.vjp(door.sigmoid_topk, X, 1)[1](X[0]),
            ValueError,
            "the vector must be float64 of shape",
        ),
    ],
)
def test_errors(call, error, words):
    with pytest.raises(error, match=words):
        call()


def test_weights_that_products_read_are_read_only():
    y, pull = door.vjp(door.sigmoid_topk, np.array([3.0, 1.0, 2.0, 0.5]), 2)
    with pytest.raises(ValueError, match="read-only"):
        y *= 0
    assert pull(np.array([1.0, 0.0, 0.0, 0.0])).scores[0] > 0


@pytest.mark.parametrize("axis", [None, "0", (0,), True])
def test_errors_name_the_axis(axis):
    for call in (
        lambda: door.sigmoid_topk(X, 2, axis=axis),
        lambda: door.vjp(door.sigmoid_topk, X, 2, axis=axis),
        lambda: door.jvp(door.sigmoid_topk, X, 2, X, axis=axis),
    ):
        with pytest.raises(TypeError, match=r"^sigmoid_topk: axis must be an integer, got "):
            call()
