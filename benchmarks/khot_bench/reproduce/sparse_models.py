"""The networks of `khot reproduce sparse`, trained dense, pruned, by RigL's rule, and by khot's masks.

All ways of one network have the same epochs, batches, optimiser and learning rate; only the masks differ.
"""

# pyright: basic
from __future__ import annotations

import copy
import functools
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.utils import prune

from khot.apps.sparse import DropAndGrow, cubic, sparsify
from khot.vision.data import load
from khot_bench.reproduce.ledger import Numbers, Settings

__all__ = ["NETWORKS", "WAYS", "train_sparse"]

BATCH, RATE, DECAY = 128, 0.1, 1e-4
FIRST, LAST = 0.1, 0.7
"""From dense to sparse within these shares of the training."""

ROUNDS = 10
"""How many times iterative pruning prunes."""

NETWORKS: dict[str, Callable[[], nn.Module]] = {
    "perceptron": lambda: nn.Sequential(
        nn.Flatten(), nn.Linear(784, 300), nn.ReLU(), nn.Linear(300, 100), nn.ReLU(), nn.Linear(100, 10)
    ),
    "convnet": lambda: nn.Sequential(
        nn.Conv2d(1, 16, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 49, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    ),
}


class _Pruned:
    """torch.nn.utils.prune, over all layers together, to the wanted density."""

    def __init__(self, model: nn.Module) -> None:
        self.layers = [(layer, "weight") for layer in model if hasattr(layer, "weight")]  # pyright: ignore
        self.density = 1.0

    def to(self, density: float) -> None:
        # `amount` is relative to what is left: of the density of now.
        amount = 1 - density / self.density
        prune.global_unstructured(self.layers, prune.L1Unstructured, amount=amount)
        self.density = density


def _one_shot(model: nn.Module, density: float, steps: int) -> Callable[[int], object]:
    pruned = _Pruned(model)
    return lambda step: pruned.to(density) if step == round(LAST * steps) else None


def _iterative(model: nn.Module, density: float, steps: int) -> Callable[[int], object]:
    pruned, schedule = _Pruned(model), cubic(1.0, density, ROUNDS)
    start, width = FIRST * steps, (LAST - FIRST) * steps / (ROUNDS - 1)
    times = {round(start + i * width): schedule(i + 1) for i in range(ROUNDS)}
    return lambda step: pruned.to(times[step]) if step in times else None


def _rigl(model: nn.Module, density: float, steps: int) -> Callable[[int], object]:
    rule = DropAndGrow(0.3, until=round(0.75 * steps))
    # Every 20 steps and not 100: training is short here, and three exchanges would be no test of the rule.
    sparse = sparsify(model, density, distribution="erk", every=20, update=rule)
    return lambda step: sparse.step()


def _khot(
    model: nn.Module, density: float, steps: int, freeze: bool = False, **options: object
) -> Callable[[int], object]:
    first, last = round(FIRST * steps), round(LAST * steps)
    schedule = cubic(1.0, density, last - first, warmup=first)
    sparse = sparsify(model, schedule, scope="global", every=10, **options)  # pyright: ignore
    stays = -(-last // 10) * 10 if freeze else steps  # the first selection at the last density

    def after(step: int) -> None:
        sparse.step()
        if step == stays:
            sparse.freeze()

    return after


WAYS: dict[str, Callable[[nn.Module, float, int], Callable[[int], object]]] = {
    "prune, one shot": _one_shot,
    "prune, iterative": _iterative,
    "RigL": _rigl,
    "khot, kept": functools.partial(_khot, backward_density=0.0),
    "khot, sigmoid": functools.partial(_khot, freeze=True, method="sigmoid", temperature=0.3),
    "khot, straight-through": _khot,
}


def train_sparse(settings: Settings, validation: bool = False) -> Numbers:
    """Train one network one way; its accuracy on the test images, or on 5000 training images left out."""
    images, labels, test_images, test_labels = _data(settings["data"], validation)
    torch.manual_seed(settings["seed"])
    model = NETWORKS[settings["network"]]()
    steps = settings["epochs"] * (len(labels) // BATCH)
    way = settings["way"]
    begin = 0
    state = None
    if way == "prune, one shot":  # dense until it prunes, and the same for every density
        begin = round(LAST * steps)
        model, state = copy.deepcopy(
            _dense(settings["network"], settings["data"], settings["seed"], steps, validation)
        )
    after = None if way == "dense" else WAYS[way](model, settings["density"], steps)
    _train(model, images, labels, settings["seed"], begin, steps, steps, after, state)
    model.eval()
    with torch.no_grad():
        right = (model(test_images).argmax(-1) == test_labels).double().mean().item()
    layers = [layer for layer in model if hasattr(layer, "weight")]  # pyright: ignore
    kept = sum(int((layer.weight != 0).sum()) for layer in layers)
    return {
        "accuracy": right,
        "kept": float(kept),
        "weights": float(sum(layer.weight.numel() for layer in layers)),
    }


def _train(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    seed: int,
    begin: int,
    end: int,
    steps: int,
    after: Callable[[int], object] | None,
    state: dict | None = None,
) -> dict:
    """Steps ``begin`` to ``end`` of ``steps``; the state of the optimiser."""
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9, nesterov=True, weight_decay=DECAY)
    if state is not None:
        optimizer.load_state_dict(state)
    per_epoch = len(labels) // BATCH
    order = torch.empty(0)
    if after is not None and begin:
        after(begin)
    for step in range(begin, end):
        if step % per_epoch == 0 or not len(order):
            generator = torch.Generator().manual_seed(1000 * seed + step // per_epoch)
            order = torch.randperm(len(labels), generator=generator)
        rows = order[step % per_epoch * BATCH : (step % per_epoch + 1) * BATCH]
        optimizer.param_groups[0]["lr"] = RATE * min(1.0, (step + 1) / 100) * (1 - step / steps)
        loss = nn.functional.cross_entropy(model(images[rows]), labels[rows])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if after is not None:
            after(step + 1)
    return optimizer.state_dict()


@functools.lru_cache(maxsize=1)
def _dense(network: str, data: str, seed: int, steps: int, validation: bool) -> tuple[nn.Module, dict]:
    """A network trained as far as one-shot pruning needs it, and the state of its optimiser."""
    images, labels, _, _ = _data(data, validation)
    torch.manual_seed(seed)
    model = NETWORKS[network]()
    return model, _train(model, images, labels, seed, 0, round(LAST * steps), steps, None)


@functools.lru_cache(maxsize=2)
def _data(name: str, validation: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    train, test = load(name), load(name, train=False)
    images, test_images = ((half.images.float() / 255 - 0.2) / 0.35 for half in (train, test))  # pyright: ignore
    if validation:
        return images[:-5000], train.labels[:-5000], images[-5000:], train.labels[-5000:]
    return images, train.labels, test_images, test.labels
