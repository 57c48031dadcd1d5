"""Token reduction: against a plain transformer written out with full attention matrices, and its promises."""

import copy
import math

import pytest
import torch
from torch import nn

import khot
from khot.vision import count_flops, reduce_tokens, restore_tokens
from khot.vision.tokens import reduction as reduction_module
from strategies.quick_run import costly, in_turn
from strategies.timm_style import PostNormBlock, TimmStyle, model_and_patches
from strategies.token_modes import MODES, way

DIFFERENTIABLE = ("straight_through", "soft", "sparse", "successive_halving", "soft_rank", "sampled")
SELECTING = ("hard", *DIFFERENTIABLE)


def written_out(model, x, locations, counts, order="score", fuse=False):
    """What the model gives if after the attention of a location only the most attended tokens are left."""
    x = model.patch_embed(x)
    tokens = [t.expand(len(x), -1, -1) for t in (model.cls_token, model.reg_token) if t is not None]
    p = model.num_prefix_tokens
    x = torch.cat([*tokens, x], 1)
    patch = torch.arange(x.shape[1] - p).expand(len(x), -1)
    all_kept = []
    for i, block in enumerate(model.blocks):
        x = x + block.ls1(block.attn(block.norm1(x)))
        if i in locations:
            attention = block.attn.seen.mean(1)  # over heads
            received = attention[:, 0, p:] if model.cls_token is not None else attention.mean(1)
            best = received.topk(counts[locations.index(i)], 1).indices
            if order == "position":
                best = best.sort(1).values
            rest = torch.ones_like(received).scatter(1, best, 0.0)
            fused = ((rest * received).unsqueeze(-1) * x[:, p:]).sum(1, keepdim=True)
            patch = patch.gather(1, best)
            all_kept.append(patch)
            chosen = torch.stack([row[b] for row, b in zip(x[:, p:], best, strict=True)])
            x = torch.cat([x[:, :p], chosen, *([fused] if fuse else [])], 1)
            if fuse:
                patch = torch.cat([patch, torch.full((len(x), 1), -1)], 1)
        x = x + block.ls2(block.mlp(block.norm2(x)))
    x = model.norm(x)
    return model.head(x[:, 0] if model.cls_token is not None else x.mean(1)), all_kept


@pytest.mark.parametrize("fuse", [False, True])
@pytest.mark.parametrize("order", ["score", "position"])
@pytest.mark.parametrize(
    "settings", [{}, {"cls": False}, {"registers": 2}, {"qk_norm": True}, {"qk_norm": True, "cls": False}]
)
def test_it_is_what_the_papers_write(settings, order, fuse):
    model, x = model_and_patches(fused=False, **settings)
    expected, kept = written_out(model, x, [1, 2], [12, 7], order, fuse)
    reduction = reduce_tokens(model.eval(), 0.6, (1, 2), order=order, fuse=fuse)
    torch.testing.assert_close(model(x), expected, atol=1e-5, rtol=1e-5)
    assert reduction.tokens_per_stage == (12 + fuse, 7 + fuse)
    assert all(torch.equal(ours, theirs) for ours, theirs in zip(reduction.kept, kept, strict=True))


def test_fused_attention_gives_the_same_scores():
    model, x = model_and_patches(fused=True)
    slow, _ = model_and_patches(fused=False)
    kept = [reduce_tokens(m.eval(), 0.5, (0, 3)) for m in (model, slow)]
    torch.testing.assert_close(model(x), slow(x), atol=1e-5, rtol=1e-5)
    assert all(torch.equal(a, b) for a, b in zip(kept[0].kept, kept[1].kept, strict=True))


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("method", MODES)
@pytest.mark.parametrize("cls", [True, False])
def test_keep_rate_one_changes_no_bit(method, training, cls):
    model, x = model_and_patches(cls=cls)
    expected = model.train(training)(x)
    reduction = reduce_tokens(model, 1.0, (0, 1, 3), **way(method))
    assert torch.equal(model(x), expected)
    assert reduction.tokens_per_stage == (20, 20, 20)


