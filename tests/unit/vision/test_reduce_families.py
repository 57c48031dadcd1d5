"""Token reduction in the families of transformers, with random weights, against their own parts by hand.

By hand: eager attention gives its matrix; after the chosen layers only the most attended patches go on.
"""

import copy

import pytest
import torch

from khot.vision import reduce_tokens, restore_tokens
from strategies.quick_run import costly
from strategies.token_modes import MODES, way

transformers = pytest.importorskip("transformers")

SMALL = {
    "hidden_size": 16,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "image_size": 20,
    "patch_size": 4,
    "num_channels": 1,
}
TEXT = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "vocab_size": 50}


def vit(**settings):
    return transformers.ViTModel(transformers.ViTConfig(intermediate_size=32, **SMALL, **settings))


def deit(**settings):
    return transformers.DeiTModel(transformers.DeiTConfig(intermediate_size=32, **SMALL, **settings))


def dinov2(**settings):
    config = transformers.Dinov2Config(mlp_ratio=2, layerscale_value=0.7, **SMALL, **settings)
    return transformers.Dinov2Model(config)


def gated_dinov2(**settings):
    return dinov2(use_swiglu_ffn=True, **settings)


def dinov2_with_registers(**settings):
    config = transformers.Dinov2WithRegistersConfig(mlp_ratio=2, num_register_tokens=3, **SMALL, **settings)
    return transformers.Dinov2WithRegistersModel(config)


def clip(**settings):
    config = transformers.CLIPVisionConfig(intermediate_size=32, **SMALL, **settings)
    return transformers.CLIPVisionModel(config)


def siglip(**settings):
    config = transformers.SiglipVisionConfig(intermediate_size=32, **SMALL, **settings)
    return transformers.SiglipVisionModel(config)


FAMILIES = {
    vit: ("layers", "attention", ("layernorm_before", "layernorm_after"), 1),
    deit: ("layers", "attention", ("layernorm_before", "layernorm_after"), 2),
    dinov2: ("encoder.layer", "attention", ("norm1", "norm2"), 1),
    gated_dinov2: ("encoder.layer", "attention", ("norm1", "norm2"), 1),
    dinov2_with_registers: ("encoder.layer", "attention", ("norm1", "norm2"), 4),
    clip: ("encoder.layers", "self_attn", ("layer_norm1", "layer_norm2"), 1),
    siglip: ("encoder.layers", "self_attn", ("layer_norm1", "layer_norm2"), 0),
}
families = pytest.mark.parametrize("family", FAMILIES)
QUICK = {vit, dinov2_with_registers, siglip}  # with one token before the patches, with several, with none
some_families = pytest.mark.parametrize("family", [f if f in QUICK else costly(f) for f in FAMILIES])


def built(family, **settings):
    """A model with strong, varied attention, and images."""
    torch.manual_seed(0)
    model = family(**settings).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.4 * torch.randn(parameter.shape, generator=generator))
    return model, torch.randn(3, 1, 20, 20, generator=generator)


def by_hand(family, model, x, counts):
    path, attention, (first, second), prefix = FAMILIES[family]
    hidden, patch = model.embeddings(x), torch.arange(25).expand(3, -1)
    hidden = model.pre_layrnorm(hidden) if family is clip else hidden
    for i, layer in enumerate(model.get_submodule(path)):
        scales = [getattr(layer, f"layer_scale{number}", torch.nn.Identity()) for number in (1, 2)]
        attended, matrices = getattr(layer, attention)(getattr(layer, first)(hidden), attention_mask=None)
        hidden = hidden + scales[0](attended)
        if i in counts:
            received = matrices.mean(1)
            received = received[:, 0, prefix:] if prefix else received.mean(1)
            best = received.topk(counts[i]).indices
            patch = patch.gather(1, best)
            rows = torch.cat([torch.arange(prefix).expand(3, -1), prefix + best], 1)
            hidden = torch.stack([h[r] for h, r in zip(hidden, rows, strict=True)])
        hidden = hidden + scales[1](layer.mlp(getattr(layer, second)(hidden)))
    if family is not clip:
        norm = model.post_layernorm if family is siglip else model.layernorm
        hidden = norm(hidden)
    return hidden, patch


