"""One run of the experiment on autoencoders: train on cached states, judge on text that was not seen."""

# pyright: basic
from __future__ import annotations

import functools
import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from khot.apps.sae import (
    ActivationStore,
    SparseAutoencoder,
    TrainSettings,
    core_metrics,
    train,
    write_report,
)
from khot.files.whole import write_json
from khot.vision.data import data_folder
from khot_bench.reproduce import language_states, sentence_states
from khot_bench.reproduce.ledger import Numbers, Settings

__all__ = [
    "BATCH",
    "LATENTS",
    "POINTS",
    "SEEN",
    "VARIANTS",
    "judge_principal_components",
    "train_variant",
    "write_latents_page",
]

BATCH = 512
LATENTS = {"smollm2": 4608, "minilm": 1536}
VARIANTS: dict[str, dict[str, Any]] = {
    "TopK + AuxK": {"activation": "topk"},
    "BatchTopK + AuxK": {"activation": "batch_topk"},
    "sigmoid top-k, annealed": {"activation": "sigmoid_topk", "auxk": 0.0},
    "TopK, k annealed from 4 k": {"activation": "topk", "auxk": 0.0, "k_start": 4.0},
}
_SHOWN = ("BatchTopK + AuxK", 32, 0)
POINTS = 40  # of a curve
SEEN = 20_000  # training tokens on which a latent must be active once to be alive

Replace = Callable[[Tensor], Tensor]


def train_variant(settings: Settings) -> Numbers:
    """Train and judge one variant, as it is evaluated and with one threshold (JumpReLU) at the same L0."""
    store = _store(settings)
    how = TrainSettings(
        num_latents=LATENTS[settings["data"]],
        k=settings["k"],
        steps=settings["steps"],
        batch_size=BATCH,
        dead_after=50_000,
        seed=settings["seed"],
        checkpoint_steps=70,
        **VARIANTS[settings["variant"]],
    )
    place = data_folder() / "sae-runs" / _name(settings)
    autoencoder, history = train(store, how, place)  # a run that was stopped goes on
    # On training tokens fewer latents would pass a threshold than on text that was not seen.
    _, validation = _held_out(settings)
    if autoencoder.options.activation == "batch_topk":
        autoencoder.fit_threshold(validation)
    as_threshold = autoencoder.as_jumprelu(validation)
    numbers: Numbers = {"seconds": history["seconds"], "step ms": 1e3 * history["seconds"] / how.steps}
    for form, judged in (("", autoencoder), (" JumpReLU", as_threshold)):
        numbers |= {f"{name}{form}": value for name, value in _judged(settings, judged).items()}
    seen = range(min(SEEN, len(store)))
    alive = core_metrics(autoencoder, [store.read(seen[i : i + 4096]) for i in range(0, len(seen), 4096)])
    numbers["dead %"] = 100 * (1 - alive["frac_alive"])
    for point in range(POINTS):
        at = round((point + 1) / POINTS * len(history["step"])) - 1
        numbers |= {f"{name} at {point}": history[name][at] for name in ("step", "fvu", "dead")}
    if (settings["variant"], settings["k"], settings["seed"]) == _SHOWN:
        autoencoder.save(_kept(settings["data"]))
    shutil.rmtree(place)
    return numbers


def write_latents_page(data: str, path: Path) -> bool:
    """A page of 20 latents of the autoencoder that was kept; False if there is none."""
    if data != "smollm2" or not _kept(data).is_dir():
        return False
    autoencoder = SparseAutoencoder.load(_kept(data))
    title = f"20 latents of SmolLM2-135M after block {language_states.BLOCK}, {_SHOWN[0]}, k = {_SHOWN[1]}"
    store, decode = language_states.train_store(1), language_states.tokenizer().decode
    write_report(path, autoencoder, store, decode=decode, title=title, rows=20_000)
    return True


def _kept(data: str) -> Path:
    return data_folder() / "sae-runs" / f"kept-{data}"


def _name(settings: Settings) -> str:
    return "-".join(str(value) for value in settings.values()).replace(" ", "_")


def judge_principal_components(settings: Settings) -> Numbers:
    """The floor: the k first principal components of the training states."""
    store = _store(settings)
    sample = store.read(range(0, len(store), max(len(store) // 20_000, 1)))
    mean = sample.mean(0)
    directions = torch.linalg.eigh((sample - mean).T @ (sample - mean)).eigenvectors[:, -settings["k"] :]
    test, _ = _held_out(settings)

    def project(x: Tensor) -> Tensor:
        return (x - mean) @ directions @ directions.T + mean

    error = (project(test) - test).square().sum() / (test - test.mean(0)).square().sum()
    return {"fvu": error.item(), "l0": float(settings["k"]), **_language(settings, project)}


def _judged(settings: Settings, autoencoder: SparseAutoencoder) -> Numbers:
    found = core_metrics(autoencoder, _held_out(settings)[0].split(1024))
    with torch.no_grad():
        language = _language(settings, lambda x: autoencoder(x).sae_out)
    return {**found, "fvu": 1 - found["explained_variance"], **language}


def _language(settings: Settings, replace: Replace) -> Numbers:
    """What the language model keeps; nothing for MiniLM, which predicts no text."""
    if settings["data"] != "smollm2":
        return {}
    clean, ablated = _bounds()
    limit = _limit()
    loss, apart = language_states.judged(replace, limit)
    return {
        "ce_loss_with_sae": loss,
        "ce_loss_without_sae": clean,
        "ce_loss_with_ablation": ablated[0],
        "ce_loss_score": (ablated[0] - loss) / (ablated[0] - clean),
        "kl_div_with_sae": apart,
        "kl_div_with_ablation": ablated[1],
        "kl_div_score": (ablated[1] - apart) / ablated[1],
    }


@functools.cache
def _bounds() -> tuple[float, tuple[float, float]]:
    """The cross entropy of the clean model, and that and the divergence of the mean-ablated one; kept on
    disk."""
    path = data_folder() / f"smollm2-block{language_states.BLOCK}-bounds.json"
    if not path.is_file():
        states = language_states.test_states()[1][:, 1:].flatten(0, 1)
        mean = states[states.norm(dim=-1) <= _limit()].mean(0)
        clean = language_states.judged(lambda x: x, _limit())[0]
        write_json([clean, *language_states.judged(lambda x: mean.expand_as(x), _limit())], path)
    clean, ablated, apart = json.loads(path.read_text(encoding="utf-8"))
    return clean, (ablated, apart)


def _limit() -> float:
    limit = language_states.train_store(1).norm_limit
    assert limit is not None
    return limit


@functools.cache
def _minilm() -> tuple[ActivationStore, Tensor]:
    return sentence_states.states(Path(tempfile.gettempdir()))


def _store(settings: Settings) -> ActivationStore:
    return language_states.train_store(settings["shards"]) if settings["data"] == "smollm2" else _minilm()[0]


def _held_out(settings: Settings) -> tuple[Tensor, Tensor]:
    """States of text that was not seen: those that are judged, and those on which thresholds are chosen."""
    if settings["data"] != "smollm2":
        states = _minilm()[1]
        return states[: len(states) // 2], states[len(states) // 2 :]
    parts = []
    judged = language_states.JUDGED_SEQUENCES
    for part in (slice(0, judged), slice(judged, None)):
        states = language_states.test_states()[1][part, 1:].flatten(0, 1)
        parts.append(states[states.norm(dim=-1) <= _limit()])
    return parts[0], parts[1]
