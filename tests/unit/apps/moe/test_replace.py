"""Routers of transformers models, replaced in place, and all that users do with such models."""

import copy
import io
import subprocess
import sys

import pytest
import torch
from torch import nn

pytest.importorskip("transformers", minversion="5.0")

from khot.apps.moe import (
    balance_experts,
    load_balance_loss,
    mask_padding,
    record_routing,
    replace_router,
    replay_routing,
    restore_router,
    watch_routing,
)
from strategies.tiny_moe_models import FAMILIES, WITH_BALANCE_LOSS, text, tiny_model

SOFT = ("sigmoid_topk", "straight_through", "sparse")


def gates(model):
    return {n: m for n, m in model.named_modules() if n.endswith((".gate", ".router"))}


def routings(model, x):
    """What each gate gives."""
    found, handles = {}, []
    for name, gate in gates(model).items():
        handles.append(gate.register_forward_hook(lambda _, args, out, name=name: found.update({name: out})))
    model(x)
    for handle in handles:
        handle.remove()
    return found


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("family", FAMILIES)
def test_unchanged_routing_is_the_same_bit_for_bit(family, dtype):
    """The same experts and equal weights, slots sorted, wherever the cut has no tie; k = 5, so that sums have
    an order."""
    model = tiny_model(family, k=5 if family.startswith("Deepseek") else 3).to(dtype)
    gate = next(iter(gates(model).values()))
    hidden = torch.randn(2000, 32, generator=torch.Generator().manual_seed(0)).to(dtype)
    before = gate(hidden)
    names = replace_router(model)
    assert set(names) == set(gates(model))
    after = gate(hidden)
    assert torch.equal(before[0], after[0])
    assert [t.dtype for t in before] == [t.dtype for t in after]
    own, ours = before[2].sort(), after[2].sort()
    same = (own.values == ours.values).all(-1)
    ties = ~same
    assert ties.float().mean() < (0.2 if dtype == torch.bfloat16 else 0.001)
    if dtype == torch.float32 or family == "GptOss":
        cut = before[1].amin(-1)[ties], after[1].amin(-1)[ties]
        torch.testing.assert_close(*cut, rtol=1e-2, atol=1e-6)  # only ties differ
    assert torch.equal(before[1].gather(1, own.indices)[same], after[1].gather(1, ours.indices)[same])


@pytest.mark.parametrize("family", FAMILIES)
def test_the_model_is_the_same_before_and_after(family):
    model, x = tiny_model(family), text()
    keys, before = list(model.state_dict()), model(x).logits
    identities = [id(gate) for gate in gates(model).values()]
    classes = [type(gate) for gate in gates(model).values()]
    replace_router(model)
    # The slots of DeepSeek have no order, so a sum over them may differ in its last bit, on two threads.
    rounding = 2e-7 if family.startswith("Deepseek") else 0
    torch.testing.assert_close(model(x).logits, before, rtol=0, atol=rounding)
    assert list(model.state_dict()) == keys
    assert [id(gate) for gate in gates(model).values()] == identities
    assert all(isinstance(g, c) for g, c in zip(gates(model).values(), classes, strict=True))
    for routing in SOFT:
        replace_router(model, routing)
        assert not torch.equal(model(x).logits, before)
        assert list(model.state_dict()) == keys
    assert restore_router(model) == tuple(gates(model))
    assert [type(gate) for gate in gates(model).values()] == classes
    assert torch.equal(model(x).logits, before)
    assert not any(name.startswith("khot") for gate in gates(model).values() for name in vars(gate))
    assert restore_router(model) == ()


@pytest.mark.parametrize("family", ["Mixtral", "DeepseekV3"])
def test_copied_saved_and_pretrained(family, tmp_path):
    model, x = tiny_model(family), text()
    replace_router(model, "sigmoid_topk", temperature=0.5)
    wanted = model(x).logits
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    for same in (copy.deepcopy(model), torch.load(file, weights_only=False)):
        assert torch.equal(same(x).logits, wanted)
        assert all(a is not b for a, b in zip(same.parameters(), model.parameters(), strict=True))
        restore_router(same)
        assert not torch.equal(same(x).logits, wanted)
    model.save_pretrained(tmp_path)
    again = type(model).from_pretrained(tmp_path)
    restore_router(model)
    assert torch.equal(again(x).logits, model(x).logits)
    replace_router(again, "sigmoid_topk", temperature=0.5)
    assert torch.equal(again(x).logits, wanted)


