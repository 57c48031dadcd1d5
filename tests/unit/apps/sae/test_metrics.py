"""Metrics against their definitions on whole tensors; the page and the examples of latents."""

import re
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from khot.apps.sae import (
    SparseAutoencoder,
    collect_activations,
    core_metrics,
    language_model_metrics,
    latent_density,
    top_examples,
    write_report,
)


def made(activation="topk", **options):
    torch.manual_seed(0)
    return SparseAutoencoder(8, 24, 3, activation, tied=False, **options).eval()


def test_core_metrics_are_what_their_names_say():
    autoencoder = made()
    x = 1 + torch.randn(300, 8, generator=torch.Generator().manual_seed(1))
    found = core_metrics(autoencoder, x.split(128))
    out, dense = autoencoder(x).sae_out.double(), autoencoder.encode(x, dense=True).double()
    x = x.double()
    assert found["explained_variance"] == pytest.approx(
        (1 - (x - out).square().sum() / (x - x.mean(0)).square().sum()).item()
    )
    assert found["mse"] == pytest.approx((x - out).square().sum(-1).mean().item())
    assert found["cossim"] == pytest.approx(torch.cosine_similarity(x, out).mean().item())
    assert found["l2_ratio"] == pytest.approx((out.norm(dim=-1) / x.norm(dim=-1)).mean().item())
    assert found["relative_reconstruction_bias"] == pytest.approx(
        (out.square().sum(-1).mean() / (x * out).sum(-1).mean()).item()
    )
    assert found["l0"] == pytest.approx((dense > 0).sum(-1).double().mean().item())
    assert found["l1"] == pytest.approx(dense.sum(-1).mean().item(), rel=1e-6)
    frequency = (dense > 0).double().mean(0)
    assert found["freq_over_10_percent"] == pytest.approx((frequency > 0.1).double().mean().item())
    assert found["freq_over_1_percent"] == pytest.approx((frequency > 0.01).double().mean().item())
    assert found["frac_alive"] == pytest.approx((frequency > 0).double().mean().item())
    units = nn.functional.normalize(autoencoder.W_dec.detach(), dim=-1)
    cosines = units @ units.T - 2 * torch.eye(24)
    assert found["average_max_decoder_cosine_sim"] == pytest.approx(cosines.amax(-1).mean().item(), rel=1e-5)
    with pytest.raises(ValueError, match="batches must not be empty"):
        core_metrics(autoencoder, [])
    with pytest.raises(ValueError, match="got a transcoder"):
        core_metrics(made(transcoder=True), [x.float()])


class TinyLanguageModel(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.embed, self.block, self.head = nn.Embedding(30, 8), nn.Linear(8, 8), nn.Linear(8, 30)

    def forward(self, tokens):
        return SimpleNamespace(logits=self.head(self.block(self.embed(tokens)).tanh()))


def test_what_a_language_model_keeps():
    model = TinyLanguageModel()
    tokens = torch.randint(0, 30, (6, 7), generator=torch.Generator().manual_seed(3))
    states = model.block(model.embed(tokens)).detach()
    mean = states[:, 1:].reshape(-1, 8).mean(0)
    clean = language_model_metrics(model, "block", tokens.split(2), lambda x: x, mean=mean)
    assert clean["ce_loss_score"] == pytest.approx(1)
    assert clean["kl_div_score"] == pytest.approx(1, abs=1e-6)
    logits = model(tokens).logits[:, :-1]
    wanted = nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()).item()
    assert clean["ce_loss_without_sae"] == pytest.approx(wanted, rel=1e-5)
    ablated = language_model_metrics(model, "block", [tokens], lambda x: mean.expand_as(x), mean=mean)
    assert ablated["ce_loss_score"] == pytest.approx(0, abs=1e-6)
    assert ablated["kl_div_score"] == pytest.approx(0, abs=1e-6)
    autoencoder = made()
    found = language_model_metrics(model, "block", [tokens], autoencoder, mean=mean)
    replaced = states.clone()
    replaced[:, 1:] = autoencoder(states[:, 1:]).sae_out.detach()
    log_probs = model.head(replaced.tanh())[:, :-1].log_softmax(-1)
    with_sae = nn.functional.nll_loss(log_probs.flatten(0, 1), tokens[:, 1:].flatten()).item()
    assert found["ce_loss_with_sae"] == pytest.approx(with_sae, rel=1e-5)
    apart = (logits.softmax(-1) * (logits.log_softmax(-1) - log_probs)).sum(-1).mean().item()
    assert found["kl_div_with_sae"] == pytest.approx(apart, rel=1e-4)
    with pytest.raises(ValueError, match="hook_point must be the name of a module, got 'blocks'"):
        language_model_metrics(model, "blocks", [tokens], autoencoder, mean=mean)


@pytest.fixture
def store(tmp_path):
    tokens = torch.randint(0, 30, (40, 10), generator=torch.Generator().manual_seed(4))
    return collect_activations(TinyLanguageModel(), "embed", tokens.split(8), tmp_path, skip_positions=1)


def test_examples_are_the_most_active_rows_and_densities_their_shares(store):
    autoencoder = made()
    dense = autoencoder.encode(store.read(range(360)), dense=True).detach()
    torch.testing.assert_close(latent_density(autoencoder, store), (dense > 0).float().mean(0))
    best = int((dense > 0).sum(0).argmax())
    dead = int((dense > 0).sum(0).argmin())
    first, second = top_examples(autoencoder, store, [best, dead], count=5)
    torch.testing.assert_close(torch.tensor(first.acts), dense[:, best].topk(5).values)
    torch.testing.assert_close(dense[first.rows, best], torch.tensor(first.acts))
    assert len(second.rows) == min(5, int((dense[:, dead] > 0).sum()))
    with pytest.raises(ValueError, match="latents must be in 0 … 23, got 24"):
        top_examples(autoencoder, store, [24])


def test_the_page_shows_curves_densities_and_tokens_and_escapes_them(store, tmp_path):
    history = {"step": [0, 1, 2], "fvu": [1.0, 0.5, float("nan")], "l0": [3.0] * 3, "dead": [0.0, 0.1, 0.2]}
    path = tmp_path / "page" / "index.html"
    write_report(
        path,
        made(),
        store,
        decode=lambda tokens: "".join(f"<{token}>" for token in tokens),
        history=history,
        numbers={"FVU": 0.25},
        latents=[0, 5],
        title="A & B",
    )
    page = path.read_text()
    assert "A &amp; B" in page
    assert page.count("<svg") == 4
    assert page.count("<section") == 2
    assert re.search(r"<mark>&lt;\d+&gt;</mark>", page)
    assert "http" not in page
    assert "NaN" not in page
    write_report(path, made(), store)
    assert "<section" not in path.read_text()
