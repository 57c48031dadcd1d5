"""The gate Jacobian kernel against float64 arithmetic."""

import math
import multiprocessing
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from khot.kernels import cpu, loader
from strategies.instruction_sets import every_instruction_set
from strategies.quick_run import in_turn

pytestmark = pytest.mark.usefixtures("library")

SHAPES = [(3, 0), (0, 5), (1, 1), (9,), (7, 3), (5, 1, 33), (1, 4097), (513, 64), (3, 40000), (1, 100003)]
LONG = (1, 1_200_001)  # more blocks than parts: a part has several
DTYPES = [torch.float32, torch.float64]


def problem(shape, dtype, seed=0):
    """Residual, gradient, and a temperature for each row."""
    generator = torch.Generator().manual_seed(seed)
    residual = torch.rand(shape, generator=generator, dtype=torch.float64) - 0.5
    residual = residual * torch.rand(shape, generator=generator, dtype=torch.float64) ** 4
    residual[..., ::5] = 0
    grad = torch.randn(shape, generator=generator, dtype=torch.float64) + 2
    temperature = torch.rand((*shape[:-1], 1), generator=generator, dtype=torch.float64) + 0.1
    return residual.to(dtype), grad.to(dtype), temperature.to(dtype)


def truth(residual, grad, temperature):
    """out, mean, and for each the size of what was summed: the scale of its rounding errors."""
    size = np.abs(residual.double().numpy())
    g, tau = grad.double().numpy(), temperature.double().numpy()
    weight = size * (1 - size)
    g = np.where(weight == 0, 0, g)
    total = weight.sum(-1, keepdims=True)
    some = np.where(total == 0, 1, total)
    mean = (weight * g).sum(-1, keepdims=True) / some
    mean_size = (weight * np.abs(g)).sum(-1, keepdims=True) / some
    return weight / tau * (g - mean), mean, weight / tau * (np.abs(g) + mean_size), mean_size


def assert_true(result, inputs, roundings=64):
    out, mean = result
    residual = inputs[0]
    expected, expected_mean, size, mean_size = truth(*inputs)
    assert out.dtype == mean.dtype == residual.dtype
    assert out.shape == residual.shape
    assert mean.shape == (*residual.shape[:-1], 1)
    assert out.is_contiguous()
    assert mean.is_contiguous()
    allowed = roundings * torch.finfo(residual.dtype).eps
    assert np.all(np.abs(out.double().numpy() - expected) <= allowed * size)
    assert np.all(np.abs(mean.double().numpy() - expected_mean) <= allowed * mean_size)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("norm", [1.01, 1.25, 1.5, 2.0])
def test_the_smallest_temperature_has_no_infinite_factor(norm, dtype):
    """1/((q − 1)τ) is beyond all numbers where w/τ is not, and times 0 it would be NaN."""
    state, grad = torch.tensor([[0.5, 0.5, 0.0, 1.0]], dtype=dtype), torch.ones(1, 4, dtype=dtype)
    out, mean = cpu.gate_jacobian(state, grad, torch.finfo(dtype).tiny, "sparse", norm)
    assert not out.any()
    assert mean == 1


@pytest.mark.usefixtures("threads", "poisoned")
@pytest.mark.parametrize(("shape", "dtype", "threads"), in_turn(SHAPES, DTYPES, [1, 2]), indirect=["threads"])
def test_equals_truth(shape, dtype):
    inputs = problem(shape, dtype)
    before = [tensor.clone() for tensor in inputs]
    assert_true(cpu.gate_jacobian(*inputs), inputs)
    assert all(torch.equal(now, then) for now, then in zip(inputs, before, strict=True))


@pytest.mark.usefixtures("threads", "poisoned")
@pytest.mark.parametrize(("dtype", "threads"), in_turn(DTYPES, [1, 2]), indirect=["threads"])
def test_equals_truth_in_a_very_long_row(dtype):
    inputs = problem(LONG, dtype)
    assert_true(cpu.gate_jacobian(*inputs), inputs)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(513, 64), (3, 40000), LONG])
def test_thread_count_does_not_change_a_bit(shape, dtype):
    inputs = problem(shape, dtype)
    results = []
    for count in (1, 2, 5):
        torch.set_num_threads(count)
        results.append(cpu.gate_jacobian(*inputs))
    for out, mean in results[1:]:
        assert torch.equal(out, results[0][0])
        assert torch.equal(mean, results[0][1])


@every_instruction_set
def test_every_instruction_set(isa, run_python, tmp_path):
    if isa not in loader.status().isa_supported:
        pytest.skip(f"this CPU has no {isa}")
    problems = {}
    for dtype in DTYPES:
        for shape in [(1, 1), (7, 3), (5, 1, 33), (513, 64), (1, 100003)]:
            problems[dtype, shape] = problem(shape, dtype)
    torch.save(problems, tmp_path / "problems.pt")
    code = f"""
import torch
from khot.kernels import cpu, loader
problems = torch.load({str(tmp_path / "problems.pt")!r}, weights_only=True)
results = {{key: cpu.gate_jacobian(*inputs) for key, inputs in problems.items()}}
torch.save(results, {str(tmp_path / "results.pt")!r})
print(loader.status().isa)
"""
    assert run_python(code, KHOT_ISA=isa) == isa
    results = torch.load(tmp_path / "results.pt", weights_only=True)
    for key, inputs in problems.items():
        assert_true(results[key], inputs)


