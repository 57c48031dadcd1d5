"""Token reduction in transformers' ViT, built from a random configuration."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from khot.vision import reduce_tokens, restore_tokens
from strategies.quick_run import in_turn
from strategies.token_modes import way

transformers = pytest.importorskip("transformers")


def vit(**settings):
    torch.manual_seed(0)
    config = transformers.ViTConfig(
        hidden_size=16,
        num_hidden_layers=4,
        num_attention_heads=2,
        intermediate_size=32,
        image_size=20,
        patch_size=4,
        num_channels=1,
        num_labels=5,
        initializer_range=0.3,
        **settings,
    )
    return transformers.ViTForImageClassification(config).eval(), torch.randn(3, 1, 20, 20)


METHODS = ("hard", "straight_through", "soft", "successive_halving", "sampled", "merge")


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_the_tokens_kept_are_those_cls_attends_to(attention):
    model, x = vit(attn_implementation=attention)
    eager, _ = vit(attn_implementation="eager")
    attentions = eager(x, output_attentions=True).attentions
    reduction = reduce_tokens(model, 0.4, (1, 3))
    logits = model(x).logits
    assert reduction.tokens_per_stage == (10, 4)
    assert torch.equal(reduction.kept[0], attentions[1][:, :, 0, 1:].mean(1).topk(10).indices)
    expected, kept = by_hand(eager, x, {1: 10, 3: 4})
    torch.testing.assert_close(logits, expected, atol=1e-5, rtol=1e-5)
    assert torch.equal(reduction.kept[1], kept)


def by_hand(model, x, counts):
    """With the model's own parts, eager attention and its matrices."""
    hidden, patch = model.vit.embeddings(x), torch.arange(25).expand(3, -1)
    for i, layer in enumerate(model.vit.layers):
        attended, matrices = layer.attention(layer.layernorm_before(hidden))
        hidden = hidden + attended
        if i in counts:
            best = matrices[:, :, 0, 1:].mean(1).topk(counts[i]).indices
            patch = patch.gather(1, best)
            rows = torch.cat([torch.zeros(3, 1, dtype=torch.long), 1 + best], 1)
            hidden = torch.stack([h[r] for h, r in zip(hidden, rows, strict=True)])
        hidden = hidden + layer.mlp(layer.layernorm_after(hidden))
    return model.classifier(model.vit.layernorm(hidden)[:, 0]), patch


@pytest.mark.parametrize("method", METHODS)
def test_keep_rate_one_and_restored(method):
    model, x = vit()
    before = model(x).logits
    reduce_tokens(model, 1.0, (0, 2), **way(method))
    assert torch.equal(model(x).logits, before)
    restore_tokens(model)
    reduce_tokens(model, 0.5, (0, 2), **way(method))
    assert not torch.equal(model(x).logits, before)
    restore_tokens(model)
    assert torch.equal(model(x).logits, before)


@pytest.mark.parametrize("method", METHODS)
def test_training_gives_finite_gradients(method):
    model, x = vit()
    reduce_tokens(model.train(), 0.5, (0, 2), **way(method))
    model(x, labels=torch.tensor([0, 1, 2])).loss.backward()
    assert all(p.grad.isfinite().all() for p in model.parameters())


def test_hidden_states_can_be_asked_for():
    model, x = vit()
    reduce_tokens(model, 0.4, (1, 3))
    states = model(x, output_hidden_states=True).hidden_states
    assert [state.shape[1] for state in states] == [26, 26, 11, 11, 5]


@pytest.mark.parametrize(("method", "attention"), in_turn([*METHODS, "soft_rank"], ["eager", "sdpa"]))
def test_padding_mask_of_the_model(method, attention):
    """Neither what padding holds nor how much of it there is changes anything."""
    model, x = vit(attn_implementation=attention)
    mask = torch.ones(3, 26, dtype=torch.long)
    mask[:, 16:] = 0
    other = x.clone()
    other[:, :, 12:, :] += 3  # the last two rows of patches, 15 to 24
    reduction = reduce_tokens(model, 0.5, (1, 2), **way(method))
    expected = model(x, attention_mask=mask).logits
    assert all((kept < 15).all() for kept in reduction.kept)
    torch.testing.assert_close(model(other, attention_mask=mask).logits, expected)
    assert (model(x).logits - expected).abs().max() > 1e-4
    restore_tokens(model)
    whole = model(x, attention_mask=mask).logits
    reduction = reduce_tokens(model, 1.0, (1, 2), **way(method))
    assert torch.equal(model(x, attention_mask=mask).logits, whole)


def test_the_model_without_a_head_and_without_labels():
    model, x = vit()
    base = model.vit
    reduce_tokens(base, 0.4, (1,))
    assert base(x).last_hidden_state.shape == (3, 11, 16)


class OldSelfAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.num_attention_heads, self.attention_head_size = heads, dim // heads
        self.query, self.key, self.value = nn.Linear(dim, dim), nn.Linear(dim, dim), nn.Linear(dim, dim)

    def forward(self, x, head_mask=None, output_attentions=False):
        q, k, v = (
            part(x).view(*x.shape[:2], self.num_attention_heads, -1).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        return (F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2),)


class Dense(nn.Module):
    def __init__(self, a, b):
        super().__init__()
        self.dense, self.dropout = nn.Linear(a, b), nn.Dropout(0.0)

    def forward(self, x, residual=None):
        x = self.dropout(self.dense(x))
        return x if residual is None else x + residual


class OldAttention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.attention, self.output = OldSelfAttention(dim, heads), Dense(dim, dim)

    def forward(self, x, head_mask=None, output_attentions=False):
        return (self.output(self.attention(x)[0]),)


class OldLayer(nn.Module):
    """A layer with the names and the order of transformers before version 5."""

    def __init__(self, dim=16, heads=2):
        super().__init__()
        self.layernorm_before, self.layernorm_after = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.attention = OldAttention(dim, heads)
        self.intermediate, self.output = Dense(dim, 32), Dense(32, dim)

    def forward(self, x, head_mask=None, output_attentions=False):
        x = self.attention(self.layernorm_before(x))[0] + x
        return (self.output(self.intermediate(self.layernorm_after(x)), x),)


class OldModel(nn.Module):
    def __init__(self, embeddings):
        super().__init__()
        self.embeddings = embeddings
        self.encoder = nn.Module()
        self.encoder.layer = nn.ModuleList(OldLayer() for _ in range(3))

    def forward(self, x):
        x = self.embeddings(x)
        for layer in self.encoder.layer:
            x = layer(x, None, False)[0]
        return x


@pytest.mark.parametrize("method", METHODS)
def test_the_names_of_older_versions(method):
    new, x = vit()
    model = OldModel(new.vit.embeddings)
    before = model(x)
    reduction = reduce_tokens(model, 0.4, (0, 2), **way(method))
    model.train()(x).sum().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)
    hard = model.eval()(x)
    assert hard.shape == (3, 5, 16)
    assert reduction.tokens_per_stage == (10, 4)
    restore_tokens(model)
    assert torch.equal(model(x), before)
