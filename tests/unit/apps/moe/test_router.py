"""TopKRouter against a router in plain Python, its options one by one, and what it refuses."""

import copy
import io
import itertools

import pytest
import torch

import khot
from khot.apps.moe import TopKRouter
from strategies import routing_oracle

SCORES = ("softmax", "sigmoid", "sqrtsoftplus")
ROUTINGS = ("topk", "sigmoid_topk", "straight_through", "sampled", "sparse")


def made(hidden=6, num_experts=8, k=3, spread=1.0, seed=0, **options):
    router = TopKRouter(hidden, num_experts, k, **options)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        router.weight.copy_(spread * torch.randn(num_experts, hidden, generator=generator))
    return router


def tokens(*shape, seed=1, **options):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), **options)


GROUPS = ({}, {"num_groups": 4, "kept_groups": 2, "group_score": "max"}, {"num_groups": 2, "kept_groups": 1})


@pytest.mark.parametrize("groups", GROUPS)
@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("renormalise", [False, True])
@pytest.mark.parametrize("score", SCORES)
def test_plain_routing_is_that_of_the_oracle(score, renormalise, biased, groups):
    router = made(score=score, renormalise=renormalise, scaling_factor=2.5, correction_bias=biased, **groups)
    bias = None
    if biased:
        router.e_score_correction_bias.copy_(0.2 * tokens(8, seed=3))
        bias = router.e_score_correction_bias.double().tolist()
    logits, weights, indices = router(tokens(20, 6))
    for row in range(20):
        expected, chosen = routing_oracle.route(
            logits[row].double().tolist(), 3, score, renormalise, 2.5, bias, **groups
        )
        assert indices[row].tolist() == chosen
        torch.testing.assert_close(
            weights[row].double(), torch.tensor(expected).double(), rtol=1e-5, atol=1e-7
        )


def test_logits_are_raw_and_tokens_flat():
    router = made()
    x = tokens(2, 5, 6)
    logits, weights, indices = router(x)
    torch.testing.assert_close(logits, x.reshape(10, 6) @ router.weight.T)
    assert weights.shape == indices.shape == (10, 3)
    assert indices.dtype == torch.int64


def test_ties_go_by_index():
    for score in SCORES:
        router = TopKRouter(4, 64, 8, score=score)
        torch.nn.init.zeros_(router.weight)
        assert router(tokens(3, 4)).indices.tolist() == [list(range(8))] * 3


@pytest.mark.parametrize("routing", ROUTINGS)
@pytest.mark.parametrize("k", [1, 8])
def test_one_expert_and_all_experts(routing, k):
    router = made(k=k, routing=routing)
    weights, indices = router(tokens(12, 6))[1:]
    assert ((weights > 0) & (weights <= 1 + 1e-6)).all() or routing == "sparse"
    assert [len(set(row)) for row in indices.tolist()] == [k] * 12


def test_soft_weights_are_those_of_the_operators():
    for routing, weigh in (("sigmoid_topk", khot.sigmoid_topk), ("sparse", khot.sparse_topk)):
        router = made(routing=routing, temperature=0.7, scaling_factor=2.0)
        logits, weights, indices = router(tokens(9, 6))
        dense = 2 * weigh(logits, 3, temperature=0.7)
        torch.testing.assert_close(weights, dense.gather(1, indices))
        assert torch.equal(indices, logits.sort(dim=1, descending=True, stable=True).indices[:, :3])


