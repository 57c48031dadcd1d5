"""One encoder, trained by losses over neighbours or by cross entropy, and judged by k nearest neighbours."""

# pyright: basic
from __future__ import annotations

import functools
import math
import time
from typing import Any

import torch
from torch import Tensor, nn

from khot.apps.neighbors import NeighborLoss
from khot.vision.data import ImageTensors, load
from khot_bench.reproduce.ledger import Numbers, Settings

__all__ = ["LOSSES", "K", "nca_loss", "raw_pixels", "train_encoder"]

K, BATCH, WIDTH, RATE = 9, 256, 64, 2e-3
VALIDATION = 5000

LOSSES: dict[str, dict[str, Any]] = {
    "cross entropy": {},
    "NCA": {"scale": 8.0},
    "NeuralSort": {"method": "neuralsort", "loss": "share", "temperature": 0.1},
    "NeighborLoss": {"temperature": 0.03},
}
"""What each is trained with; the numbers are the best of ``tuning`` by accuracy on validation rows."""


class Encoder(nn.Module):
    """Two convolutions with stride, one linear layer, and a vector of unit length."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, 16, 5, stride=2),
            nn.ReLU(),
            nn.Conv2d(16, 32, 5, stride=2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(512, WIDTH),
        )

    def forward(self, images: Tensor) -> Tensor:
        return nn.functional.normalize(self.layers(images), dim=-1)


def nca_loss(embeddings: Tensor, labels: Tensor, scale: float) -> Tensor:
    """Minus the log of the softmax weight, over all others by squared distance, of those with the label."""
    logits = -scale * torch.cdist(embeddings, embeddings).square()
    itself = torch.eye(len(labels), dtype=torch.bool)
    logits = logits.masked_fill(itself, -math.inf)
    right = (labels.unsqueeze(1) == labels) & ~itself
    has = right.any(1)
    hits = logits.log_softmax(1).masked_fill(~right, -math.inf)[has]
    return -hits.logsumexp(1).mean()


@functools.cache
def _data(name: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    train, test = load(name, True), load(name, False)
    assert isinstance(train, ImageTensors)
    assert isinstance(test, ImageTensors)
    return train.images.float() / 255, train.labels, test.images.float() / 255, test.labels


def raw_pixels(settings: Settings) -> Numbers:
    """Accuracy of k nearest neighbours of pixels, in percent."""
    x, y, tests, answers = _data(settings["data"])
    return {"accuracy": _accuracy(x.flatten(1), y, tests.flatten(1), answers, settings["k"])}


def train_encoder(settings: Settings) -> Numbers:
    """Train an encoder; accuracy of its nearest neighbours, in percent, and seconds of a step."""
    torch.manual_seed(settings["seed"])
    x, y, tests, answers = _data(settings["data"])
    if settings["part"] == "tuning":
        x, y, tests, answers = x[:-VALIDATION], y[:-VALIDATION], x[-VALIDATION:], y[-VALIDATION:]
    options = {**LOSSES[settings["loss"]], **settings["options"]}
    encoder, head = Encoder(), nn.Linear(WIDTH, 10)
    loss_of = _loss(settings["loss"], options, head)
    parameters = [*encoder.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=RATE, weight_decay=1e-4, fused=True)
    steps = settings["steps"]
    rates = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps, RATE / 50)
    start = time.process_time()
    for _ in range(steps):
        rows = torch.randint(len(x), (BATCH,))
        loss = loss_of(encoder(x[rows]), y[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        rates.step()
    numbers: Numbers = {"seconds a step": (time.process_time() - start) / steps}
    with torch.no_grad():
        found, asked = (torch.cat([encoder(part) for part in images.split(2000)]) for images in (x, tests))
        if settings["loss"] == "cross entropy":
            guesses = head(asked * _SCALE).argmax(-1)
            numbers["accuracy of the head"] = 100 * (guesses == answers).double().mean().item()
    numbers["accuracy"] = _accuracy(found, y, asked, answers, K)
    return numbers


_SCALE = 16.0
"""Of unit vectors before a linear layer, so that its logits can be sure."""


def _loss(name: str, options: dict[str, Any], head: nn.Module) -> Any:
    if name == "cross entropy":
        return lambda e, y: nn.functional.cross_entropy(head(e * _SCALE), y)
    if name == "NCA":
        return lambda e, y: nca_loss(e, y, options["scale"])
    return NeighborLoss(K, normalize=False, **options)


@torch.no_grad()
def _accuracy(rows: Tensor, labels: Tensor, tests: Tensor, answers: Tensor, k: int) -> float:
    """By the most frequent label among the k nearest, of equal ones the first, in percent."""
    norms, right = rows.square().sum(1), 0
    for part, wanted in zip(tests.split(500), answers.split(500), strict=True):
        nearest = torch.addmm(norms.unsqueeze(0), part, rows.T, alpha=-2).topk(k, largest=False).indices
        votes = nn.functional.one_hot(labels[nearest], 10).sum(1)
        right += (votes.argmax(-1) == wanted).sum().item()
    return 100 * right / len(tests)