@pytest.mark.parametrize("method", MODES)
def test_restored_is_as_before(method):
    model, x = model_and_patches()
    before, names, kinds = model(x), list(model.state_dict()), [type(m) for m in model.modules()]
    reduce_tokens(model, 0.5, (1, 2), **way(method))
    assert list(model.state_dict()) == names
    assert not torch.equal(model(x), before)
    restore_tokens(model)
    assert torch.equal(model(x), before)
    assert [type(m) for m in model.modules()] == kinds
    assert not any(m._forward_hooks for m in model.modules())
    reduce_tokens(model, 0.5, (1, 2), **way(method))  # and again


@pytest.mark.parametrize("method", SELECTING)
@pytest.mark.parametrize("cls", [True, False])
def test_inference_is_hard_and_so_is_training_at_temperature_zero(method, cls):
    model, x = model_and_patches(cls=cls)
    expected, kept = written_out(copy.deepcopy(_unfused(model)), x, [1, 2], [12, 7])
    reduction = reduce_tokens(model, 0.6, (1, 2), **way(method), temperature=1e-6)
    for training in (False, True):
        got = model.train(training)(x)
        torch.testing.assert_close(got, expected, atol=1e-5, rtol=1e-5)
        assert all(torch.equal(a, b) for a, b in zip(reduction.kept, kept, strict=True))


def _unfused(model):
    for block in model.blocks:
        block.attn.fused_attn = False
    return model


@pytest.mark.parametrize("method", ["soft", "successive_halving", "soft_rank", "sampled"])
def test_at_temperature_one_training_is_not_hard(method):
    model, x = model_and_patches()
    noise = {"generator": torch.Generator().manual_seed(0)} if method == "sampled" else {}
    reduce_tokens(model, 0.6, (1, 2), **way(method), **noise)
    hard = model.eval()(x)
    assert (model.train()(x) - hard).abs().max() > 1e-3


@pytest.mark.parametrize("method", SELECTING)
@pytest.mark.parametrize("cls", [True, False])
def test_which_methods_give_the_scores_a_gradient(method, cls, monkeypatch):
    seen = []

    def recorded(*inputs):
        scores = log_attention(*inputs)
        if scores.requires_grad:
            scores.retain_grad()
        seen.append(scores)
        return scores

    log_attention = reduction_module.log_attention
    monkeypatch.setattr(reduction_module, "log_attention", recorded)
    model, x = model_and_patches(cls=cls)
    reduce_tokens(model.train(), 0.6, (1, 2), **way(method))
    model(x).square().sum().backward()
    assert len(seen) == 2
    for scores in seen:
        if method == "hard":
            assert scores.grad is None
        else:
            assert scores.grad.isfinite().all()
            assert scores.grad.abs().max() > 1e-6
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


@pytest.mark.parametrize(
    ("method", "cls"),
    [
        ("soft", True),
        costly("soft_rank", False),
        costly("softsort", True),
        ("merge", True),
        costly("merge", False),
    ],
)
def test_gradients_by_differences(method, cls):
    """Of the whole network, at a temperature at which the weights are neither flat nor hard.

    Not of soft without CLS: what is pooled at the end is straight-through there.
    """
    model, x = model_and_patches(batch=1, patches=7, cls=cls)
    model.double().train()
    reduce_tokens(model, 0.6, (1, 2), **way(method), temperature=0.7)
    weight = model.blocks[1].attn.qkv.bias

    def loss(values):
        return torch.func.functional_call(model, {"blocks.1.attn.qkv.bias": values}, (x.double(),))

    assert torch.autograd.gradcheck(loss, (weight.detach().clone().requires_grad_(),), atol=1e-6)


def test_a_deep_copy_is_its_own():
    model, x = model_and_patches()
    reduction = reduce_tokens(model.eval(), 0.5, (1, 2))
    expected = model(x)
    other = copy.deepcopy(model)
    before = reduction.kept
    assert torch.equal(other(x.flip(1)), other(x.flip(1)))
    assert reduction.kept is before
    restore_tokens(model)
    assert torch.equal(other(x), expected)
    assert other.token_reduction.tokens_per_stage == (10, 5)


