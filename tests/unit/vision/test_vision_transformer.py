"""The plain vision transformer is the usual one, under timm's names."""

import pytest
import torch
from transformers import ViTConfig, ViTForImageClassification

from khot.vision import NetworkConfig, VisionTransformer


@pytest.fixture
def config():
    return NetworkConfig(
        model="vit", image_size=(8, 12), channels=2, classes=5, patch_size=(4, 2), width=24, depth=2, heads=3
    )


def test_it_computes_what_transformers_computes(config):
    torch.manual_seed(0)
    model = VisionTransformer.from_config(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    theirs = ViTForImageClassification(
        ViTConfig(
            hidden_size=24,
            num_hidden_layers=2,
            num_attention_heads=3,
            intermediate_size=96,
            image_size=(8, 12),
            patch_size=(4, 2),
            num_channels=2,
            num_labels=5,
            layer_norm_eps=1e-6,
        )
    ).eval()
    state = model.state_dict()
    names = {
        "vit.embeddings.cls_token": state["cls_token"],
        "vit.embeddings.position_embeddings": state["pos_embed"],
    }
    for end in ("weight", "bias"):
        names[f"vit.embeddings.patch_embeddings.projection.{end}"] = state[f"patch_embed.proj.{end}"]
        names[f"vit.layernorm.{end}"] = state[f"norm.{end}"]
        names[f"classifier.{end}"] = state[f"head.{end}"]
        for i in range(2):
            ours, layer = f"blocks.{i}", f"vit.layers.{i}"
            parts = state[f"{ours}.attn.qkv.{end}"].chunk(3)
            for name, part in zip("qkv", parts, strict=True):
                names[f"{layer}.attention.{name}_proj.{end}"] = part
            names[f"{layer}.attention.o_proj.{end}"] = state[f"{ours}.attn.proj.{end}"]
            names[f"{layer}.layernorm_before.{end}"] = state[f"{ours}.norm1.{end}"]
            names[f"{layer}.layernorm_after.{end}"] = state[f"{ours}.norm2.{end}"]
            names[f"{layer}.mlp.fc1.{end}"] = state[f"{ours}.mlp.fc1.{end}"]
            names[f"{layer}.mlp.fc2.{end}"] = state[f"{ours}.mlp.fc2.{end}"]
    theirs.load_state_dict(names)
    images = torch.randn(3, 2, 8, 12)
    with torch.no_grad():
        torch.testing.assert_close(model(images), theirs(images).logits, rtol=1e-4, atol=1e-4)
    assert sum(p.numel() for p in model.parameters()) == sum(p.numel() for p in theirs.parameters())


def test_it_has_timms_attributes(config):
    model = VisionTransformer(config)
    assert model.patch_embed.proj.out_channels == 24
    assert model.patch_embed.num_patches == 12
    assert model.pos_embed.shape == (1, 1 + 12, 24)
    assert model.cls_token.shape == (1, 1, 24)
    assert model.num_prefix_tokens == 1
    attn = model.blocks[0].attn
    assert (attn.num_heads, attn.head_dim, attn.scale) == (3, 8, 8**-0.5)
    assert attn.qkv.out_features == 3 * attn.proj.out_features
    assert attn.fused_attn
    features = model.forward_features(torch.zeros(2, 2, 8, 12))
    assert features.shape == (2, 13, 24)
    assert torch.equal(model.forward_head(features, pre_logits=True), features[:, 0])
    assert torch.equal(model.forward_head(features), model.head(features[:, 0]))


def test_images_of_another_shape_are_refused(config):
    with pytest.raises(ValueError, match=r"images must be \(B, 2, 8, 12\), got \(1, 3, 8, 12\)"):
        VisionTransformer(config)(torch.zeros(1, 3, 8, 12))


def test_dropout_is_read():
    config = NetworkConfig(
        image_size=4, channels=1, classes=2, patch_size=2, width=8, depth=1, k=1, dropout=0.5
    )
    model = VisionTransformer(config)
    torch.manual_seed(0)
    first, second = model(torch.ones(2, 1, 4, 4))
    assert not torch.equal(first, second)
    first, second = model.eval()(torch.ones(2, 1, 4, 4))
    torch.testing.assert_close(first, second)
