"""The layer against a loop over tokens, with every kind of expert, dropped places and padding."""

import copy

import pytest
import torch
from torch import nn

from khot.apps.moe import ExpertChoiceRouter, Experts, MoE, TopKRouter, mask_padding


def tokens(*shape, seed=1, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def expert(experts, e, x):
    """One expert, on one token."""
    if not experts.gated:
        return experts.down_proj[e] @ nn.functional.gelu(experts.up_proj[e] @ x)
    gate, up = (experts.gate_up_proj[e] @ x).chunk(2)
    return experts.down_proj[e] @ (nn.functional.silu(gate) * up)


def by_hand(layer, x, routing):
    rows = []
    for t in range(len(x)):
        sums = torch.zeros_like(x[t])
        for weight, e in zip(routing.weights[t], routing.indices[t].tolist(), strict=True):
            sums = sums + weight * expert(layer.experts, e, x[t])
        rows.append(sums)
    return torch.stack(rows)


def made(hidden=8, experts=4, k=2, width=12, dtype=torch.float32, gated=True, **options):
    torch.manual_seed(0)
    router = TopKRouter(hidden, experts, k)
    nn.init.normal_(router.weight)
    kind = {} if gated else {"activation": "gelu", "gated": False}
    return MoE(router, Experts(experts, hidden, width, **kind), **options).to(dtype)


@pytest.mark.parametrize("gated", [True, False])
@pytest.mark.parametrize(("hidden", "width"), [(8, 12), (7, 5)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_as_a_loop_over_tokens(dtype, hidden, width, gated):
    """By torch's grouped product and, where rows are of odd length or float64, by stretches."""
    layer = made(hidden, width=width, dtype=dtype, gated=gated)
    x = tokens(30, hidden, dtype=dtype).requires_grad_()
    y, routing = layer(x, return_routing=True)
    wanted = by_hand(layer, x, routing)
    torch.testing.assert_close(y, wanted, rtol=1e-4, atol=1e-5)
    g = tokens(30, hidden, seed=3, dtype=dtype)
    leaves = [x, *layer.parameters()]
    found = torch.autograd.grad((y * g).sum(), leaves, retain_graph=True)
    for a, b in zip(found, torch.autograd.grad((wanted * g).sum(), leaves), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_experts_that_are_modules():
    torch.manual_seed(0)
    modules = [nn.Linear(8, 8) for _ in range(4)]
    layer = MoE(TopKRouter(8, 4, 2), modules)
    x = tokens(3, 5, 8)
    mask = torch.arange(15).view(3, 5) % 4 != 0
    y, routing = layer(x, mask, return_routing=True)
    flat = x.view(15, 8)
    every = torch.stack([m(flat) for m in modules], 1)
    picked = every.gather(1, routing.indices.unsqueeze(-1).expand(-1, -1, 8))
    torch.testing.assert_close(y.view(15, 8), (picked * routing.weights.unsqueeze(-1)).sum(1))
    assert (y[~mask] == 0).all()
    assert len(list(layer.parameters())) == 1 + 8


def test_padding_and_dropped_places_are_not_computed():
    layer = made(capacity=3)
    x = tokens(20, 8)
    x[5] = torch.nan  # padding may hold anything
    mask = torch.arange(20) != 5
    y, routing = layer(x, mask, return_routing=True)
    assert not y.isnan().any()
    assert (y[5] == 0).all()
    kept = routing.weights > 0
    loads = torch.bincount(routing.indices[kept], minlength=4)
    assert loads.max() == 3
    torch.testing.assert_close(y[mask], by_hand(layer, x[mask], _rows(routing, mask)), rtol=1e-4, atol=1e-5)
    assert layer(x, torch.zeros(20)).abs().sum() == 0


def _rows(routing, mask):
    return type(routing)(*(part[mask] for part in routing))


def test_a_factor_and_a_drop_policy():
    x = tokens(40, 8)
    kept = [
        made(capacity_factor=0.5, drop=drop)(x, return_routing=True)[1].weights > 0
        for drop in ("probability", "position")
    ]
    assert kept[0].sum() <= 4 * 10
    assert (kept[0] != kept[1]).any()


def test_shared_experts():
    shared, gate = nn.Linear(8, 8), nn.Linear(8, 1)
    layer, x = made(), tokens(6, 8)
    routed = layer(x)
    torch.testing.assert_close(made(shared=shared)(x), routed + shared(x))
    torch.testing.assert_close(
        made(shared=shared, shared_gate=gate)(x), routed + gate(x).sigmoid() * shared(x)
    )


def test_expert_choice():
    torch.manual_seed(0)
    router = ExpertChoiceRouter(8, 4, capacity=3)
    layer = MoE(router, Experts(4, 8, 12))
    x, mask = tokens(10, 8), torch.arange(10) < 7
    y, routing = layer(x, mask, return_routing=True)
    wanted = torch.zeros(10, 8)
    for e in range(4):
        for weight, t in zip(routing.weights[e], routing.indices[e].tolist(), strict=True):
            wanted[t] += weight * expert(layer.experts, e, x[t])
    torch.testing.assert_close(y, wanted, rtol=1e-4, atol=1e-5)
    assert (y[7:] == 0).all()


def test_a_router_of_another_kind():
    class Fixed(nn.Module):
        def forward(self, x):
            return torch.zeros(len(x), 4), torch.ones(len(x), 1), torch.zeros(len(x), 1, dtype=torch.int64)

    layer = MoE(Fixed(), made().experts)
    x = tokens(5, 8)
    torch.testing.assert_close(layer(x)[2], expert(layer.experts, 0, x[2]), rtol=1e-4, atol=1e-5)
    assert (layer(x, torch.arange(5) > 2)[:3] == 0).all()


def test_replay_and_bfloat16_and_copies():
    layer, x = made(), tokens(9, 8)
    y, routing = layer(x, return_routing=True)
    torch.testing.assert_close(layer(x, indices=routing.indices), y)
    half = copy.deepcopy(layer).to(torch.bfloat16)
    low, low_routing = half(x.bfloat16(), return_routing=True)
    assert low.dtype == torch.bfloat16
    assert low_routing.logits.dtype == torch.float32
    torch.testing.assert_close(low.float(), y, rtol=0.1, atol=0.05)
    low.float().sum().backward()
    assert all(p.grad is not None for p in half.parameters())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        torch.testing.assert_close(layer(x).float(), y, rtol=0.1, atol=0.05)


def test_the_state_of_experts_is_that_of_transformers():
    mixtral = pytest.importorskip("transformers.models.mixtral.modeling_mixtral")
    from transformers import MixtralConfig

    config = MixtralConfig(hidden_size=8, intermediate_size=12, num_local_experts=4, num_experts_per_tok=2)
    theirs = mixtral.MixtralExperts(config)
    layer = made()
    theirs.load_state_dict(layer.experts.state_dict())
    x = tokens(11, 8)
    y, routing = layer(x, return_routing=True)
    torch.testing.assert_close(theirs(x, routing.indices, routing.weights), y, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("dtype", "backend"),
    [
        (torch.float32, "aot_eager"),
        pytest.param(torch.float32, "inductor", marks=pytest.mark.full),
        pytest.param(torch.bfloat16, "inductor", marks=pytest.mark.full),
    ],
)
def test_one_compiled_graph(dtype, backend):
    layer, x = made(capacity_factor=1.0, dtype=dtype), tokens(32, 8, dtype=dtype)
    mask = torch.arange(32) < 20
    compiled = torch.compile(layer, fullgraph=True, backend=backend)
    wanted, found = layer(x, mask), compiled(x, mask)
    torch.testing.assert_close(found, wanted, rtol=1e-2, atol=1e-2 if dtype == torch.bfloat16 else 1e-5)
    grads = [torch.autograd.grad(y.float().square().sum(), list(layer.parameters())) for y in (wanted, found)]
    for a, b in zip(*grads, strict=True):
        torch.testing.assert_close(a, b, rtol=2e-2, atol=5e-2 if dtype == torch.bfloat16 else 1e-4)


def test_no_tokens():
    for layer in (
        made(),
        made(capacity_factor=1.0),
        MoE(TopKRouter(8, 2, 1), [nn.Linear(8, 8), nn.Linear(8, 8)]),
    ):
        y = layer(tokens(0, 8))
        assert y.shape == (0, 8)
        y.sum().backward()


def test_errors():
    with pytest.raises(ValueError, match="the router chooses among 4 experts, got 3"):
        MoE(TopKRouter(8, 4, 2), Experts(3, 8, 12))
    with pytest.raises(ValueError, match="MoE: the router's tokens have length 8, the experts' 16"):
        MoE(TopKRouter(8, 4, 2), Experts(4, 16, 12))
    with pytest.raises(ValueError, match="MoE: capacity must be at least 1, got 0"):
        made(capacity=0)
    with pytest.raises(ValueError, match="shared_gate needs shared"):
        made(shared_gate=nn.Linear(8, 1))
    with pytest.raises(ValueError, match="the capacity of an ExpertChoiceRouter is its own"):
        MoE(ExpertChoiceRouter(8, 4, 1.0), Experts(4, 8, 12), capacity=2)
    with pytest.raises(ValueError, match="width must be at least 1, got 0"):
        Experts(4, 8, 0)
    with pytest.raises(ValueError, match="activation must be 'silu', 'gelu' or 'relu', got 'tanh'"):
        Experts(4, 8, 8, activation="tanh")
    with pytest.raises(ValueError, match=r"MoE: mask must have the shape of the tokens, \(5,\)"):
        made()(tokens(5, 8), torch.ones(4))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("options", [{"capacity": 3}, {}], ids=["capacity", "padding"])
def test_places_that_are_not_computed_have_no_gradient(options, dtype):
    """Whatever memory held before: new memory is NaN here."""
    layer = made(dtype=dtype, **options)
    x = tokens(40, 8, dtype=dtype).requires_grad_()
    mask = torch.arange(40) % 3 > 0
    torch.use_deterministic_algorithms(True)
    try:
        y, routing = layer(x, mask, return_routing=True)
        y.float().square().sum().backward()
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(p.grad is not None and p.grad.isfinite().all() for p in layer.parameters())
    unseen = (routing.weights == 0).all(-1)
    assert 0 < unseen.sum() < 40
    assert (x.grad[unseen] == 0).all()
    assert (x.grad[~unseen].abs().sum(-1) > 0).all()


@pytest.mark.parametrize("options", [{"capacity": 3}, {"capacity_factor": 0.7}, {}])
@pytest.mark.parametrize("drop", ["position", "probability"])
def test_masked_padding_is_a_mask(drop, options):
    """A mask that the routers are told of does what one that is passed does, for capacities too."""
    x, mask = tokens(2, 10, 8), torch.arange(20).view(2, 10) % 10 > 4
    layer = made(drop=drop, **options)
    choice = MoE(ExpertChoiceRouter(8, 4, capacity=3), Experts(4, 8, 12))
    for each in (layer, choice):
        with mask_padding(each, mask):
            y, routing = each(x, return_routing=True)
        wanted, wanted_routing = each(x, mask, return_routing=True)
        assert torch.equal(y, wanted)
        assert torch.equal(routing.weights, wanted_routing.weights)
        assert not torch.equal(y, each(x))


@pytest.mark.full
def test_the_number_of_tokens_may_be_open_in_an_exported_program():
    layer = MoE(TopKRouter(8, 4, 2), Experts(4, 8, 16)).eval()
    tokens = {0: torch.export.Dim("tokens", min=2, max=64)}
    program = torch.export.export(layer, (torch.randn(5, 8),), dynamic_shapes=(tokens,)).module()
    with torch.no_grad():
        for count in (2, 9):
            x = torch.randn(count, 8)
            torch.testing.assert_close(program(x), layer(x))


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32])
def test_indices_of_any_integers(dtype):
    experts, x, weights = Experts(4, 8, 16), torch.randn(5, 8), torch.rand(5, 2)
    indices = torch.randint(5, (5, 2))
    assert torch.equal(experts(x, indices.to(dtype), weights), experts(x, indices, weights))
