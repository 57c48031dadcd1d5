"""How far a reader walks to follow one call: `python tools/walks.py`.

Prints, for some calls of khot, how many of its Python files take part and how often the sequence of their
calls goes from one file to another. Fewer of both is less to read.
"""

import contextlib
import io
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import torch

import khot
from khot.cli import main
from khot.vision import VisionTransformer, preset, reduce_tokens

ROOT = str(Path(khot.__file__).parent)


def walk(call: Callable[[], object]) -> tuple[int, int]:
    """The files of khot that a call runs code of, and how often it goes from one to another."""
    visited: list[str] = []

    def note(frame: FrameType, event: str, argument: object) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(ROOT) and visited[-1:] != [name]:
            visited.append(name)

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return len(set(visited)), max(len(visited) - 1, 0)


def sampford() -> None:
    """A design, made and drawn from."""
    khot.designs.Sampford(3, probs=torch.tensor([0.2, 0.9, 0.5, 0.6, 0.8])).sample()


def select() -> None:
    """Vectors by a method with rows."""
    khot.select(torch.randn(2, 8, 4), torch.randn(2, 8), 3, "successive_halving")


def sigmoid() -> None:
    """The default operator."""
    khot.sigmoid_topk(torch.randn(2, 8, requires_grad=True), 3).square().sum().backward()


def reduction() -> Callable[[], None]:
    """The model is made before, and is no part of the walk."""
    model = VisionTransformer(preset("mnist", model="vit", width=16, depth=2, heads=2)).train()
    images = torch.randn(2, 1, 28, 28)

    def reduce_and_run() -> None:
        reduce_tokens(model, 0.5, (0,), mode="straight_through")
        for _ in range(2):
            model(images)

    return reduce_and_run


def compare() -> None:
    """The command, of one operator: what others add is their own file."""
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        main(["compare", "--quick", "--methods", "sigmoid", "--n", "64", "--output", folder])


WALKS: dict[str, Callable[[], object]] = {
    "designs.Sampford(…).sample()": sampford,
    'select(…, "successive_halving")': select,
    "reduce_tokens and two forwards": reduction(),
    "sigmoid_topk, forward and backward": sigmoid,
    "khot compare --quick, one operator": compare,
}

if __name__ == "__main__":
    for once in (sampford, select, sigmoid, reduction()):
        once()  # what is found, loaded or cached once is no part of the walks
    write = sys.stdout.write
    write(f"{'call':36} files  changes of file\n")
    for name, call in WALKS.items():
        files, changes = walk(call)
        write(f"{name:36} {files:5}  {'' if call is compare else changes}\n")
