"""The networks of `khot reproduce moe`: a character model of Mixtral's kind, and a small one for digits."""

# pyright: basic
from __future__ import annotations

import contextlib
import math
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from khot.apps.moe import Experts, MoE, RoutingStatistics, TopKRouter, load_balance_loss, replace_router
from khot.vision.data import ImageTensors, load
from khot_bench.reproduce.kjv_text import characters
from khot_bench.reproduce.ledger import Numbers, Settings

__all__ = ["DENSE", "ROUTERS", "train_digits", "train_text"]

EXPERTS = 8
HIDDEN, WIDTH, LAYERS, HEADS, CONTEXT, BATCH = 64, 128, 2, 4, 64, 16
RATE, COEFFICIENT, WARM_UP = 3e-3, 0.01, 40
TESTED = 128
"""Passages in a batch of a test."""

POINTS = 10
"""How many times a run looks at its validation loss."""

ROUTERS: dict[str, dict[str, Any]] = {
    "softmax, renormalised": {"routing": "topk", "renormalise": True},
    "softmax": {"routing": "topk", "renormalise": False},
    "softmax, unit scale": {"routing": "topk", "renormalise": False, "scaling_factor": "unit"},
    "sigmoid top-k": {"routing": "sigmoid_topk", "scaling_factor": "unit"},
    "sparse top-k": {"routing": "sparse", "temperature": 2.0, "scaling_factor": "unit"},
    "straight-through": {"routing": "straight_through", "scaling_factor": "unit"},
    "sampled": {"routing": "sampled", "scaling_factor": "unit"},
}
DENSE = {f"dense, {n} × width": n for n in (1, 2, 8)}