@pytest.mark.full
def test_a_saved_model_is_read_by_another_process(tmp_path):
    model = tiny_model("Mixtral")
    replace_router(model, "sparse")
    torch.save(model, tmp_path / "model.pt")
    torch.save(model(text()).logits, tmp_path / "logits.pt")
    code = (
        "import sys, torch; from pathlib import Path; folder = Path(sys.argv[1]); "
        "m = torch.load(folder / 'model.pt', weights_only=False); g = torch.Generator().manual_seed(0); "
        "x = torch.randint(3, 50, (3, 12), generator=g); "
        "assert torch.equal(m(x).logits, torch.load(folder / 'logits.pt'))"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)


def test_hooks_stay():
    model, calls = tiny_model("Mixtral"), []
    gate = next(iter(gates(model).values()))
    gate.register_forward_hook(lambda *_: calls.append("own"))
    replace_router(model, "sparse")
    assert calls == []  # looking at the gate does not call it
    model(text())
    restore_router(model)
    model(text())
    assert calls == ["own", "own"]


@pytest.mark.parametrize("family", WITH_BALANCE_LOSS)
def test_recorded_router_logits_before_and_after(family):
    x = text()
    for warm in (False, True):  # transformers installs its recorders at the first recorded call
        model = tiny_model(family)
        if warm:
            model(x, output_router_logits=True)
        replace_router(model, "sigmoid_topk")
        found = model(x, labels=x, output_router_logits=True)
        assert len(found.router_logits) == len(gates(model))
        assert found.router_logits[0].shape == (36, 8)
        assert found.aux_loss > 0
        restore_router(model)
        assert len(model(x, output_router_logits=True).router_logits) == len(gates(model))


@pytest.mark.parametrize("routing", ["topk", "sampled"])
def test_generate(routing):
    model, x = tiny_model("Qwen3Moe"), text(batch=2, length=5)
    own = model.generate(x, max_new_tokens=4, do_sample=False)
    replace_router(model, routing)
    found = model.generate(x, max_new_tokens=4, do_sample=False)
    assert torch.equal(found, model.generate(x, max_new_tokens=4, do_sample=False))  # no randomness left
    if routing == "topk":
        assert torch.equal(found, own)


@pytest.mark.parametrize("routing", ["topk", "sigmoid_topk", "sampled"])
def test_gradient_checkpointing(routing):
    x, grads = text(), []
    for again in (False, True):
        model = tiny_model("Mixtral").train()
        replace_router(model, routing)
        if again:
            model.gradient_checkpointing_enable()
        torch.manual_seed(1)
        model(x, labels=x).loss.backward()
        grads.append([gate.weight.grad for gate in gates(model).values()])
    for plain, checkpointed in zip(*grads, strict=True):
        assert plain.abs().sum() > 0
        torch.testing.assert_close(plain, checkpointed)


def test_top_1_learns_to_route_again():
    """Renormalised top-1 has no gradient for the router; each of the others has."""
    model, x = tiny_model("Mixtral", k=1), text()

    def gradient():
        model.zero_grad()
        model(x, labels=x).loss.backward()
        return max(gate.weight.grad.abs().max() for gate in gates(model).values())

    model.train()
    assert gradient() < 1e-8
    replace_router(model)
    assert gradient() < 1e-8
    replace_router(model, renormalise=False)
    assert gradient() > 1e-5
    for routing in (*SOFT, "sampled"):
        replace_router(model, routing)
        assert gradient() > 1e-6


def test_options_change_the_weights():
    model, hidden = tiny_model("Mixtral"), torch.randn(50, 32)
    gate = next(iter(gates(model).values()))
    replace_router(model, scaling_factor=2.0)
    torch.testing.assert_close(gate(hidden)[1].sum(-1), torch.full((50,), 2.0))
    replace_router(model, "sigmoid_topk", renormalise=True)
    torch.testing.assert_close(gate(hidden)[1].sum(-1), torch.ones(50))
    replace_router(model, "sampled", design="sampford")
    gate.train()
    assert torch.equal(gate(hidden)[1], torch.ones(50, 3))
    gpt = tiny_model("GptOss")
    router = next(iter(gates(gpt).values()))
    replace_router(gpt, renormalise=False)
    logits, weights, indices = router(hidden)
    torch.testing.assert_close(weights, logits.softmax(-1).gather(1, indices))