@pytest.mark.parametrize("routing", ["sigmoid_topk", "straight_through", "sparse"])
@pytest.mark.parametrize("options", [{}, {"correction_bias": True}, {"num_groups": 2, "kept_groups": 1}])
def test_gradients_reach_all_logits_by_the_relaxation(routing, options):
    """Also where a bias or groups choose: the gradient is that of the relaxation at the chosen places."""
    router = made(routing=routing, temperature=2.0, **options)
    if "correction_bias" in options:
        router.e_score_correction_bias.copy_(torch.tensor([0.9, 0, 0, 0, 0, 0, 0, 0.9]))
    x, g = tokens(7, 6), tokens(7, 3, seed=5)
    logits, weights, indices = router(x)
    (found,) = torch.autograd.grad((weights * g).sum(), router.weight)
    mask = None
    if "num_groups" in options:
        halves = logits.detach().softmax(-1).view(7, 2, 4).topk(2).values.sum(-1)
        mask = halves.argmax(-1, keepdim=True) == torch.arange(8) // 4
    again = x @ router.weight.T
    method = khot.sparse_topk if routing == "sparse" else khot.sigmoid_topk
    dense = method(again, 3, temperature=2.0, mask=mask)
    (wanted,) = torch.autograd.grad((dense.gather(1, indices) * g).sum(), router.weight)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-6)
    if routing == "straight_through":
        assert torch.equal(weights, torch.ones(7, 3))


def test_renormalised_top_1_has_no_gradient_and_says_so():
    with pytest.warns(UserWarning, match="k=1 renormalised weights are 1"):
        router = TopKRouter(6, 8, 1, renormalise=True)
    for learns, other in ((False, router), (True, made(k=1)), (True, made(k=1, routing="sigmoid_topk"))):
        weights = other(tokens(5, 6)).weights
        (grad,) = torch.autograd.grad((weights * tokens(5, 1, seed=2)).sum(), other.weight)
        assert (grad.abs().max() > 1e-4) == learns


def test_unit_scaling_makes_weights_one_at_equal_logits():
    for routing, score, renormalise, groups in itertools.product(
        ROUTINGS, SCORES, (False, True), ({}, {"num_groups": 2, "kept_groups": 1})
    ):
        router = TopKRouter(
            4, 8, 2, routing=routing, score=score, renormalise=renormalise, scaling_factor="unit", **groups
        )
        torch.nn.init.zeros_(router.weight)
        torch.testing.assert_close(router(tokens(3, 4)).weights, torch.ones(3, 2))


def test_padding_has_no_weight_no_gradient_and_a_valid_index():
    router = made(correction_bias=True, score="sigmoid")
    x = tokens(2, 5, 6).requires_grad_()
    mask = torch.tensor([[1, 1, 1, 0, 0], [1, 0, 0, 0, 0]])
    for kind in (mask, mask.bool(), mask.float(), mask.flatten()):
        router.expert_counts.zero_()
        _, weights, indices = router(x, kind)
        real = mask.flatten().bool()
        assert (weights[~real] == 0).all()
        assert (weights[real] > 0).all()
        assert indices.min() >= 0
        assert indices.max() < 8
        assert router.expert_counts.sum() == 3 * 4
        (grad,) = torch.autograd.grad(weights.sum(), x)
        assert (grad.flatten(0, 1)[~real] == 0).all()
    alone = made(score="sigmoid", correction_bias=True)(x).weights
    assert torch.equal(weights[real], alone[real])


def test_a_batch_of_padding_alone():
    router = made()
    weights = router(tokens(4, 6), torch.zeros(4, dtype=torch.bool)).weights
    assert torch.equal(weights, torch.zeros(4, 3))
    assert router(tokens(0, 6)).weights.shape == (0, 3)


@pytest.mark.parametrize("routing", ROUTINGS)
def test_replay_takes_the_indices_and_live_weights(routing):
    router = made(routing=routing)
    x = tokens(10, 6)
    generator = torch.Generator().manual_seed(0)
    own = router(x, generator=generator)
    if routing != "sampled":  # what it would choose anyway changes nothing
        again = router(x, indices=own.indices)
        torch.testing.assert_close(again.weights, own.weights)
    other = torch.stack([torch.randperm(8, generator=generator)[:3] for _ in range(10)])
    replayed = router(x, indices=other)
    assert torch.equal(replayed.indices, other)
    assert torch.autograd.grad((replayed.weights * tokens(10, 3)).sum(), router.weight)[0].abs().sum() > 0
    if routing == "topk":
        torch.testing.assert_close(replayed.weights, own.logits.softmax(-1).gather(1, other))


