"""The selecting networks: what they compute, that every part of them learns, that they compile and export."""

import pytest
import torch
from torch import nn

import khot
from khot.vision import (
    NetworkConfig,
    TopKAttention,
    TopKAttentionModel,
    TopKDynamicMixing,
    TopKDynamicModel,
    VisionTransformer,
    from_config,
)
from khot.vision.token_selection import TokenSelection
from strategies.quick_run import costly

SELECTING = ["topk_attention", "topk_dynamic"]
MODELS = [*SELECTING, "vit"]


def small(model: str, **changes) -> NetworkConfig:
    fields = {"image_size": (8, 12), "channels": 2, "classes": 5, "patch_size": (4, 2), "width": 16, "k": 3}
    return NetworkConfig.from_dict({"model": model, "depth": 2, "heads": 2, **fields, **changes})


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    ("image_size", "patch_size", "channels"), [((8, 12), (4, 2), 2), (6, 3, 1), ((5, 10), 5, 3)]
)
def test_shapes(model, image_size, patch_size, channels):
    config = small(model, image_size=image_size, patch_size=patch_size, channels=channels, k=2)
    network = from_config(config)
    images = torch.rand(3, channels, *config.image_hw)
    assert network(images).shape == (3, 5)
    features = network.forward_features(images)
    assert features.shape == (3, network.num_prefix_tokens + config.tokens, 16)
    assert torch.equal(network.forward_head(features), network.head(network.forward_head(features, True)))


def test_each_class_makes_its_own_network_from_one_config():
    config = small("vit")
    for kind in (TopKAttentionModel, TopKDynamicModel, VisionTransformer):
        network = kind.from_config(config)
        assert type(from_config(network.config)) is kind is type(network)


def test_attention_gathers_and_scatters_the_hard_topk_at_a_low_temperature():
    """By loops, from the definition, with the hard selection."""
    torch.manual_seed(0)
    layer = TopKAttention(small("topk_attention", temperature=0.002)).double()
    nn.init.normal_(layer.qkv.weight)
    x = torch.randn(4, 12, 16, dtype=torch.float64)
    q, k, v = layer.qkv(x).chunk(3, -1)
    expected = v.clone()
    for head in range(2):
        part = slice(8 * head, 8 * head + 8)
        for image in range(4):
            scores = (q[image, :, part] * k[image, :, part]).sum(-1) / 8**0.5
            for token in scores.topk(3).indices:
                expected[image, token, part] += v[image, token, part]
    torch.testing.assert_close(layer(x), layer.proj(expected), rtol=1e-6, atol=1e-8)


def test_dynamic_mixing_reads_the_hard_topk_at_a_low_temperature():
    torch.manual_seed(0)
    layer = TopKDynamicMixing(small("topk_dynamic", temperature=0.002)).double()
    for linear in (layer.expand, layer.mix, layer.values_and_scores):
        nn.init.normal_(linear.weight, std=0.4)
    x = torch.randn(3, 12, 16, dtype=torch.float64)
    h = layer.expand(x)
    h = h + torch.einsum("nm,bmd->bnd", layer.mix.weight, h) + layer.mix.bias[:, None]
    both = layer.values_and_scores(h)
    outputs = []
    for head in range(2):
        v, s = both[..., 17 * head : 17 * head + 16], both[..., 17 * head + 16]
        gathered = torch.stack([v[i, s[i].topk(3).indices] for i in range(3)])
        outputs.append(torch.einsum("bnd,bkd->bnk", v, gathered).softmax(-1) @ gathered)
    torch.testing.assert_close(layer(x), layer.proj(torch.cat(outputs, -1)), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("model", SELECTING)
def test_selections_are_the_rows_of_the_operator(model):
    torch.manual_seed(0)
    network = from_config(small(model))
    seen = []
    modules = [m for m in network.modules() if isinstance(m, TokenSelection)]
    hooks = [m.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0])) for m in modules]
    rows = network.selections(torch.rand(4, 2, 8, 12))
    for hook in hooks:
        hook.remove()
    assert len(rows) == len(seen) == 2
    for scores, block in zip(seen, rows, strict=True):
        expected = khot.topk_matrix(scores, 3, method="soft_rank", temperature=1.0)
        torch.testing.assert_close(block, expected)
    assert not modules[0]._forward_hooks