@pytest.mark.parametrize("dtype", DTYPES)
def test_one_temperature_serves_all_rows(dtype):
    residual, grad, _ = problem((40, 300), dtype)
    for temperature in (torch.tensor(0.25), torch.tensor([[0.25]], dtype=torch.float64)):
        inputs = residual, grad, temperature
        assert_true(cpu.gate_jacobian(*inputs), inputs)


def test_temperature_broadcasts_over_batch_dimensions():
    residual, grad, _ = problem((4, 3, 20), torch.float32)
    temperature = torch.tensor([[0.5], [1.0], [2.0]])
    assert_true(cpu.gate_jacobian(residual, grad, temperature), (residual, grad, temperature))


@pytest.mark.parametrize("dtype", DTYPES)
def test_inputs_need_not_be_contiguous(dtype):
    residual, grad, _ = problem((6, 8, 50), dtype)
    temperature = torch.rand(50, 8, 12, dtype=dtype) + 0.1
    inputs = residual.transpose(0, 2), grad.transpose(0, 2), temperature[..., 3:4]
    assert not any(tensor.is_contiguous() for tensor in inputs)
    assert_true(cpu.gate_jacobian(*inputs), inputs)


def test_a_lazily_negated_view_is_read_as_negated():
    residual, grad, temperature = problem((200,), torch.float32)
    negated = torch.complex(torch.zeros(200), -grad).conj().imag
    assert negated.is_neg()
    assert torch.equal(negated, grad)
    expected = cpu.gate_jacobian(residual, grad, temperature)
    assert torch.equal(cpu.gate_jacobian(residual, negated, temperature)[0], expected[0])


@pytest.mark.usefixtures("threads", "poisoned")
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize(
    ("shape", "dtype", "threads"),
    in_turn([(2, 37), (300, 64), (1, 100003)], DTYPES, [1, 2]),
    indirect=["threads"],
)
def test_gradient_without_weight_cannot_spoil_a_row(shape, dtype, bad):
    residual, grad, temperature = problem(shape, dtype)
    expected = cpu.gate_jacobian(residual, grad, temperature)
    without = residual == 0
    grad[without] = bad
    out, mean = cpu.gate_jacobian(residual, grad, temperature)
    assert torch.equal(out, expected[0])
    assert torch.equal(mean, expected[1])
    assert (out[without] == 0).all()


@pytest.mark.usefixtures("poisoned")
@pytest.mark.parametrize("dtype", DTYPES)
def test_row_without_weight_is_zero(dtype):
    residual, grad, temperature = problem((3, 50), dtype)
    residual[1] = 0
    grad[1] = float("inf")
    out, mean = cpu.gate_jacobian(residual, grad, temperature)
    assert (out[1] == 0).all()
    assert mean[1] == 0
    assert (out[[0, 2]] != 0).any(dim=1).all()


def test_gradient_with_weight_keeps_its_nan():
    residual, grad, temperature = problem((2, 50), torch.float32)
    grad[0, 7] = float("nan")
    out, mean = cpu.gate_jacobian(residual, grad, temperature)
    assert mean[0].isnan()
    assert out[0][residual[0] != 0].isnan().all()
    assert not out[1].isnan().any()


def test_forked_child_does_not_wait_for_its_parents_threads():
    torch.set_num_threads(2)
    inputs = problem((4, 100003), torch.float32)
    expected, _ = cpu.gate_jacobian(*inputs)  # from here on the parent has a pool of threads

    def in_child():
        # numpy compares: a torch operation of this size would itself wait for threads.
        out, _ = cpu.gate_jacobian(*inputs)
        raise SystemExit(0 if np.array_equal(out.numpy(), expected.numpy()) else 1)

    with warnings.catch_warnings():
        # Python 3.12 and later warn that forking a threaded process is risky: that risk is the test.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = multiprocessing.get_context("fork").Process(target=in_child)
        child.start()
    child.join(60)
    hangs = child.is_alive()
    if hangs:
        child.kill()
        child.join()
    assert not hangs
    assert child.exitcode == 0


def test_concurrent_python_threads():
    torch.set_num_threads(2)
    problems = [problem((30, 1000), torch.float32, seed) for seed in range(8)]
    expected = [cpu.gate_jacobian(*inputs)[0] for inputs in problems]

    def repeatedly(inputs):
        return [cpu.gate_jacobian(*inputs)[0] for _ in range(20)]

    with ThreadPoolExecutor(4) as pool:
        for outs, right in zip(pool.map(repeatedly, problems), expected, strict=True):
            assert all(torch.equal(out, right) for out in outs)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("gate", ["laplace", "sparse", "normal"])