def test_forced_balance_gives_every_expert_the_same():
    router = made(force_balance=True)
    x = tokens(16, 6)
    logits, weights, indices = router(x)
    assert torch.bincount(indices.flatten(), minlength=8).tolist() == [6] * 8
    assert all(len(set(row)) == 3 for row in indices.tolist())
    torch.testing.assert_close(weights, logits.softmax(-1).gather(1, indices))
    mask = torch.arange(16) % 2 == 0
    real = router(x, mask).indices[mask]
    assert torch.bincount(real.flatten(), minlength=8).tolist() == [3] * 8


def test_jitter_moves_logits_in_training_only():
    router, x = made(jitter=0.1), tokens(50, 6)
    plain = x @ router.weight.T
    moved = router(x, generator=torch.Generator().manual_seed(0)).logits
    assert not torch.allclose(moved, plain, atol=1e-3)
    bound = 0.1 * x.abs() @ router.weight.T.abs()
    assert ((moved - plain).abs() <= bound + 1e-6).all()
    torch.testing.assert_close(router.eval()(x).logits, plain)


def test_logits_are_float32_in_a_bfloat16_model_and_under_autocast():
    router, x = made(hidden=64, num_experts=64, k=8), tokens(256, 64)
    half = copy.deepcopy(router).to(torch.bfloat16)
    exact = x.bfloat16().float() @ half.weight.float().T
    assert torch.equal(half(x.bfloat16()).logits, exact)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = router(x)
    assert inside.logits.dtype == inside.weights.dtype == torch.float32
    assert torch.equal(inside.logits, router(x).logits)
    narrow = made(hidden=64, num_experts=64, k=8, float32=False).to(torch.bfloat16)(x.bfloat16())
    assert narrow.logits.dtype == torch.bfloat16
    assert narrow.weights.dtype == torch.float32
    assert (narrow.indices.sort().values != half(x.bfloat16()).indices.sort().values).any()


def test_evaluation_takes_the_largest_and_training_draws():
    router, x = made(routing="sampled", temperature=3.0), tokens(200, 6)
    generator = torch.Generator().manual_seed(0)
    drawn = router(x, generator=generator)
    assert torch.equal(drawn.weights, torch.ones(200, 3))
    assert (drawn.indices != router(x, generator=generator).indices).any()
    router.eval()
    largest = router(x)
    assert torch.equal(largest.indices, largest.logits.topk(3).indices)
    assert torch.equal(largest.weights, torch.ones(200, 3))


@pytest.mark.parametrize("design", ["conditional_poisson", "sampford", "random_tree_pivotal"])
def test_drawn_experts_have_the_probabilities_of_the_design(design):
    router = made(routing="sampled", design=design, k=2)
    x = tokens(1, 6).expand(4000, 6)
    logits, _, indices = router(x, generator=torch.Generator().manual_seed(0))
    shares = torch.bincount(indices.flatten(), minlength=8) / 4000
    of = {"logits": logits[:1]} if design == "conditional_poisson" else {"scores": logits[:1]}
    wanted = khot.designs.get(design)(k=2, **of).mean[0]
    assert (shares - wanted).abs().max() < 5 * 0.5 / 4000**0.5


def subsets(n, k):
    return torch.stack(
        [torch.zeros(n).index_fill(0, torch.tensor(s), 1.0) for s in itertools.combinations(range(n), k)]
    )


