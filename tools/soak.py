"""Mixed calls for many minutes, with a record of memory: `make soak MINUTES=30`.

A round makes every call of `tests/strategies/every_call.py` (operators with their options, designs,
estimators, losses, with gradients), calls and saves every layer, and provokes errors. Every tenth one also
trains, saves, resumes and loads a small network and a sparse autoencoder: safetensors 0.8 keeps two integers
of each tensor that it reads, which would be most of what is found. After each round it records what this
process holds: resident memory (after the C library has given back what it can), Python objects, bytes in
tensors, open files and threads.

It fails if something grows. The first tenth of the time is not counted, in which caches fill. Of the rest,
the growth is the median slope of all pairs of records times the time between the first and the last (Theil
and Sen), which a single peak does not change.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import khot
from khot import nn
from khot.apps.sae import SparseAutoencoder, TrainSettings, collect_activations
from khot.apps.sae import train as train_autoencoder
from khot.compare.machine import describe_origin
from khot.files.whole import write_json
from khot.vision import load_network
from khot.vision.training import train as train_network
from strategies.every_call import every_call
from strategies.small_runs import bright_halves, small_run

# What may come together by chance: the C library keeps freed memory in pieces.
ALLOWED_MIB = 16.0
ALLOWED_OBJECTS = 500
LONG = (2, 100_000)


@dataclass(frozen=True)
class Record:
    """What the process holds after a round."""

    minutes: float
    resident_mib: float
    tensor_mib: float
    objects: int
    files: int
    threads: int


def _bytes(tensor: torch.Tensor) -> int:
    try:
        return tensor.untyped_storage().nbytes()
    except NotImplementedError:  # a wrapper of torch.func, which holds another
        return 0


def held(minutes: float, earlier: int) -> Record:
    """The record of this moment, without the objects of the records that were made earlier."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    objects = gc.get_objects()
    tensors = sum(_bytes(t) for t in objects if type(t) is torch.Tensor)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return Record(
        minutes=minutes,
        resident_mib=pages * 4096 / 2**20,
        tensor_mib=tensors / 2**20,
        objects=len(objects) - earlier,
        files=len(list(Path("/proc/self/fd").iterdir())),
        threads=len(list(Path("/proc/self/task").iterdir())),
    )


def operators() -> None:
    """Every operator, design, estimator and loss, forward and backward."""
    for call in CALLS.values():
        call()


def long_rows() -> None:
    """Rows that threads share."""
    x = torch.randn(LONG, requires_grad=True)
    for method in ("sigmoid", "laplace", "sparse", "normal"):
        khot.topk(x, 100, method).square().sum().backward()
    khot.topk_entries(x, 100).values.sum().backward()
    khot.sample(x.detach(), 100)


def layers() -> None:
    """Every layer made, called, saved and loaded."""
    x = torch.randn(4, 16)
    for name in nn.__all__:
        kind = getattr(nn, name)
        layer = kind(3)
        y = layer(torch.randn(4, 16, 2), x).values if name == "Select" else layer(x)
        assert torch.isfinite(y).all(), name
        kind(3).load_state_dict(layer.state_dict())


def networks() -> None:
    """A run that is stopped, resumed, saved and loaded."""
    with tempfile.TemporaryDirectory() as folder:

        def stop(message: str, share: float) -> None:
            if share > 0.5:
                raise InterruptedError

        run = small_run(epochs=2, checkpoint_steps=1)
        try:
            train_network(run, folder, data=IMAGES, report=stop)
        except InterruptedError:
            train_network(run, folder, data=IMAGES)
        load_network(folder)


def autoencoders() -> None:
    """Activations collected, an autoencoder trained in two parts, saved and loaded in two formats."""
    with tempfile.TemporaryDirectory() as folder:
        data = torch.randn(4, 50, 10)
        store = collect_activations(torch.nn.Sequential(torch.nn.Identity()), "0", data, f"{folder}/store")
        settings = TrainSettings(num_latents=24, k=3, steps=6, batch_size=32, activation="topk")
        train_autoencoder(store, settings, f"{folder}/run", stop_after=3)
        autoencoder, _ = train_autoencoder(store, settings, f"{folder}/run")
        for layout in ("saelens", "sparsify"):
            autoencoder.save(f"{folder}/{layout}", layout)
            SparseAutoencoder.load(f"{folder}/{layout}")


