"""topk_cross_entropy: −log of weights that brentq finds, distributions over k, shapes, and huge logits."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from scipy.special import expit, logsumexp
from torch.nn import functional

import khot
from khot.losses import TopKCrossEntropy, topk_cross_entropy
from strategies import random_scores

scores = partial(random_scores.scores, spread=2)


def labels(*shape: int, classes: int, seed: int = 1) -> torch.Tensor:
    return torch.randint(classes, shape, generator=torch.Generator().manual_seed(seed))


def weights(x: np.ndarray, k: int, temperature: float = 1.0) -> np.ndarray:
    if k == len(x):
        return np.ones(k)
    c = brentq(lambda c: expit((x + c) / temperature).sum() - k, -300, 300, xtol=1e-14, rtol=1e-15)
    return expit((x + c) / temperature)


def log_weights(x: np.ndarray, k: int) -> np.ndarray:
    """From P = Q in logarithms, which cannot underflow: the k largest lack what the others have."""
    order = np.argsort(-x)
    above, below = x[order[:k]], x[order[k:]]

    def log_tail(a):
        return -np.logaddexp(0, -a)

    margin = 60
    c = brentq(
        lambda c: logsumexp(log_tail(below + c)) - logsumexp(log_tail(-above - c)),
        -above.min() - margin,
        -below.max() + margin,
        xtol=1e-12,
        rtol=1e-15,
    )
    return log_tail(x + c)


@pytest.mark.parametrize("temperature", [0.5, 2.0])
@pytest.mark.parametrize("k", [1, 2, 3, 4, 5, 6])
def test_it_is_minus_the_logarithm_of_the_weight(k, temperature):
    x = scores(6, 6)
    target = torch.arange(6)
    expected = [-math.log(weights(row, k, temperature)[i]) for i, row in enumerate(x.numpy())]
    loss = topk_cross_entropy(x, target, k, temperature=temperature, reduction="none")
    np.testing.assert_allclose(loss.numpy(), expected, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize(("method", "options"), [("laplace", {}), ("normal", {}), ("sparse", {"norm": 1.5})])
def test_it_takes_any_method(method, options):
    x = 0.3 * scores(5, 6, seed=2)
    target = labels(5, classes=6)
    y = khot.topk(x, 3, method, **options).gather(1, target[:, None])[:, 0]
    assert (y > 1e-6).all()
    loss = topk_cross_entropy(x, target, 3, method=method, reduction="none", **options)
    torch.testing.assert_close(loss, -y.log())


def test_a_distribution_over_k_mixes_the_weights():
    x, target, probabilities = scores(5, 7, seed=3), labels(5, classes=7), [0.5, 0, 0.2, 0, 0.3]
    expected = [
        -math.log(sum(p * weights(row, k)[i] for k, p in enumerate(probabilities, 1)))
        for row, i in zip(x.numpy(), target, strict=True)
    ]
    for given in (probabilities, tuple(probabilities), [*probabilities, 0.0, 0.0, 0.0]):
        loss = topk_cross_entropy(x, target, given, reduction="none")
        np.testing.assert_allclose(loss.numpy(), expected, rtol=1e-10)


def test_a_distribution_on_one_k_is_that_k():
    x, target = scores(4, 6, seed=4), labels(4, classes=6)
    torch.testing.assert_close(
        topk_cross_entropy(x, target, [0, 0, 1]), topk_cross_entropy(x, target, 3), rtol=1e-14, atol=0
    )


def test_shapes_are_those_of_cross_entropy():
    x, target = scores(3, 5, 2, 4, seed=5), labels(3, 2, 4, classes=5)
    loss = topk_cross_entropy(x, target, 2, reduction="none")
    assert loss.shape == functional.cross_entropy(x, target, reduction="none").shape
    for n, i, j in np.ndindex(3, 2, 4):
        one = topk_cross_entropy(x[n, :, i, j], target[n, i, j], 2)
        assert one.shape == ()
        torch.testing.assert_close(loss[n, i, j], one)


def test_reductions():
    x, target = scores(6, 5), labels(6, classes=5)
    each = topk_cross_entropy(x, target, 2, reduction="none")
    torch.testing.assert_close(topk_cross_entropy(x, target, 2), each.mean())
    torch.testing.assert_close(topk_cross_entropy(x, target, 2, reduction="sum"), each.sum())


@pytest.mark.parametrize("ignore", [-100, 1, 77])
def test_ignored_targets_add_nothing(ignore):
    x, target = scores(6, 5).requires_grad_(), torch.tensor([0, ignore, 3, 2, ignore, 4])
    keep = target != ignore
    for reduction in ("mean", "sum"):
        loss = topk_cross_entropy(x, target, 2, ignore_index=ignore, reduction=reduction)
        torch.testing.assert_close(loss, topk_cross_entropy(x[keep], target[keep], 2, reduction=reduction))
        (grad,) = torch.autograd.grad(loss, x)
        assert (grad[~keep] == 0).all()
        assert grad[keep].any(-1).all()
    each = topk_cross_entropy(x, target, 2, ignore_index=ignore, reduction="none")
    assert (each[~keep] == 0).all()


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_if_all_are_ignored_it_is_what_cross_entropy_is(reduction):
    """The mean of nothing is NaN, the sum 0."""
    x, target = scores(3, 6), torch.full((3,), -100)
    torch.testing.assert_close(
        topk_cross_entropy(x, target, 2, reduction=reduction),
        functional.cross_entropy(x, target, reduction=reduction),
        equal_nan=True,
    )


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32, torch.float64])
def test_several_labels_are_averaged(dtype):
    x = scores(4, 6, seed=6)
    target = torch.zeros(4, 6, dtype=dtype)
    chosen = [[0], [1, 2], [0, 3, 5], [0, 1, 2, 3, 4, 5]]
    for row, indices in enumerate(chosen):
        target[row, indices] = 1
    loss = topk_cross_entropy(x, target, 3, reduction="none")
    for row, indices in enumerate(chosen):
        one_by_one = [topk_cross_entropy(x[row], torch.tensor(i), 3) for i in indices]
        torch.testing.assert_close(loss[row], torch.stack(one_by_one).mean())


def test_a_row_without_labels_adds_nothing():
    x = scores(3, 4, seed=7).requires_grad_()
    target = torch.tensor([[1, 0, 0, 1], [0, 0, 0, 0], [0, 1, 0, 0]], dtype=torch.bool)
    loss = topk_cross_entropy(x, target, 2)
    torch.testing.assert_close(loss, topk_cross_entropy(x[::2], target[::2], 2))
    (grad,) = torch.autograd.grad(loss, x)
    assert (grad[1] == 0).all()


def test_several_labels_with_further_dimensions():
    x = scores(2, 5, 3, seed=8)
    target = scores(2, 5, 3, seed=9) > 0
    target[:, 0] = True
    loss = topk_cross_entropy(x, target, 2, reduction="none")
    assert loss.shape == (2, 3)
    for n, i in np.ndindex(2, 3):
        torch.testing.assert_close(loss[n, i], topk_cross_entropy(x[n, :, i], target[n, :, i], 2))


HUGE = [[1.0, -1.0, 0.0], [1.0, 0.0, -1.0], [0.0, 1.0, 0.5], [0.3, 0.2, 0.1], [-1.0, -3.0, -2.0]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("row", HUGE)
def test_huge_logits_have_the_right_loss(row, k, dtype):
    """Weights of e^−5000 underflow; their logarithms do not."""
    x = 1e4 * torch.tensor(row, dtype=dtype)
    expected = -log_weights(x.double().numpy(), k)
    loss = [topk_cross_entropy(x, torch.tensor(label), k).item() for label in range(3)]
    np.testing.assert_allclose(loss, expected, rtol=10 * torch.finfo(dtype).eps, atol=1e-30)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("k", [1, 3, [0.5, 0, 0, 0.5]])
def test_huge_logits_have_a_gradient(k, dtype):
    """Of the least likely label: to raise it, and finite everywhere."""
    x = (1e4 * scores(8, 6, seed=10)).to(dtype).requires_grad_()
    target = x.argmin(-1)
    loss = topk_cross_entropy(x, target, k, reduction="none")
    assert loss.isfinite().all()
    assert (loss > 100).all()
    (grad,) = torch.autograd.grad(loss.sum(), x)
    assert grad.isfinite().all()
    assert (grad.gather(1, target[:, None]) < -0.1).all()


@pytest.mark.parametrize(("dtype", "rtol"), [(torch.float32, 1e-5), (torch.float64, 1e-9)])
@pytest.mark.parametrize("label", [0, 1, 2, 3])
def test_the_loss_is_continuous_where_weights_underflow(label, dtype, rtol):
    """Scores slowly drawn apart: the loss of each label follows its own logarithm all the way."""
    x = torch.tensor([3.0, -1.0, 1.0, -2.0], dtype=dtype)
    for scale in (1, 30, 50, 100, 300, 700, 1500, 1e5):
        expected = -log_weights(scale * x.double().numpy(), 1)[label]
        loss = topk_cross_entropy(scale * x, torch.tensor(label), 1).item()
        assert loss == pytest.approx(expected, rel=rtol, abs=torch.finfo(dtype).eps)


@pytest.mark.parametrize("low", [-90.0, -1e3, -1e30, -math.inf])
@pytest.mark.parametrize("k", [1, 2, 3])
def test_a_class_that_is_out_of_the_question_is_as_if_it_were_not_there(k, low):
    """Also where all other weights exceed ½, and where there are no more than k others."""
    x = torch.tensor([1.0, low, 0.5, 2.0], requires_grad=True)
    rest = x.detach()[[0, 2, 3]].requires_grad_()
    for label, in_rest in ((0, 0), (2, 1), (3, 2)):
        loss = topk_cross_entropy(x, torch.tensor(label), k)
        expected = topk_cross_entropy(rest, torch.tensor(in_rest), k)
        torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-6)
        grad, expected_grad = torch.autograd.grad(loss, x)[0], torch.autograd.grad(expected, rest)[0]
        torch.testing.assert_close(grad[[0, 2, 3]], expected_grad, rtol=1e-4, atol=1e-6)
        assert grad[1].item() == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("method", ["laplace", "normal", "sparse"])
def test_huge_logits_are_finite_for_other_methods(method):
    x = (1e4 * scores(8, 6, seed=11)).requires_grad_()
    loss = topk_cross_entropy(x, x.argmin(-1), 2, method=method)
    assert loss.isfinite()
    assert torch.autograd.grad(loss, x)[0].isfinite().all()


@pytest.mark.parametrize("k", [1, 3, [0.5, 0, 0.5], 5])
def test_gradients_are_those_of_finite_differences(k):
    target = labels(3, classes=5)
    temperature = torch.tensor([0.7, 1.0, 2.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda x, t: topk_cross_entropy(x, target, k, temperature=t, reduction="none"),
        (scores(3, 5, seed=12).requires_grad_(), temperature),
    )


@pytest.mark.parametrize("method", ["sigmoid", "laplace", "normal", "sparse"])
def test_all_classes_cost_nothing(method):
    x = scores(3, 4).requires_grad_()
    loss = topk_cross_entropy(x, torch.tensor([0, 1, 2]), 4, method=method)
    assert loss.item() == 0
    assert (torch.autograd.grad(loss, x)[0] == 0).all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"k": 5}, "k must satisfy 1 <= k <= 4 classes, got 5"),
        ({"k": 0}, "k must satisfy 1 <= k <= 4 classes, got 0"),
        ({"k": [0, 0, 0, 0, 1.0]}, "k must satisfy 1 <= k <= 4 classes, got 5"),
        ({"k": [0.5, 0.4]}, r"probabilities of k must not be negative and sum to 1, got \[0\.5, 0\.4\]"),
        ({"k": [1.5, -0.5]}, r"probabilities of k must not be negative and sum to 1, got \[1\.5, -0\.5\]"),
        ({"k": []}, r"probabilities of k must not be negative and sum to 1, got \[\]"),
        (
            {"target": torch.tensor([0, 4])},
            r"target must be in \[0, 3\] or ignore_index, got values in \[0, 4\]",
        ),
        (
            {"target": torch.tensor([-1, 0])},
            r"target must be in \[0, 3\] or ignore_index, got values in \[-1, 0\]",
        ),
        ({"target": torch.tensor([0])}, r"target must have shape \(2,\).*got \(1,\)"),
        (
            {"target": torch.zeros(2)},
            r"a multi-label target must have the shape of scores, \(2, 4\), got \(2,\)",
        ),
        ({"reduction": "max"}, "reduction must be 'none', 'mean' or 'sum', got 'max'"),
        ({"temperature": 0.0}, r"temperature must be positive and finite, got 0\.0"),
    ],
)
def test_bad_values_are_errors(arguments, message):
    with pytest.raises(ValueError, match=f"topk_cross_entropy: .*{message}"):
        topk_cross_entropy(scores(2, 4), **({"target": torch.tensor([0, 1]), "k": 2} | arguments))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"k": 2.5}, r"k must be an integer or a sequence .* got 2\.5"),
        ({"k": True}, "k must be an integer or a sequence .* got True"),
        ({"scores": torch.zeros(2, 4, dtype=torch.long)}, "scores must have a floating-point dtype"),
    ],
)
def test_bad_types_are_errors(arguments, message):
    with pytest.raises(TypeError, match=f"topk_cross_entropy: {message}"):
        topk_cross_entropy(**({"scores": scores(2, 4), "target": torch.tensor([0, 1]), "k": 2} | arguments))


@pytest.mark.parametrize(
    "settings",
    [
        {"k": 2},
        {"k": [0.25, 0.75], "temperature": 0.5, "reduction": "sum"},
        {"k": 3, "method": "sparse", "norm": 1.5, "reduction": "none"},
        {"k": 3, "ignore_index": 2},
    ],
)
def test_the_module_is_the_function(settings):
    x, target = scores(6, 5, 2), labels(6, 2, classes=5)
    assert torch.equal(TopKCrossEntropy(**settings)(x, target), topk_cross_entropy(x, target, **settings))


def test_the_module_shows_its_settings():
    criterion = TopKCrossEntropy([0.5, 0.5], method="sparse", temperature=0.5, norm=1.5)
    assert repr(criterion) == (
        "TopKCrossEntropy(k=[0.5, 0.5], method='sparse', temperature=0.5, ignore_index=-100, "
        "reduction='mean', norm=1.5)"
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"k": 0}, "k must satisfy 1 <= k, got 0"),
        ({"k": [0.5]}, r"probabilities of k must not be negative and sum to 1, got \[0\.5\]"),
        ({"k": 1, "reduction": "max"}, "reduction must be .* got 'max'"),
        ({"k": 1, "temperature": -1.0}, r"temperature must be positive and finite, got -1\.0"),
    ],
)
def test_bad_settings_are_errors_of_the_module(settings, message):
    with pytest.raises(ValueError, match=f"TopKCrossEntropy: .*{message}"):
        TopKCrossEntropy(**settings)


def test_vmap_over_rows_is_the_batch():
    x, target = scores(4, 6), labels(4, classes=6)
    each = torch.func.vmap(lambda row, label: topk_cross_entropy(row, label, 2))(x, target)
    torch.testing.assert_close(each, topk_cross_entropy(x, target, 2, reduction="none"))


@pytest.mark.parametrize("temperature", [1.0, 0.05])
def test_excluded_classes_leave_the_gradient_in_the_temperature_finite(temperature):
    logits = torch.tensor([[2.0, 1.0, -math.inf, 0.5, 0.0]], dtype=torch.float64)
    tau = torch.tensor(temperature, dtype=torch.float64, requires_grad=True)
    loss = topk_cross_entropy(logits, torch.tensor([3]), 2, temperature=tau)
    (found,) = torch.autograd.grad(loss, tau)
    same = topk_cross_entropy(logits[:, [0, 1, 3, 4]], torch.tensor([2]), 2, temperature=tau)
    (wanted,) = torch.autograd.grad(same, tau)
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize(
    ("method", "row", "k"),
    [
        ("sigmoid", [-44.6, 44.4], 1),
        ("sigmoid", [-44.6, 44.4, 0.0], 2),
        ("laplace", [0.0, 100.0], 1),
        ("laplace", [0.0, 30.0], 1),
        ("normal", [-6.2, 2.3, 5.1], 1),
        ("normal", [-6.2, 2.3, 5.1], 2),
    ],
)
def test_second_derivatives_of_an_unlikely_label(method, row, k):
    """In float32 as in float64, where no 1/y² overflows."""

    def hessian(dtype):
        def loss(x):
            return topk_cross_entropy(x, torch.tensor(0), k, method=method)

        x = torch.tensor(row, dtype=dtype)
        return torch.autograd.functional.hessian(loss, x).double()

    torch.testing.assert_close(hessian(torch.float32), hessian(torch.float64), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("method", ["sigmoid", "laplace", "normal"])
def test_extreme_temperatures_give_no_nan(dtype, method):
    largest = torch.finfo(dtype).max
    for row in ([0.3, -0.2, 0.1], [largest, -largest, 0.5 * largest], [1e3, -1e3, -math.inf]):
        for number in (5e-324, 1e-42, 1e-20, 1e20, 1e308):
            for temperature in (number, torch.tensor(number, dtype=torch.float64, requires_grad=True)):
                case = f"{row}, {temperature}"
                x = torch.tensor(row, dtype=dtype, requires_grad=True)
                loss = topk_cross_entropy(x, torch.tensor(1), 1, method=method, temperature=temperature)
                assert loss >= 0, case
                inputs = [x, temperature] if isinstance(temperature, torch.Tensor) else [x]
                for grad in torch.autograd.grad(loss, inputs):
                    assert not grad.isnan().any(), case


def test_the_gradient_in_a_subnormal_temperature_is_not_nan():
    x = torch.tensor([0.02, -0.01, 0.03], requires_grad=True)
    temperature = torch.tensor(7e-41, requires_grad=True)
    loss = topk_cross_entropy(x, torch.tensor(1), 2, temperature=temperature)
    for grad in torch.autograd.grad(loss, [x, temperature]):
        assert not grad.isnan().any()


def test_k_may_be_an_integer_of_numpy():
    x, target = torch.randn(4, 6, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 2, 3])
    assert torch.equal(topk_cross_entropy(x, target, np.int32(2)), topk_cross_entropy(x, target, 2))


@pytest.mark.parametrize(("n", "above"), [(340_000, 9.3), (256_000, 11.0), (128_000, 14.0), (50, 40.0)])
def test_one_class_beside_very_many(n, above):
    """Each of the others is nothing, all together they are something: 1 − y ≈ e^(−above)."""
    x = torch.zeros(1, n)
    x[0, 7] = math.log(n) + above
    loss = topk_cross_entropy(x, torch.tensor([7]), k=1)
    e = brentq(lambda e: expit(-math.log(n) - above - e) - (n - 1) * expit(e), -60, 0, xtol=1e-14)
    assert loss.item() == pytest.approx(-math.log(expit(math.log(n) + above + e)), rel=1e-5, abs=1e-12)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32])
def test_labels_of_any_integers(dtype):
    x, target = torch.randn(3, 5), torch.tensor([0, 4, 2])
    assert torch.equal(topk_cross_entropy(x, target.to(dtype), 2), topk_cross_entropy(x, target, 2))