@pytest.mark.parametrize("estimator", ["sampled_straight_through", "simple"])
def test_the_gradient_of_a_drawn_mixture_is_that_of_its_expectation(estimator):
    """A mixture is affine in the drawn weights: the mean gradient is that of the enumerated expectation.

    Though only drawn experts are computed: without a division by π it would be half as long.
    """
    options = {} if estimator == "simple" else {"design": "conditional_poisson"}
    router = made(num_experts=5, k=2, spread=0.3, routing="sampled", estimator=estimator, **options)
    x, values = tokens(1, 6), tokens(5, seed=4)
    draws = x.expand(20_000, 6)
    _, weights, indices = router(draws, generator=torch.Generator().manual_seed(0))
    (found,) = torch.autograd.grad((weights * values[indices]).sum() / 20_000, router.weight)
    k_hot = subsets(5, 2)
    exact_logits = x @ router.weight.T
    probs = (k_hot * exact_logits).sum(-1).softmax(0)
    (wanted,) = torch.autograd.grad((probs * (k_hot @ values)).sum(), router.weight)
    assert (found - wanted).norm() < 0.05 * wanted.norm() + 1e-4


def test_saved_copied_and_annealed():
    router = made(routing="sigmoid_topk", correction_bias=True, temperature=0.5)
    router.e_score_correction_bias.copy_(tokens(8))
    other = TopKRouter(6, 8, 3, routing="sigmoid_topk", correction_bias=True)
    other.load_state_dict(router.state_dict())
    x = tokens(9, 6)
    file = io.BytesIO()
    torch.save(router, file)
    file.seek(0)
    for same in (other, copy.deepcopy(router), torch.load(file, weights_only=False)):
        assert torch.equal(same(x).weights, router(x).weights)
    assert set(router.state_dict()) == {"weight", "e_score_correction_bias", "temperature"}
    assert set(TopKRouter(6, 8, 3).state_dict()) == {"weight"}
    khot.schedules.TemperatureScheduler(router, lambda step: 0.01)
    dense = khot.sigmoid_topk(router(x).logits, 3, temperature=0.01)
    torch.testing.assert_close(router(x).weights, dense.gather(1, router(x).indices))
    learned = TopKRouter(6, 8, 3, routing="sparse", learn_temperature=True)
    learned(x).weights.square().sum().backward()
    assert learned.log_temperature.grad is not None


@pytest.mark.parametrize(
    ("routing", "backend"),
    [
        ("topk", "aot_eager"),
        ("straight_through", "aot_eager"),
        *(pytest.param(r, "inductor", marks=pytest.mark.full) for r in ("topk", "sigmoid_topk", "sparse")),
    ],
)
def test_one_compiled_graph(routing, backend):
    router, x = made(routing=routing, correction_bias=routing == "topk"), tokens(20, 6)
    mask = torch.arange(20) < 15
    compiled = torch.compile(router, fullgraph=True, backend=backend)
    plain, found = router(x, mask), compiled(x, mask)
    assert torch.equal(found.indices, plain.indices)
    torch.testing.assert_close(found.weights, plain.weights)
    (wanted,) = torch.autograd.grad(plain.weights.square().sum(), router.weight)
    (grad,) = torch.autograd.grad(found.weights.square().sum(), router.weight)
    torch.testing.assert_close(grad, wanted)
    if routing == "topk":
        assert router.expert_counts.sum() == 2 * 15 * 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"k": 9}, "TopKRouter: k must be at most num_experts = 8, got 9"),
        ({"k": 0}, "k must be at least 1, got 0"),
        ({"num_experts": 0}, "num_experts must be at least 1"),
        ({"hidden": 0}, "hidden must be at least 1, got 0"),
        (
            {"routing": "best"},
            r"routing must be 'topk', .* or 'sparse', got 'best'",
        ),
        ({"score": "relu"}, "score must be 'softmax', 'sigmoid' or 'sqrtsoftplus', got 'relu'"),
        ({"scaling_factor": 0.0}, "scaling_factor must be a positive number or 'unit', got 0.0"),
        ({"num_groups": 3}, "num_groups must divide num_experts = 8, got 3"),
        ({"num_groups": 4, "kept_groups": 5}, "kept_groups must be at most num_groups = 4, got 5"),
        ({"num_groups": 4, "kept_groups": 1}, "k must be at most the 2 experts of the kept groups, got 3"),
        ({"num_groups": 8, "kept_groups": 4}, "group_score='top2' needs two experts in a group, got 1"),
        ({"group_score": "sum"}, "group_score must be 'max' or 'top2', got 'sum'"),
        ({"jitter": 1.5}, r"jitter must be in \[0, 1\), got 1.5"),
        ({"jitter": "much"}, r"jitter must be in \[0, 1\), got 'much'"),
        ({"temperature": 0.5}, "routing='topk' has no temperature, got 0.5"),
        ({"design": "sampford"}, "design is for routing='sampled', got routing='topk'"),
        ({"routing": "sampled", "design": "best"}, "unknown design 'best'"),
        ({"routing": "sampled", "estimator": "score_function"}, "which needs losses"),
        ({"routing": "sampled", "correction_bias": True}, "correction_bias needs a choice by scores"),
    ],
)
def test_what_cannot_be_made(options, message):
    with pytest.raises(ValueError, match=message):
        TopKRouter(**{"hidden": 6, "num_experts": 8, "k": 3, **options})


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (torch.ones(4), r"mask must have the shape of the tokens, \(2, 5\) .*got \(4,\)"),
        (torch.full((2, 5), 0.5), "got the value 0.5"),
        (torch.tensor([[0.0] * 5, [-1e9] * 5]), "mask must be boolean, or 1 for a real token"),
    ],
)
def test_a_wrong_mask(mask, message):
    with pytest.raises(ValueError, match=message):
        made()(tokens(2, 5, 6), mask)