@pytest.mark.parametrize("shape", [(7, 3), (5, 33), (2, 700)])
def test_other_gates_against_the_dense_jacobian(gate, shape, dtype):
    state, grad, temperature = problem(shape, dtype)
    if gate == "sparse":  # weights: some 0, some 1, the others between
        state = (3 * state.abs()).clamp(max=1)
    out, mean = cpu.gate_jacobian(state, grad, temperature, gate)
    for r in range(shape[0]):
        y, g = state[r].double(), grad[r].double()
        w = {
            "laplace": y.abs(),
            "sparse": ((y > 0) & (y < 1)).double(),
            "normal": torch.exp(-y.square() / 2) / math.sqrt(2 * math.pi),
        }[gate]
        jacobian = torch.diag(w) - torch.outer(w, w) / w.sum()
        allowed = 64 * torch.finfo(dtype).eps * w * (g.abs() + g.abs().max()) / temperature[r].double()
        assert ((out[r].double() - jacobian @ g / temperature[r].double()).abs() <= allowed).all()
        assert abs(mean[r].item() - (w @ g / w.sum()).item()) <= 64 * torch.finfo(dtype).eps * g.abs().max()


def test_result_has_no_graph():
    residual, grad, temperature = (tensor.requires_grad_() for tensor in problem((4, 6), torch.float32))
    out, mean = cpu.gate_jacobian(residual, grad, temperature)
    assert not out.requires_grad
    assert not mean.requires_grad


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda r, g, t: (r.half(), g, t), TypeError, "state must be float32 or float64"),
        (lambda r, g, t: (r[0, 0], g, t), ValueError, "at least one dimension"),
        (lambda r, g, t: (r, g[:, 1:], t), ValueError, "grad must be like state"),
        (lambda r, g, t: (r, g.double(), t), ValueError, "grad must be like state"),
        (lambda r, g, t: (r, g.to("meta"), t), ValueError, "grad must be like state"),
        (lambda r, g, t: (r, g, torch.ones(5, 1)), ValueError, "temperature must broadcast"),
        (lambda r, g, t: (r, g, torch.ones(6)), ValueError, "temperature must broadcast"),
    ],
)
def test_wrong_inputs_are_named(change, error, message):
    with pytest.raises(error, match=message):
        cpu.gate_jacobian(*change(*problem((4, 6), torch.float32)))


@pytest.mark.parametrize("name", ["gate_jacobian_f32", "gate_jacobian_f64"])
@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({}, None, None),
        ({"threads": 0}, ValueError, "threads must be from 1"),
        ({"threads": 2**31}, ValueError, "threads must be from 1"),
        ({"rows": -1}, ValueError, "rows must be from 0"),
        ({"n": -1}, ValueError, "n must be from 0"),
        ({"rows": 2**40, "n": 2**40}, OverflowError, "overflows"),
        ({"rows": 2**62, "n": 1}, OverflowError, "overflows"),
        ({"n": 2**70}, OverflowError, "too (large|big)"),
        ({"gate": 6}, ValueError, "gate must be from 0 to 5"),
        ({"norm": 1.0}, ValueError, "norm must be above 1 and at most 2"),
        ({"norm": 2.5}, ValueError, "norm must be above 1 and at most 2"),
        ({"norm": "2"}, TypeError, "real number"),
        ({"state": 0}, ValueError, "state must not be a null address"),
        ({"grad": 0}, ValueError, "grad must not be a null address"),
        ({"out": 0}, ValueError, "out must not be a null address"),
        ({"temperature": 0}, ValueError, "temperature must not be a null address"),
        ({"mean": 0}, None, None),
        ({"gate": 4, "threshold": 1}, ValueError, "x must not be a null address"),
        ({"gate": 4, "x": 1}, ValueError, "threshold must not be a null address"),
        ({"mean": 1.5}, TypeError, "int"),
        ({"rows": 1.5}, TypeError, "int"),
        ({"rows": None}, TypeError, "int"),
    ],
)
def test_module_checks_what_it_can(library, name, change, error, message):
    memory = torch.ones(5, 3, dtype=torch.float64)
    pointers = dict(
        zip(
            ("state", "grad", "temperature", "out", "mean"),
            (row.data_ptr() for row in memory),
            strict=True,
        )
    )
    order = [
        "gate",
        "norm",
        "state",
        "x",
        "threshold",
        "grad",
        "temperature",
        "out",
        "mean",
        "rows",
        "n",
        "threads",
    ]
    arguments = {
        "gate": 0,
        "norm": 2.0,
        "x": 0,
        "threshold": 0,
        **pointers,
        "rows": 1,
        "n": 3,
        "threads": 1,
        **change,
    }
    kernel = getattr(library, name)
    if error is None:
        assert kernel(*(arguments[key] for key in order)) is None
        return
    with pytest.raises(error, match=message):
        kernel(*(arguments[key] for key in order))


def test_module_counts_its_arguments(library):
    with pytest.raises(TypeError, match="gate_jacobian_f32 takes 12 arguments, got 2"):
        library.gate_jacobian_f32(0, 0)
