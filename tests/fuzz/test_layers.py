"""Layers: what the operator of the same settings gives, in training and evaluation, saved and loaded."""

import torch
from hypothesis import given
from hypothesis import strategies as st

import khot
from khot.relaxations import registry
from strategies.fuzzed_outcomes import cases, check_gradient, check_weights, refusal
from strategies.fuzzed_problems import problems

ARGUMENTS = ["k", "temperature", "dim", "mask", "scores", "method"]


@cases(0.04)
@given(
    problems(per_row=False, longest=17),
    st.sampled_from(registry.names()),
    st.sampled_from(["same", "hard"]),
    st.booleans(),
)
def test_topk_layer(problem, method, eval_mode, learned):
    arguments, spec = problem.arguments, registry.get(method)
    if problem.wrong == "temperature" and arguments["temperature"] is None:  # the default
        return
    settings = {name: arguments[name] for name in ("temperature", "dim", "largest")}
    if isinstance(settings["temperature"], torch.Tensor):  # a layer has one number
        settings["temperature"] = problem.least
        problem.wrong = None if problem.wrong == "temperature" else problem.wrong
    layer, message = refusal(
        khot.nn.TopK,
        arguments["k"],
        method,
        eval_mode=eval_mode,
        learn_temperature=learned,
        names=ARGUMENTS,
        **settings,
    )
    if message:
        assert problem.wrong in ("k", "temperature", "dim"), message
        return
    y, message = refusal(
        layer, arguments["scores"], arguments["mask"], generator=problem.generator(), names=ARGUMENTS
    )
    assert bool(message) == (problem.wrong is not None), message or f"{problem.wrong} was accepted"
    if message:
        return
    check_weights(problem, y, bounded=spec.bounded, sums_to_k=spec.sums_to_k)
    check_gradient(problem, y)
    again = khot.nn.TopK(
        arguments["k"],
        method,
        eval_mode=eval_mode,
        learn_temperature=learned,
        **{**settings, "temperature": 1.0},
    )
    again.load_state_dict(layer.state_dict())
    assert torch.equal(
        *(made.eval()(arguments["scores"], arguments["mask"]).nan_to_num(-1) for made in (layer, again))
    )