def mistakes() -> None:
    """Calls that raise: what they began with is freed too."""
    x = torch.randn(50, 200, requires_grad=True)
    wrong: tuple[Callable[[], object], ...] = (
        lambda: khot.sigmoid_topk(x, -1),
        lambda: khot.sigmoid_topk(x, 3, temperature=0.0),
        lambda: khot.topk(x, 3, "absent"),
        lambda: khot.sigmoid_topk(x, 3, mask=torch.ones(3, dtype=torch.bool)),
        lambda: khot.sample(probs=x.detach(), k=3),
        lambda: load_network("absent"),
    )
    for call in wrong:
        try:
            call()
        except (ValueError, TypeError, RuntimeError, OSError):
            continue
        raise AssertionError("a wrong call was accepted")


CALLS = every_call(16, 128)
IMAGES = (bright_halves(), bright_halves(20, seed=1))
PARTS = (operators, long_rows, layers, mistakes)
WITH_FILES = (networks, autoencoders)


def growth(records: list[Record], field: str) -> float:
    """The median slope of all pairs, times the time from the first record to the last."""
    points = [(record.minutes, getattr(record, field)) for record in records]
    slopes = [
        (later[1] - earlier[1]) / (later[0] - earlier[0])
        for number, earlier in enumerate(points)
        for later in points[number + 1 :]
    ]
    return statistics.median(slopes) * (points[-1][0] - points[0][0])


def judged(records: list[Record]) -> dict[str, float]:
    """By how much each quantity grew; the first tenth of the time is left out."""
    counted = [record for record in records if record.minutes >= records[-1].minutes / 10]
    if len(counted) > 200:  # pairs grow with the square
        counted = counted[:: len(counted) // 200 + 1]
    return {field: round(growth(counted, field), 3) for field in asdict(records[0]) if field != "minutes"}


def faults(grown: dict[str, float]) -> list[str]:
    """What grew by more than chance allows."""
    allowed = {
        "resident_mib": ALLOWED_MIB,
        "tensor_mib": 1.0,
        "objects": ALLOWED_OBJECTS,
        "files": 0.5,
        "threads": 0.5,
    }
    return [f"{field} grew by {grown[field]:g}" for field, limit in allowed.items() if grown[field] > limit]


def soak(minutes: float, tell: Callable[[str], object]) -> list[Record]:
    """Rounds until the time is over, and the record after each."""
    began, told = time.monotonic(), -1.0
    records: list[Record] = []
    while True:
        for part in PARTS if len(records) % 10 else (*PARTS, *WITH_FILES):
            part()
        passed = (time.monotonic() - began) / 60
        records.append(held(passed, len(records)))
        if passed - told >= 1 or passed >= minutes:
            told = passed
            tell(f"{len(records):6} rounds  {describe(records[-1])}\n")
        if passed >= minutes and len(records) >= 5:
            return records


def describe(record: Record) -> str:
    """One line."""
    return (
        f"{record.minutes:6.1f} min  {record.resident_mib:8.1f} MiB resident  {record.tensor_mib:6.2f} MiB "
        f"in tensors  {record.objects} objects  {record.files} files  {record.threads} threads"
    )


def document(records: list[Record], grown: dict[str, float], minutes: float) -> dict[str, Any]:
    """The result as JSON: a record for each of at most a hundred rounds."""
    return {
        "command": f"python tools/soak.py --minutes {minutes:g}",
        "origin": describe_origin(),
        "rounds": len(records),
        "calls": len(CALLS),
        "growth": grown,
        "records": [asdict(record) for record in records[:: len(records) // 100 + 1]] + [asdict(records[-1])],
    }


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--minutes", type=float, default=30.0)
    parser.add_argument("--output", type=Path, help="a JSON file for the record")
    asked = parser.parse_args()
    if not Path("/proc/self/statm").exists():
        parser.error("the record of memory needs Linux")
    torch.set_num_threads(2)
    records = soak(asked.minutes, sys.stdout.write)
    grown = judged(records)
    sys.stdout.write(f"growth: {json.dumps(grown)}\n")
    if asked.output is not None:
        write_json(document(records, grown, asked.minutes), asked.output)
    found = faults(grown)
    sys.stdout.write(f"soak: {'; '.join(found) if found else 'memory is flat'}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