@pytest.mark.parametrize(
    ("family", "attention"), [(vit, "eager"), (siglip, "eager"), *((family, "sdpa") for family in FAMILIES)]
)
def test_the_tokens_kept_are_the_most_attended(family, attention):
    model, x = built(family, attn_implementation=attention)
    eager, _ = built(family, attn_implementation="eager")
    expected, kept = by_hand(family, eager, x, {1: 10, 3: 4})
    reduction = reduce_tokens(model, 0.4, (1, 3))
    torch.testing.assert_close(model(x).last_hidden_state, expected, atol=1e-4, rtol=1e-4)
    assert reduction.tokens_per_stage == (10, 4)
    assert reduction.num_prefix_tokens == FAMILIES[family][3]
    assert torch.equal(reduction.kept[1], kept)


@pytest.mark.parametrize(
    "method",
    [
        "straight_through",
        *(costly(m) for m in (*MODES, "softsort") if m != "straight_through"),
    ],
)
@families
def test_keep_rate_one_restored_and_trained(family, method):
    model, x = built(family)
    before = model(x).last_hidden_state
    reduce_tokens(model, 1.0, **way(method))
    assert torch.equal(model(x).last_hidden_state, before)
    restore_tokens(model)
    reduction = reduce_tokens(model, 0.5, **way(method))
    model.train()(x).last_hidden_state.square().sum().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)
    reduced = model.eval()(x).last_hidden_state
    assert reduced.shape[1] == 3 + reduction.num_prefix_tokens
    restore_tokens(model)
    assert torch.equal(model(x).last_hidden_state, before)


@some_families
def test_in_eval_every_selecting_mode_is_hard(family):
    model, x = built(family)
    results = []
    for name in ("hard", "straight_through", "soft", "sampled", "softsort"):
        reduce_tokens(model, 0.5, **way(name), temperature=5.0)
        results.append(model(x).last_hidden_state)
        restore_tokens(model)
    assert all(torch.equal(result, results[0]) for result in results)


@some_families
def test_copied_and_saved_whole(family, tmp_path):
    model, x = built(family)
    reduce_tokens(model, 0.5)
    expected = model(x).last_hidden_state
    assert torch.equal(copy.deepcopy(model)(x).last_hidden_state, expected)
    torch.save(model, tmp_path / "model.pt")
    other = torch.load(tmp_path / "model.pt", weights_only=False)
    assert torch.equal(other(x).last_hidden_state, expected)
    restore_tokens(other)
    assert other(x).last_hidden_state.shape[1] == 25 + FAMILIES[family][3]


def whole_models():
    """Models around a tower, called with images, and what they give."""
    clip_config = transformers.CLIPConfig(
        vision_config={**SMALL, "intermediate_size": 32}, text_config={**TEXT, "intermediate_size": 32}
    )
    siglip_config = transformers.SiglipConfig(
        vision_config={**SMALL, "intermediate_size": 32}, text_config={**TEXT, "intermediate_size": 32}
    )
    vision = transformers.CLIPVisionConfig(intermediate_size=32, projection_dim=8, **SMALL)
    dino = transformers.Dinov2Config(mlp_ratio=2, num_labels=5, **SMALL)
    yield transformers.CLIPModel(clip_config), lambda model, x: model.get_image_features(x)
    yield transformers.CLIPForImageClassification(clip_config), lambda model, x: model(x).logits
    yield transformers.CLIPVisionModelWithProjection(vision), lambda model, x: model(x).image_embeds
    yield transformers.SiglipModel(siglip_config), lambda model, x: model.get_image_features(x)
    yield transformers.SiglipForImageClassification(siglip_config), lambda model, x: model(x).logits
    yield transformers.Dinov2ForImageClassification(dino), lambda model, x: model(x).logits


def test_a_tower_in_a_larger_model():
    x = torch.randn(2, 1, 20, 20, generator=torch.Generator().manual_seed(0))
    for model, call in whole_models():
        model.eval()

        def features(model=model, call=call):
            result = call(model, x)
            return result if isinstance(result, torch.Tensor) else result.pooler_output

        before = features()
        reduction = reduce_tokens(model, 0.5)
        assert not torch.equal(features(), before)
        assert reduction.tokens_per_stage == (12, 6, 3)
        restore_tokens(model)
        assert torch.equal(features(), before)


def test_what_has_no_tower_of_images_is_refused():
    text = transformers.CLIPTextModel(transformers.CLIPTextConfig(intermediate_size=32, **TEXT))
    config = transformers.Siglip2VisionConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32
    )
    siglip2 = transformers.Siglip2VisionModel(config)
    for model in (text, siglip2):
        with pytest.raises(TypeError, match=r"^reduce_tokens: \w+ is no vision transformer with known names"):
            reduce_tokens(model)