@pytest.mark.parametrize(("method", "training"), in_turn([*SELECTING, "merge", "gumbel"], [False, True]))
def test_saved_whole_and_loaded(method, training, tmp_path):
    """With its temperature, its hooks and its random numbers; what is loaded is its own, and is restored."""
    model, x = model_and_patches()
    noise = {"generator": torch.Generator().manual_seed(5)} if method in ("sampled", "gumbel") else {}
    reduce_tokens(model.train(training), 0.5, (1, 2), **way(method), **noise, temperature=0.7)
    before = model(x)
    torch.save(model, tmp_path / "model.pt")
    other = torch.load(tmp_path / "model.pt", weights_only=False)
    expected = model(x)
    assert torch.equal(other(x), expected)
    assert other.token_reduction is not model.token_reduction
    assert repr(other) == repr(model)
    restore_tokens(model)
    assert torch.equal(other.eval()(x), other(x))
    restore_tokens(other)
    assert torch.equal(other(x), model.eval()(x))
    assert [type(module) for module in other.modules()] == [type(module) for module in model.modules()]
    assert not torch.equal(before, other(x))


@pytest.mark.parametrize(
    ("depth", "places"),
    [(1, (0,)), (2, (0, 1)), (3, (0, 1, 2)), (4, (1, 2, 3)), (12, (3, 6, 9)), (24, (6, 12, 18))],
)
def test_where_the_stages_are_unless_told(depth, places):
    model, x = model_and_patches(depth=depth)
    reduction = reduce_tokens(model.eval(), 0.9)
    assert reduction.locations == places
    assert model(x).shape == (3, 5)
    assert len(reduction.kept) == len(places)


def test_a_random_method_draws_from_its_generator():
    model, x = model_and_patches()
    results = []
    for seed in (0, 0, 1):
        generator = torch.Generator().manual_seed(seed)
        reduce_tokens(model.train(), 0.5, (1,), mode="soft", method="gumbel", generator=generator)
        results.append(model(x))
        restore_tokens(model)
    assert torch.equal(results[0], results[1])
    assert not torch.equal(results[0], results[2])


def test_a_method_may_be_an_object():
    model, x = model_and_patches()
    results = []
    for method in ("softsort", khot.relaxations.registry.get("softsort")):
        reduce_tokens(model.train(), 0.5, (1,), mode="soft", method=method)
        results.append(model(x))
        restore_tokens(model)
    assert torch.equal(*results)


@pytest.mark.parametrize("patches", [1, 2, 3, 17, 50])
@pytest.mark.parametrize("rate", [0.01, 0.3, 0.7, 0.999])
def test_any_number_of_tokens(patches, rate):
    model, _ = model_and_patches()
    x = torch.randn(2, patches, 6)
    reduction = reduce_tokens(model.eval(), rate, (0, 2))
    assert model(x).isfinite().all()
    counts = tuple(max(1, int(share * patches)) for share in (rate, rate**2))
    assert reduction.tokens_per_stage == counts
    for kept in reduction.kept:
        assert ((kept >= 0) & (kept < patches)).all()
        assert all(len(set(row.tolist())) == kept.shape[1] for row in kept)


def test_a_share_for_each_stage():
    model, x = model_and_patches()
    reduction = reduce_tokens(model.eval(), [0.5, 0.3], (0, 2))
    model(x)
    assert reduction.tokens_per_stage == (10, 6)


def test_flops_in_closed_form():
    model, x = model_and_patches()
    d, batch, patches = 16, 3, 20

    def block(before, after, scored):
        attention = 2 * before * d * 3 * d + 2 * 2 * before**2 * d + 2 * before * d * d
        return attention + 2 * 2 * after * d * 2 * d + scored * 2 * before * d

    ends = 2 * patches * 6 * d + 2 * d * 5
    model.eval()
    assert count_flops(model, x) == batch * (ends + 4 * block(21, 21, False))
    reduce_tokens(model, 0.6, (1, 2))
    reduced = block(21, 21, False) + block(21, 13, True) + block(13, 8, True) + block(8, 8, False)
    assert count_flops(model, x) == batch * (ends + reduced)