@pytest.mark.parametrize("model", SELECTING)
def test_gradients_reach_every_score_and_every_parameter(model):
    torch.manual_seed(0)
    network = from_config(small(model))
    for parameter in network.parameters():
        nn.init.normal_(parameter, std=0.3)
    scores = []

    def keep(module, inputs):
        inputs[0].retain_grad()
        scores.append(inputs[0])

    for module in network.modules():
        if isinstance(module, TokenSelection):
            module.register_forward_pre_hook(keep)
    loss = nn.functional.cross_entropy(network(torch.rand(6, 2, 8, 12)), torch.arange(6) % 5)
    loss.backward()
    assert len(scores) == 2
    for score in scores:
        assert (score.grad != 0).all()
    for name, parameter in network.named_parameters():
        assert parameter.grad is not None, name
        assert torch.isfinite(parameter.grad).all(), name
        assert (parameter.grad != 0).any(), name


@pytest.mark.parametrize("method", ["soft_rank", "sigmoid", "softsort", "successive_halving"])
def test_any_method_with_rows_selects(method):
    torch.manual_seed(0)
    network = from_config(small("topk_attention", method=method))
    nn.init.normal_(network.blocks[0].attn.qkv.weight)
    images = torch.rand(2, 2, 8, 12)
    network(images).sum().backward()
    rows = network.selections(images)[0]
    torch.testing.assert_close(rows.sum(-1), torch.ones(2, 2, 3))
    assert network.blocks[0].attn.qkv.weight.grad.isfinite().all()


@pytest.mark.parametrize("start", [1e-6, 0.01, 1.0, 50.0])
def test_the_learned_temperature_starts_where_asked_and_stays_positive(start):
    selection = TokenSelection(small("topk_attention", temperature=start))
    expected = max(start, 0.002)
    torch.testing.assert_close(selection.temperature, torch.full((2,), expected), rtol=1e-4, atol=1e-5)
    optimizer = torch.optim.SGD(selection.parameters(), lr=1e4)
    for _ in range(5):
        optimizer.zero_grad()
        selection.temperature.sum().backward()
        optimizer.step()
    assert (selection.temperature > 0).all()
    rows = selection(torch.randn(3, 2, 7, requires_grad=True))
    rows.square().sum().backward()
    assert rows.isfinite().all()
    assert selection.raw_temperature.grad.isfinite().all()


@pytest.mark.parametrize("model", MODELS)
def test_bfloat16(model):
    network = from_config(small(model))
    images = torch.rand(3, 2, 8, 12)
    with torch.autocast("cpu", torch.bfloat16):
        logits = network(images)
    assert logits.dtype == torch.bfloat16
    logits.float().sum().backward()
    torch.testing.assert_close(logits.float(), network(images), rtol=0.1, atol=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("model", [SELECTING[0], costly(SELECTING[1])])
def test_they_compile_in_one_graph(model):
    torch.manual_seed(0)
    network = from_config(small(model, depth=1))
    compiled = torch.compile(network, backend="aot_eager", fullgraph=True)
    images = torch.rand(3, 2, 8, 12)
    torch.testing.assert_close(compiled(images), network(images))
    network(images).square().sum().backward()
    expected = {name: p.grad.clone() for name, p in network.named_parameters()}
    network.zero_grad()
    compiled(images).square().sum().backward()
    for name, parameter in network.named_parameters():
        torch.testing.assert_close(parameter.grad, expected[name], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("model", [SELECTING[0], costly(SELECTING[1])])
def test_they_export(model):
    torch.manual_seed(0)
    network = from_config(small(model, depth=1)).eval()
    images = torch.rand(3, 2, 8, 12)
    exported = torch.export.export(network, (images,))
    torch.testing.assert_close(exported.module()(images), network(images))


@pytest.mark.parametrize("model", ["vit", "topk_attention", "topk_dynamic"])
def test_a_batch_without_images(model):
    config = NetworkConfig(
        model=model, image_size=8, channels=1, classes=5, patch_size=2, width=16, depth=1, k=3
    )
    assert from_config(config)(torch.zeros(0, 1, 8, 8)).shape == (0, 5)