def test_the_correction_bias_of_deepseek_is_trained():
    model, x = tiny_model("DeepseekV3").train(), text()
    gate = next(iter(gates(model).values()))
    bias = gate.e_score_correction_bias.clone()
    replace_router(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    balance_experts(model, optimizer, rate=0.01)
    mask = torch.ones(3, 12)
    mask[:, 8:] = 0
    model.gradient_checkpointing_enable()
    with mask_padding(model, mask):
        for part, real in zip(x.split(1), mask.split(1), strict=True):
            with mask_padding(model, real):
                model(part, labels=part).loss.backward()
    assert gate.expert_counts.sum() == 3 * 8 * 3
    wanted = 0.01 * (gate.expert_counts.mean() - gate.expert_counts).sign()
    optimizer.step()
    torch.testing.assert_close(gate.e_score_correction_bias - bias, wanted)


def test_replay_and_statistics():
    model, x = tiny_model("Olmoe"), text()
    replace_router(model)
    with watch_routing(model) as statistics, record_routing(model) as recorded:
        first = model(x).logits
    assert all(step.tokens == 36 for s in statistics.values() for step in s.steps)
    with torch.no_grad():
        for gate in gates(model).values():
            gate.weight.add_(0.05 * torch.randn(8, 32, generator=torch.Generator().manual_seed(0)))
    with replay_routing(model, recorded), record_routing(model) as again:
        second = model(x).logits
    assert all(torch.equal(again[name], recorded[name]) for name in recorded)
    assert not torch.equal(first, second)
    logits = routings(model, x)
    name = next(iter(recorded))
    assert load_balance_loss(logits[name][0], recorded[name]) > 0


def test_what_does_not_fit_is_refused_by_name_and_left_alone():
    model = tiny_model("Mixtral")
    kept = [type(gate) for gate in gates(model).values()]

    class Odd(kept[0]):
        def forward(self, hidden_states):
            logits, weights, indices = super().forward(hidden_states)
            return logits, weights.square(), indices

    last = list(gates(model).values())[-1]
    last.__class__ = Odd
    with pytest.raises(
        TypeError, match="replace_router: Odd does not fit: no known way to compute gives its"
    ):
        replace_router(model, "sparse")
    assert type(next(iter(gates(model).values()))) is kept[0]  # all or none
    last.__class__ = kept[0]

    class Block(nn.Module):
        def __init__(self, gate):
            super().__init__()
            self.gate, self.experts = gate, nn.Linear(2, 2)

    for gate, reason in (
        (nn.Linear(4, 4), "Linear does not look like a router of transformers 5"),
        (
            _two(nn.Linear(4, 4)),
            r"Two does not fit: TypeError: forward must give \(logits, weights, indices\)",
        ),
    ):
        with pytest.raises(TypeError, match=reason):
            replace_router(Block(gate))
    with pytest.raises(ValueError, match="Linear has no module 'gate' or 'router' beside 'experts'"):
        replace_router(nn.Linear(2, 2))
    with pytest.raises(ValueError, match=r"routing must be 'topk', .* or 'sparse', got 'best'"):
        replace_router(model, "best")
    with pytest.raises(ValueError, match="routing='topk' has no temperature"):
        replace_router(model, temperature=0.5)
    with pytest.raises(ValueError, match="has a correction bias, which routing='sampled' cannot use"):
        replace_router(tiny_model("DeepseekV3"), "sampled")


def _two(linear):
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight, self.top_k = linear.weight, 2

        def forward(self, x):
            return x, x

    return Two()


def test_a_forward_that_hangs_on_the_gate_is_refused():
    """As accelerate sets it: a new class would change nothing, in silence."""
    model = tiny_model("Mixtral").eval()
    gate = next(iter(gates(model).values()))
    gate.forward = gate.forward
    kind = type(gate)
    with pytest.raises(TypeError, match="replace_router: MixtralTopKRouter has a forward of its own"):
        replace_router(model, "sigmoid_topk")
    assert {type(each) for each in gates(model).values()} == {kind}
    del gate.forward
    replace_router(model, "sigmoid_topk")
    gate.forward = gate.forward
    with pytest.raises(TypeError, match="restore_router: RoutedMixtralTopKRouter has a forward of its own"):
        restore_router(model)
    assert all(type(each) is not kind for each in gates(model).values())


@pytest.mark.parametrize("routing", ["topk", "sigmoid_topk"])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_float32_router_in_a_bfloat16_model(family, routing):
    """Logits of bfloat16 tokens and parameters without a further rounding; the model runs and trains."""
    model = tiny_model(family).to(torch.bfloat16)
    replace_router(model, routing, float32=True)
    name, gate = next(iter(gates(model).items()))
    inputs = []
    handle = gate.register_forward_hook(lambda _, args, out: inputs.append(args[0]))
    logits = routings(model, text())[name][0]
    handle.remove()
    assert logits.dtype == torch.float32
    exact = inputs[0].double().flatten(0, -2) @ gate.weight.double().T
    exact = exact if getattr(gate, "bias", None) is None else exact + gate.bias.double()
    torch.testing.assert_close(logits.double(), exact, rtol=1e-5, atol=1e-5)
    model.train()
    model(text(), labels=text()).loss.backward()
    assert gate.weight.grad.isfinite().all()
    restore_router(model)
    assert "khot_float32" not in vars(gate)