@pytest.mark.parametrize("design", ["conditional_poisson", "random_tree_pivotal", "systematic"])
def test_tokens_are_drawn_with_their_inclusion_probabilities(design):
    model, x = model_and_patches(batch=1, patches=8)
    draws = 3000
    reduction = reduce_tokens(
        model.train(), 0.4, (1,), mode="sampled", design=design, generator=torch.Generator().manual_seed(0)
    )
    scores = []
    log_attention = reduction_module.log_attention
    try:
        reduction_module.log_attention = lambda *inputs: scores.append(log_attention(*inputs)) or scores[-1]
        model(x.expand(draws, -1, -1))
    finally:
        reduction_module.log_attention = log_attention
    logits = scores[0][0, 1:].double().detach()
    pi = (
        khot.designs.ConditionalPoisson(3, logits=logits).mean
        if design == "conditional_poisson"
        else khot.sigmoid_topk(logits, 3)
    )
    share = torch.nn.functional.one_hot(reduction.kept[0], 8).sum((0, 1)) / draws
    assert ((share - pi).abs() < 4.5 * (pi * (1 - pi) / draws).sqrt() + 1e-9).all()


@pytest.mark.parametrize("name", [n for n in khot.estimators.names() if n != "score_function"])
def test_any_estimator(name):
    model, x = model_and_patches()
    generator = torch.Generator().manual_seed(0)
    reduction = reduce_tokens(model.train(), 0.5, (1, 2), mode="sampled", estimator=name, generator=generator)
    result = model(x)
    drawn = reduction.kept[0]
    assert all(len(set(row.tolist())) == 10 for row in drawn)
    result.square().sum().backward()
    gradient = model.blocks[1].attn.qkv.weight.grad
    assert gradient.isfinite().all()
    model.eval()(x)
    assert not torch.equal(drawn.sort(1).values, reduction.kept[0].sort(1).values)


@pytest.mark.parametrize("fuse", [False, True])
@pytest.mark.parametrize("method", SELECTING)
@pytest.mark.parametrize("training", [True, False])
def test_padding_is_as_if_it_was_not_there(method, training, fuse):
    """14 real patches and 6 of padding, which hold anything."""
    if fuse and method in ("soft", "sparse", "successive_halving", "soft_rank"):
        return
    model, x = model_and_patches()
    model.train(training)
    mask = torch.zeros(3, 20, dtype=torch.bool)
    mask[:, :14] = True
    settings = {"temperature": 1e-6 if method == "sampled" else 1.0, "fuse": fuse}
    reduction = reduce_tokens(model, [8 / 20, 4 / 20], (1, 2), **way(method), **settings)
    x[:, 14:] *= 100
    with reduction.padding(mask):
        got = model(x)
    assert all((kept < 14).all() for kept in reduction.kept)
    restore_tokens(model)
    reduce_tokens(model, [8 / 14, 4 / 14], (1, 2), **way(method), **settings)
    torch.testing.assert_close(got, model(x[:, :14]), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("method", [*SELECTING, "merge"])
def test_fewer_real_patches_than_places(method):
    model, x = model_and_patches()
    model.train()
    mask = torch.zeros(3, 20, dtype=torch.bool)
    mask[:, :5] = True
    mask[0] = True
    reduction = reduce_tokens(model, [10 / 20, 8 / 20], (1, 2), **way(method))
    with reduction.padding(mask):
        got = model(x)
        got.sum().backward()
        other = x.clone()
        other[1:, 5:] += 10
        torch.manual_seed(0)
        again = model(other)
    assert got.isfinite().all()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)
    if method != "sampled":
        torch.testing.assert_close(got, again)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "training"),
    [
        ("straight_through", True),
        *(costly(*others) for others in (("straight_through", False), ("soft", True), ("merge", False))),
    ],
)
def test_compiled(method, training):
    model, x = model_and_patches(depth=2)
    reduction = reduce_tokens(model.train(training), 0.6, (0,), **way(method))
    expected, kept = model(x), reduction.kept
    compiled = torch.compile(model, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), expected, atol=1e-5, rtol=1e-5)
    assert all(torch.equal(a, b) for a, b in zip(reduction.kept, kept, strict=True))
    torch._dynamo.reset()


