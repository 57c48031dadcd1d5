"""The options and the results of one comparison."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Cell", "Comparison", "Options", "Record", "Setting"]

Setting = Literal["fixed", "matched"]


@dataclass(frozen=True)
class Options:
    """What to compare; checked by the command.

    Args:
        methods: names of operators.
        n: row lengths.
        k: budgets; those below n are used.
        device: the device to measure on.
        dtype: the dtype of the scores.
        seed: the seed of scores, vectors and noise.
        temperature: the fixed temperature.
        sharpness: the mean entropy, between 0 and 1, for the comparison at equal sharpness.
        threads: the number of PyTorch threads.
        quick: fewer repeats, and memory for the last case only.
        command: the command line, for the record.
    """

    methods: tuple[str, ...]
    n: tuple[int, ...] = (64, 1000, 4000)
    k: tuple[int, ...] = (8, 64)
    device: str = "cpu"
    dtype: str = "float32"
    seed: int = 0
    temperature: float = 1.0
    sharpness: float = 0.3
    threads: int = 1
    quick: bool = False
    command: str = ""

    def cells(self) -> tuple[Cell, ...]:
        """The cases, small ones first."""
        pairs = sorted({(n, k) for n in self.n for k in self.k if k < n})
        return tuple(Cell(n, k, max(2, min(16, 4000 // n))) for n, k in pairs)


@dataclass(frozen=True)
class Cell:
    """A case: row length, budget, number of rows."""

    n: int
    k: int
    rows: int


@dataclass(frozen=True)
class Record:
    """The results of one operator in one case at one temperature. None means not measured; see `missing`.

    Args:
        method: the operator.
        n: row length.
        k: budget.
        setting: the fixed temperature, or equal sharpness.
        missing: why there are no numbers; empty if there are.
        temperature: the temperature used.
        recall, on_topk, entropy, nccs: see `khot.compare.quality.Quality`.
        gradient_norm, usable: see `khot.compare.quality.Gradient`.
        forward: seconds of one call on all rows.
        backward: seconds that backward takes in addition.
        forward_bytes: peak extra memory of a call.
        backward_bytes: peak extra memory of forward and backward.
    """

    method: str
    n: int
    k: int
    setting: Setting
    missing: str = ""
    temperature: float | None = None
    recall: float | None = None
    on_topk: float | None = None
    entropy: float | None = None
    nccs: float | None = None
    gradient_norm: float | None = None
    usable: float | None = None
    forward: float | None = None
    backward: float | None = None
    forward_bytes: int | None = None
    backward_bytes: int | None = None


@dataclass(frozen=True)
class Comparison:
    """All records, and where, when and how they were made.

    Args:
        created: date and time.
        origin: machine, versions and commit.
        options: the options of the comparison.
        cells: the cases.
        records: the results, by case, operator and setting.
        chance: by case, the nCCS of k randomly chosen vectors.
        softmax: by case, the seconds of `torch.softmax`.
        others: how many cores other processes used meanwhile.
    """

    created: str
    origin: str
    options: Options
    cells: tuple[Cell, ...]
    records: tuple[Record, ...]
    chance: tuple[float, ...]
    softmax: tuple[float, ...]
    others: float