def test_wrong_calls():
    router = made()
    with pytest.raises(ValueError, match="hidden_states must have the last dimension 6, got the shape"):
        router(tokens(2, 5))
    with pytest.raises(TypeError, match="indices must be a tensor of integers, got"):
        router(tokens(2, 6), indices=torch.zeros(2, 3))
    with pytest.raises(ValueError, match=r"\(tokens, k\) = \(2, 3\), got \(2, 2\)"):
        router(tokens(2, 6), indices=torch.zeros(2, 2, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"indices must be in \[0, 7\], got 0 to 8"):
        router(tokens(1, 6), indices=torch.tensor([[0, 1, 8]]))
    with pytest.raises(TypeError, match=r"k must be an integer, got 2\.0"):
        TopKRouter(6, 8, 2.0)
    with pytest.raises(TypeError, match=r"mask must be a torch\.Tensor, got list"):
        router(tokens(2, 6), [1, 1])


def test_without_memory():
    router = TopKRouter(6, 8, 3, device="meta", correction_bias=True)
    assert router(torch.empty(5, 6, device="meta")).weights.shape == (5, 3)
    assert router.to_empty(device="cpu").expert_counts.device.type == "cpu"


@pytest.mark.parametrize("biased", [False, True])
@pytest.mark.parametrize("routing", ["topk", "sigmoid_topk", "straight_through", "sparse"])
def test_replay_of_the_own_choice_changes_nothing(routing, biased):
    """Neither weights nor gradients, among groups too; and experts of other groups have a weight."""
    router = made(k=2, routing=routing, correction_bias=biased, num_groups=4, kept_groups=2).eval()
    if biased:
        router.e_score_correction_bias.copy_(torch.linspace(-0.2, 0.2, 8))
    x = tokens(50, 6)
    live = router(x)
    again = router(x, indices=live.indices)
    assert torch.equal(again.weights, live.weights)
    upstream = tokens(50, 2, seed=3)
    for kind in (live, again):
        kind.weights.backward(upstream)
        if kind is live:
            wanted, router.weight.grad = router.weight.grad, None
    torch.testing.assert_close(router.weight.grad, wanted)
    if routing != "sparse":
        assert (router(x, indices=7 - live.indices).weights > 0).all()