@pytest.mark.parametrize("method", ["straight_through", costly("merge")])
def test_exported(method):
    model, x = model_and_patches()
    reduction = reduce_tokens(model.eval(), 0.6, (1, 2), **way(method))
    expected, kept = model(x), reduction.kept
    exported = torch.export.export(model, (x,))
    assert all(torch.equal(a, b) for a, b in zip(reduction.kept, kept, strict=True))
    torch.testing.assert_close(exported.module()(x), expected)


def test_the_temperature_can_be_scheduled():
    model, x = model_and_patches()
    reduction = reduce_tokens(model.train(), 0.6, (1,), mode="soft")
    warm = model(x)
    scheduler = khot.schedules.TemperatureScheduler(model, khot.schedules.exponential(1.0, 1e-6, steps=1))
    scheduler.step()
    assert reduction.temperature == pytest.approx(1e-6)
    cold = model(x)
    torch.testing.assert_close(cold, model.eval()(x), atol=1e-5, rtol=1e-5)
    assert (cold - warm).abs().max() > 1e-3


@pytest.mark.parametrize("mode", ["hard", "merge"])
def test_a_temperature_that_is_not_read_is_not_scheduled(mode):
    model, _ = model_and_patches()
    reduce_tokens(model.train(), 0.6, (1,), mode=mode)
    with pytest.raises(ValueError, match="no submodule has a fixed temperature that it reads"):
        khot.schedules.TemperatureScheduler(model, khot.schedules.constant(0.5))
    other = khot.nn.TopK(2)
    both = torch.nn.ModuleList([model, other])
    assert khot.schedules.TemperatureScheduler(both, khot.schedules.constant(0.5)).layers == [other]


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("method", ["straight_through", "soft", "soft_rank", "merge"])
def test_half_precision(dtype, method):
    model, x = model_and_patches()
    reduce_tokens(model.to(dtype).train(), 0.6, (1, 2), **way(method))
    result = model(x.to(dtype))
    result.sum().backward()
    assert result.dtype == dtype
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


