"""`khot.interop.numpy`: arrays of every type and memory, as tensors of the same values or refused."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

import khot
from khot.interop import numpy as knp
from strategies.fuzzed_outcomes import cases, refusal
from strategies.fuzzed_problems import problems

NAMES = ["sigmoid_topk", "laplace_topk", "normal_topk", "sparse_topk", "hard_topk"]
OTHERS = ["longdouble", "structured", "masked", "object", "string", "complex", "swapped", "integer"]
ARGUMENTS = ["scores", "k", "temperature", "mask", "dim", "axis"]


def other_array(x: np.ndarray, form: str):
    """Arrays that torch cannot read, or that mean more than their memory says."""
    return {
        "longdouble": lambda: x.astype(np.longdouble),
        "structured": lambda: x.astype([("a", np.float64)]),
        "masked": lambda: np.ma.masked_invalid(x),
        "object": lambda: x.astype(object),
        "string": lambda: x.astype(str),
        "complex": lambda: x.astype(np.complex128),
        "swapped": lambda: x.astype(x.dtype.newbyteorder()),
        "integer": lambda: np.zeros(x.shape, np.int16),
    }[form]()


def as_array(value):
    return value.detach().numpy() if isinstance(value, torch.Tensor) else value


@cases(0.04)
@given(
    problems(real_k=False, longest=64),
    st.sampled_from(NAMES),
    st.sampled_from(["as is", "as is", "read-only", "reversed", "fortran", "unsigned k", "other k", "other"]),
    st.sampled_from(OTHERS),
)
def test_arrays(problem, name, form, other):
    arguments = dict(problem.arguments)
    scores = arguments["scores"]
    if not isinstance(scores, torch.Tensor) or problem.wrong == "scores" or scores.dtype == torch.bfloat16:
        return
    x, axis = scores.detach().numpy(), arguments.pop("dim")
    k, mask = as_array(arguments["k"]), as_array(arguments["mask"])
    wrong = problem.wrong
    if form == "read-only":
        x = x.copy()
        x.flags.writeable = False
    elif form == "reversed" and wrong != "dim":
        x = np.flip(np.flip(x, axis).copy(), axis)
    elif form == "fortran":
        x = np.asfortranarray(x)
    elif form == "unsigned k" and wrong != "k":
        kind = np.array([np.uint16, np.uint32, np.uint64])[problem.seed % 3]
        k = np.asarray(problem.budgets.round().numpy()).astype(kind)
    elif form == "other k" and wrong is None and other != "integer":
        k, wrong = other_array(np.full(problem.budgets.shape, 1.0), other), "k"
    elif form == "other":
        x, wrong = other_array(x, other), "scores"
    settings = {"mask": mask, "largest": arguments["largest"], "axis": axis}
    if name != "hard_topk":
        settings["temperature"] = as_array(arguments["temperature"])
    elif wrong == "temperature":
        return
    y, message = refusal(getattr(knp, name), x, k, names=ARGUMENTS, **settings)
    if wrong is not None:
        assert message, f"{wrong} was accepted: {form}, {other}"
        return
    assert not message, message
    assert y.dtype == x.dtype
    expected = getattr(khot, name)(
        scores.detach().clone(memory_format=torch.contiguous_format),
        torch.as_tensor(problem.budgets.round()),
        dim=axis,
        mask=arguments["mask"],
        largest=arguments["largest"],
        **({} if name == "hard_topk" else {"temperature": arguments["temperature"]}),
    )
    close = np.abs(y.astype(np.float64) - expected.double().numpy()) <= 16 * np.finfo(y.dtype).eps
    assert (close | np.isnan(y)).all()