class Recorded:
    """What the routers of a model gave since the last `clear`."""

    def __init__(self, routers: list[nn.Module]) -> None:
        self.routers = routers
        self.outputs: list[Any] = []

    def clear(self) -> None:
        self.outputs.clear()

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        handles = [
            router.register_forward_hook(lambda _, args, out: self.outputs.append(out))
            for router in self.routers
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def balance_loss(self) -> Tensor:
        """The mean over routers, of the selection that was used."""
        losses = [load_balance_loss(logits, indices) for logits, _, indices in self.outputs]
        return sum(losses, torch.zeros(())) / max(len(losses), 1)


def train_text(settings: Settings) -> Numbers:
    """Train a character model; losses in nats for a character, on text it has not seen."""
    torch.manual_seed(settings["seed"])
    splits, alphabet = characters()
    model = _text_model(settings, len(alphabet))
    recorded = Recorded([m for name, m in model.named_modules() if name.endswith("mlp.gate")])
    generator = torch.Generator().manual_seed(settings["seed"])
    steps = settings["steps"]

    def loss_of(x: Tensor) -> Tensor:
        logits = model(input_ids=x[:, :-1]).logits
        return nn.functional.cross_entropy(logits.flatten(0, 1).float(), x[:, 1:].flatten())

    def batch(split: str, count: int, source: torch.Generator) -> Tensor:
        text = splits[split]
        starts = torch.randint(len(text) - CONTEXT - 1, (count, 1), generator=source)
        return text[starts + torch.arange(CONTEXT + 1)]

    numbers: Numbers = {}
    watched = torch.Generator().manual_seed(1)
    held = batch("validation", 64, watched)
    norms = _train(
        model,
        recorded,
        steps,
        settings["balance"],
        lambda step: loss_of(batch("train", BATCH, generator)),
        lambda step: numbers.update({f"validation {step}": _quietly(model, lambda: loss_of(held)).item()}),
    )
    numbers |= norms
    numbers["train"] = _quietly(model, lambda: loss_of(batch("train", TESTED, watched))).item()
    tests = [_quietly(model, lambda: loss_of(batch("test", TESTED, watched))).item() for _ in range(6)]
    numbers["test"] = sum(tests) / len(tests)
    if recorded.routers:
        with recorded.recording():
            recorded.clear()
            _quietly(model, lambda: loss_of(batch("test", TESTED, watched)))
        numbers |= _usage(recorded)
    numbers["parameters"] = float(sum(p.numel() for p in model.parameters()))
    return numbers


def _text_model(settings: Settings, vocabulary: int) -> nn.Module:
    import transformers

    sizes = {
        "vocab_size": vocabulary,
        "hidden_size": HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": HEADS,
        "max_position_embeddings": CONTEXT,
        "use_cache": False,
        "bos_token_id": None,
        "eos_token_id": None,
    }
    if settings["router"] in DENSE:
        width = WIDTH * DENSE[settings["router"]]
        config = transformers.LlamaConfig(intermediate_size=width, **sizes)
        return transformers.LlamaForCausalLM(config)
    config = transformers.MixtralConfig(
        intermediate_size=WIDTH, num_local_experts=EXPERTS, num_experts_per_tok=settings["k"], **sizes
    )
    model = transformers.MixtralForCausalLM(config)
    replace_router(model, **ROUTERS[settings["router"]])
    return model


class DigitsMixture(nn.Module):
    """Sixteen patches of 2×2 pixels, one layer of experts, and the mean over patches."""

    def __init__(self, k: int, router: dict[str, Any]) -> None:
        super().__init__()
        self.into = nn.Linear(4, 32)
        self.places = nn.Parameter(0.02 * torch.randn(16, 32))
        self.norm = nn.LayerNorm(32)
        with warnings.catch_warnings():  # of a router that does not learn: it is here to be seen
            warnings.simplefilter("ignore", UserWarning)
            made = TopKRouter(32, EXPERTS, k, **router)
        self.mixture = MoE(made, Experts(EXPERTS, 32, 32))
        self.out = nn.Linear(32, 10)

    def forward(self, images: Tensor) -> Tensor:
        patches = nn.functional.unfold(images, 2, stride=2).mT
        x = self.into(patches) + self.places
        x = x + self.mixture(self.norm(x))
        return self.out(x.mean(1))


def train_digits(settings: Settings) -> Numbers:
    """Train on scikit-learn's digits; accuracy on those it has not seen."""
    torch.manual_seed(settings["seed"])
    data = {train: load("digits", train) for train in (True, False)}
    images, labels = _tensors(data[True])
    model = DigitsMixture(settings["k"], ROUTERS[settings["router"]])
    recorded = Recorded([model.mixture.router])
    generator = torch.Generator().manual_seed(settings["seed"])

    def loss(step: int) -> Tensor:
        rows = torch.randint(len(labels), (64,), generator=generator)
        return nn.functional.cross_entropy(model(images[rows]), labels[rows])

    numbers = _train(model, recorded, settings["steps"], settings["balance"], loss, lambda step: None)
    tests, answers = _tensors(data[False])
    with recorded.recording():
        recorded.clear()
        guesses = _quietly(model, lambda: model(tests))
    numbers["accuracy"] = (guesses.argmax(-1) == answers).double().mean().item()
    return numbers | _usage(recorded)


def _tensors(data: Any) -> tuple[Tensor, Tensor]:
    assert isinstance(data, ImageTensors)
    return data.images.float(), data.labels


def _train(
    model: nn.Module, recorded: Recorded, steps: int, balance: bool, loss_at: Any, look: Any
) -> Numbers:
    """AdamW, warm-up and cosine; the mean gradient norms of routers and experts."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.01)
    experts = [p for name, p in model.named_parameters() if ".experts." in name]
    gates = [p for router in recorded.routers for p in router.parameters()]
    norms = {"router gradient": 0.0, "expert gradient": 0.0}
    model.train()
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = _rate(step, steps)
        recorded.clear()
        with recorded.recording() if balance else contextlib.nullcontext():
            loss = loss_at(step)
        total = loss + COEFFICIENT * recorded.balance_loss() if balance else loss
        optimizer.zero_grad()
        total.backward()
        for name, parameters in (("router gradient", gates), ("expert gradient", experts)):
            found = [p.grad.norm().item() for p in parameters if p.grad is not None]
            norms[name] += sum(found) / max(len(found), 1) / steps
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if (step + 1) % max(steps // POINTS, 1) == 0:
            look(step + 1)
            model.train()
    return norms


def _rate(step: int, steps: int) -> float:
    falling = 0.05 + 0.95 * (1 + math.cos(math.pi * step / steps)) / 2
    return RATE * min(1.0, (step + 1) / WARM_UP) * falling


@torch.no_grad()
def _quietly(model: nn.Module, call: Any) -> Tensor:
    model.eval()
    return call()


def _usage(recorded: Recorded) -> Numbers:
    """Entropy of the use of experts, and the share of layers that have collapsed, half of them idle."""
    steps = [RoutingStatistics(EXPERTS).update(indices) for _, _, indices in recorded.outputs]
    return {
        "entropy": sum(step.entropy for step in steps) / len(steps),
        "collapsed": sum(step.idle >= EXPERTS // 2 for step in steps) / len(steps),
        "largest share": max(max(step.usage) for step in steps),
    }