def test_an_option_of_the_relaxation_is_read():
    model, x = model_and_patches()
    results = []
    for norm in ("l2", "kl"):
        reduce_tokens(model.train(), 0.6, (1,), **way("soft_rank"), temperature=3.0, regularization=norm)
        results.append(model(x))
        restore_tokens(model)
    assert (results[0] - results[1]).abs().max() > 1e-5


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"keep_rate": 0.0}, ValueError, r"keep_rate must be in \(0, 1\], got 0.0"),
        ({"keep_rate": 1.5}, ValueError, r"keep_rate must be in \(0, 1\], got 1.5"),
        ({"keep_rate": math.nan}, ValueError, "keep_rate"),
        ({"keep_rate": None}, TypeError, "keep_rate must be a number, or a sequence .* got None"),
        ({"keep_rate": "0.5"}, TypeError, "keep_rate must be a number, or a sequence .* got '0.5'"),
        ({"keep_rate": True}, TypeError, "keep_rate must be a number, or a sequence .* got True"),
        ({"keep_rate": [0.5, None]}, TypeError, r"keep_rate must be a number, .* got \[0.5, None\]"),
        ({"keep_rate": [0.5]}, ValueError, "a number or one for each of 2 locations"),
        ({"keep_rate": [0.5, 0.0]}, ValueError, r"keep_rate must be in \(0, 1\], got \[0.5, 0.0\]"),
        ({"locations": (1, 4)}, ValueError, r"locations must be in \[0, 3\], the depth is 4, got \(1, 4\)"),
        ({"locations": ()}, ValueError, "at least one"),
        ({"locations": (2, 1)}, ValueError, "increasing"),
        ({"locations": (1.5,)}, TypeError, r"locations must be integers, got \(1.5,\)"),
        ({"locations": (1, True)}, TypeError, r"locations must be integers, got \(1, True\)"),
        ({"locations": 1}, TypeError, "locations must be a sequence of block numbers, got 1"),
        ({"locations": "12"}, TypeError, "locations must be a sequence of block numbers, got '12'"),
        ({"mode": "best"}, ValueError, "mode must be 'hard', .* or 'merge', got 'best'"),
        ({"mode": "sigmoid"}, ValueError, "mode must be 'hard', .* or 'merge', got 'sigmoid'"),
        ({"method": "best"}, ValueError, "unknown method 'best'; known methods: .*sigmoid"),
        ({"method": "hard"}, ValueError, "unknown method 'hard'"),
        (
            {"mode": "hard", "method": "sigmoid"},
            TypeError,
            "method is for mode 'soft' and .* 'hard'",
        ),
        ({"mode": "soft", "design": "systematic"}, TypeError, "design is for mode 'sampled', got .* 'soft'"),
        (
            {"mode": "merge", "estimator": "simple"},
            TypeError,
            "estimator is for mode 'sampled', .*'merge'",
        ),
        ({"mode": "hard", "generator": torch.Generator()}, TypeError, "generator is for mode .* mode 'hard'"),
        ({"generator": torch.Generator()}, TypeError, "generator is for a random method, 'sigmoid' is none"),
        (
            {"method": "gumbel", "generator": 3},
            TypeError,
            "generator must be a torch.Generator .* got 3",
        ),
        ({"mode": "sampled", "design": "best"}, ValueError, "unknown design 'best'"),
        ({"mode": "sampled", "estimator": "best"}, ValueError, "unknown estimator 'best'; known"),
        ({"mode": "sampled", "estimator": "score_function"}, ValueError, "must give a gradient through"),
        ({"temperature": 0.0}, ValueError, "temperature must be positive"),
        ({"order": "size"}, ValueError, "order must be"),
        ({"fuse": True, "mode": "merge"}, ValueError, "fuse needs a mode that drops tokens"),
        ({"base": 3}, TypeError, "has no option 'base'"),
        ({"mode": "hard", "base": 3}, TypeError, "mode 'hard' has no option 'base'"),
        ({"num_prefix_tokens": 0}, ValueError, "num_prefix_tokens must be an integer, at least 1, got 0"),
        ({"num_prefix_tokens": 1.5}, ValueError, "num_prefix_tokens must be an integer, .* got 1.5"),
    ],
)
def test_errors_come_before_anything_is_changed(change, kind, message):
    model, x = model_and_patches()
    expected = model(x)
    with pytest.raises(kind, match=f"^reduce_tokens: .*{message}"):
        reduce_tokens(model, **{"locations": (1, 2), **change})
    assert torch.equal(model(x), expected)
    assert not hasattr(model, "token_reduction")


def test_not_twice_and_not_restored_twice():
    model, _ = model_and_patches()
    reduce_tokens(model, 0.5, (1,))
    with pytest.raises(ValueError, match="reduced already; call restore_tokens"):
        reduce_tokens(model, 0.5, (1,))
    restore_tokens(model)
    with pytest.raises(ValueError, match="are not reduced"):
        restore_tokens(model)


def test_a_model_it_does_not_know():
    with pytest.raises(TypeError, match=r"Linear is no vision transformer.*looked for blocks\[i\]"):
        reduce_tokens(nn.Linear(2, 2))
    with pytest.raises(TypeError, match="does not compute x \\+ attention"):
        reduce_tokens(TimmStyle(block=PostNormBlock), 0.5, (1,))
    model, _ = model_and_patches()
    model.grad_checkpointing = True
    with pytest.raises(ValueError, match="checkpointing must be off"):
        reduce_tokens(model, 0.5, (1,))


def test_wrong_masks():
    model, x = model_and_patches()
    reduction = reduce_tokens(model, 0.5, (1,))
    with pytest.raises(ValueError, match="boolean of shape"), reduction.padding(torch.ones(3, 20)):
        pass
    with (
        pytest.raises(ValueError, match=r"\(3, 20\), got \(3, 7\)"),
        reduction.padding(torch.ones(3, 7, dtype=torch.bool)),
    ):
        model(x)
    model(x)
