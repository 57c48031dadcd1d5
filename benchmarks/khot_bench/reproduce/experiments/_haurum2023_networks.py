"""The small vision transformers of `haurum2023.py`: trained, fine-tuned, tested and timed."""

# pyright: basic
from __future__ import annotations

import copy
import functools
import hashlib
import json
import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from khot.schedules import TemperatureScheduler, exponential
from khot.vision import VisionTransformer, count_flops, load_network, preset, reduce_tokens, save_network
from khot.vision.data import ImageTensors, load

__all__ = ["LOCATIONS", "TEST_BATCH", "speed", "tested", "train", "trained"]

LOCATIONS = (1, 3, 4)
BATCH, TEST_BATCH = 50, 100
CONFIG = preset("mnist", model="vit", width=32, depth=6, heads=2)


@functools.cache
def _mean_and_deviation(data: str) -> tuple[float, float]:
    pixels = _images(data, True).images.float() / 255
    return pixels.mean().item(), pixels.std().item()


def _batch(data: str, train: bool, rows: Tensor) -> tuple[Tensor, Tensor]:
    images, labels = _images(data, train).batch(rows)
    mean, deviation = _mean_and_deviation(data)
    return (images - mean) / deviation, labels


@functools.cache
def _images(data: str, train: bool) -> ImageTensors:
    found = load(data, train)
    assert isinstance(found, ImageTensors)
    return found


def trained(data: str, images: int, seed: int) -> VisionTransformer:
    """The network trained with all tokens; kept in the folder for temporary files, to go on after a stop."""
    key = json.dumps([CONFIG.to_dict(), data, images, seed, torch.__version__])
    name = f"khot-haurum2023-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
    folder = Path(tempfile.gettempdir()) / name
    if (folder / "model.safetensors").exists():
        found = load_network(folder)
        assert isinstance(found, VisionTransformer)
        return found
    torch.manual_seed(seed)
    model = VisionTransformer(CONFIG)
    train(model, data, images, rate=2e-3, seed=seed)
    save_network(model, folder)
    return model


def train(model: nn.Module, data: str, images: int, rate: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    count, steps = len(_images(data, True)), max(images // BATCH, 1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=0.02)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=steps + 1, pct_start=0.1)
    reduced = getattr(model, "token_reduction", None)
    cooling = (
        TemperatureScheduler(reduced, exponential(1.0, 0.1, steps))
        if reduced is not None and reduced.mode == "soft"
        else None
    )
    model.train()
    for _ in range(steps):
        x, target = _batch(data, True, torch.randint(count, (BATCH,), generator=generator))
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), target).backward()
        optimizer.step()
        schedule.step()
        if cooling is not None:
            cooling.step()


@torch.no_grad()
def tested(model: nn.Module, data: str, images: int) -> dict[str, float]:
    """Accuracy, and operations for an image."""
    right: list[Tensor] = []
    x = torch.zeros(0)
    for rows in torch.arange(images).split(TEST_BATCH):
        x, target = _batch(data, False, rows)
        right.append(model(x).argmax(-1) == target)
    return {"accuracy": torch.cat(right).double().mean().item(), "flops": count_flops(model, x) / len(x)}


@torch.no_grad()
def speed(rate: float, selection: Mapping[str, Any], rounds: int) -> dict[str, float]:
    """Images per second of one core's time, with all tokens and with fewer, in alternating rounds."""
    torch.manual_seed(0)
    full = VisionTransformer(CONFIG).eval()
    reduced = copy.deepcopy(full)
    reduce_tokens(reduced, rate, LOCATIONS, **selection)
    x = torch.randn(TEST_BATCH, 1, 28, 28)
    seconds: dict[nn.Module, list[float]] = {full: [], reduced: []}
    for _ in range(rounds):
        for model, times in seconds.items():
            start = time.thread_time()
            model(x)
            times.append(time.thread_time() - start)
    ratios = [a / b for a, b in zip(*seconds.values(), strict=True)]
    return {
        "flops": count_flops(reduced, x) / len(x),
        "images per second": len(x) / statistics.median(seconds[reduced]),
        "images per second, all tokens": len(x) / statistics.median(seconds[full]),
        "speed-up": statistics.median(ratios),
    }
