"""Calls of operators with arguments of every kind, right ones, or with one that must be refused."""

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

INF, NAN = math.inf, math.nan
BATCHES = [(), (1,), (3,), (2, 3), (0,), (2, 1, 2)]
LENGTHS = [1, 2, 3, 4, 5, 6, 7, 9, 12, 0, 17, 33, 64, 130, 300]
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
LAYOUTS = ["plain", "moved", "expanded", "strided", "offset"]
TEMPERATURES = [1.0, 0.1, 10.0, 1e-3, 1e-8, 1e8, 1.2e-38, 3e38]


def _strewn(x: Tensor, values: list[float], share: float, generator: torch.Generator) -> Tensor:
    """Some of the entries replaced by one of these values each."""
    chosen = torch.tensor(values, dtype=x.dtype)[torch.randint(len(values), x.shape, generator=generator)]
    return torch.where(torch.rand(x.shape, generator=generator) < share, chosen, x)


VALUES = {
    "normal": lambda x, largest, g: x,
    "close": lambda x, largest, g: 1e-3 * x,
    "wide": lambda x, largest, g: 1e4 * x,
    "huge": lambda x, largest, g: largest / 8 * x.clamp(-4, 4),
    "shifted": lambda x, largest, g: x + 1e4,
    "heavy tails": lambda x, largest, g: 50 * torch.tan(1.5 * x.clamp(-1, 1)),
    "ties": lambda x, largest, g: x.round(),
    "equal": lambda x, largest, g: torch.zeros_like(x),
    "two levels": lambda x, largest, g: 30.0 * (x > 0).double(),
    "both ends": lambda x, largest, g: largest * torch.where(x > 0.5, 1.0, -1.0).double(),
    "subnormal": lambda x, largest, g: x / largest / 4,
    "excluded": lambda x, largest, g: _strewn(x, [-INF], 0.4, g),
    "infinite": lambda x, largest, g: _strewn(x, [-INF, INF], 0.4, g),
    "all excluded": lambda x, largest, g: torch.full_like(x, -INF),
    "NaN": lambda x, largest, g: _strewn(x, [NAN, INF], 0.1, g),
}


@dataclass
class Problem:
    """Arguments by name, and what is known of them.

    Attributes:
        arguments: scores, k, temperature, dim, mask and largest.
        wrong: the argument that must be refused, or None.
        budgets: k of each row, float64 in the shape of the batch.
        least: the smallest temperature.
        kind: what the scores are.
        seed: for whatever else is drawn.
    """

    arguments: dict[str, Any]
    wrong: str | None
    budgets: Tensor
    least: float
    kind: str
    seed: int
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def scores(self) -> Tensor:
        return self.arguments["scores"]

    @property
    def dim(self) -> int:
        return self.arguments["dim"]

    def rows(self) -> Tensor:
        """The scores as the operators see them, float64 with the selected dimension last."""
        x = self.scores.detach().double()
        x = x if self.arguments["largest"] else -x
        if self.arguments["mask"] is not None:
            x = x.masked_fill(~self.arguments["mask"], -INF)
        return x.movedim(self.dim, -1)

    def without(self, *names: str) -> dict[str, Any]:
        return {name: value for name, value in self.arguments.items() if name not in names}

    @property
    def whole(self) -> bool:
        """Whether k is an integer, in every row if it is a tensor."""
        k = self.arguments["k"]
        if self.wrong == "k" or isinstance(k, Tensor):
            return torch.equal(self.budgets, self.budgets.round())
        return k == int(k)

    def asked_hard(self) -> bool:
        """Makes it a call with hard=True: a tensor k is rounded, a number that is not whole must be refused.

        False if another argument is wrong besides.
        """
        if not self.whole and not isinstance(self.arguments["k"], Tensor):
            if self.wrong is not None:
                return False
            self.wrong = "k"
        self.budgets = self.budgets.round()
        return True

    def generator(self) -> torch.Generator:
        return torch.Generator().manual_seed(self.seed)


def _laid_out(x: Tensor, layout: str, place: int) -> Tensor:
    """The same values, the last dimension moved, in memory of some form."""
    if layout == "expanded" and x.dim() > 1 and x.numel():
        x = x[:1].expand(x.shape)
    if layout == "strided":
        x = torch.stack([x, x + 1], -1).flatten(-2)[..., ::2]
    if layout == "offset":
        x = torch.cat([x.new_zeros(1), x.flatten()])[1:].view(x.shape)
    if layout == "moved":
        return x.movedim(-1, place)
    return x.movedim(-1, place).contiguous() if layout == "plain" else x.movedim(-1, place)


def _budgets(draw: Any, n: int, batch: tuple[int, ...], real: bool, per_row: bool) -> tuple[Any, Tensor]:
    """A budget in one of its forms, and its value for each row."""
    whole = draw(st.sampled_from([0, 1, 2, n // 2, n - 1, n]).map(lambda k: min(max(k, 0), n)))
    k = (
        min(whole + draw(st.sampled_from([0.0, 0.5, 1e-6, 0.9])), n)
        if real and draw(st.booleans())
        else whole
    )
    forms: list[Any] = (
        [int, int, np.int64, np.uint8, float, np.float32] if k == whole else [float, np.float64]
    )
    form = draw(st.sampled_from([*forms, *(["number", "row"] if per_row else [])]))
    if form == "number":
        value = torch.tensor(k, dtype=draw(st.sampled_from([torch.float64, torch.float32])))
        return value, value.double().clamp_max(n).expand(batch)
    if form == "row":
        other = min(k + 1, n)
        chosen = torch.rand(batch, generator=torch.Generator().manual_seed(n)) < 0.5
        value = torch.where(chosen, float(k), float(other))
        value = value if real or not draw(st.booleans()) else value.long()
        return value, value.double()
    value = form(k) if n < 256 or form is not np.uint8 else k
    return value, torch.full(batch, float(value), dtype=torch.float64)


def _temperatures(draw: Any, batch: tuple[int, ...]) -> tuple[Any, float]:
    t = draw(st.sampled_from(TEMPERATURES))
    form = draw(st.sampled_from(["float", "float", "float", "numpy", "number", "row", "int"]))
    if form == "int":
        return 1, 1.0
    if form == "numpy":
        return np.float32(t), t
    if form == "number":
        return torch.tensor(t), t
    if form == "row":
        return torch.full(batch, t, dtype=torch.float64), t
    return t, t


def _masks(draw: Any, scores: Tensor, dim: int, seed: int) -> Tensor | None:
    form = draw(st.sampled_from(["none", "none", "random", "nobody", "all", "one for all rows", "one"]))
    generator = torch.Generator().manual_seed(seed + 1)
    if form == "none":
        return None
    if form == "one for all rows":
        shape = [1] * scores.dim()
        shape[dim] = scores.shape[dim]
        return torch.rand(shape, generator=generator) < 0.6
    if form == "one":
        return torch.tensor(True)
    return torch.rand(scores.shape, generator=generator) < {"random": 0.6, "nobody": 0.0, "all": 1.1}[form]


def _spoiled(draw: Any, arguments: dict[str, Any], n: int) -> str | None:
    """Replaces one argument by one that must be refused; returns which."""
    wrong = draw(st.sampled_from([None] * 4 + ["k", "temperature", "mask", "dim", "scores"]))
    if wrong not in arguments:
        return None
    x = arguments["scores"]
    choices = {
        "k": [
            -1,
            n + 1,
            NAN,
            INF,
            True,
            "2",
            None,
            1j,
            [1],
            torch.tensor(True),
            torch.tensor(-1.0),
            torch.ones(7),
        ],
        "temperature": [
            0,
            0.0,
            -1.0,
            NAN,
            INF,
            True,
            "1",
            None,
            1j,
            torch.tensor(0.0),
            torch.ones(7),
            torch.tensor(1j),
        ],
        "mask": [torch.ones(x.shape), [True], 1, torch.ones((2,) * 6, dtype=torch.bool), "mask"],
        "dim": [x.dim(), -x.dim() - 1, 1.0, None, True, "0"],
        "scores": [
            x.detach().nan_to_num(0, 0, 0).long(),
            x.detach() > 0,
            x.detach().to(torch.complex64),
            None,
            x.detach().float().numpy(),
            torch.tensor(1.0),
            [1.0, 2.0],
        ],
    }[wrong]
    arguments[wrong] = choices[draw(st.integers(0, len(choices) - 1))]
    return wrong


@st.composite
def problems(
    draw: Any,
    *,
    real_k: bool = False,
    per_row: bool = True,
    longest: int = 300,
    least_n: int = 0,
    spoil: bool = True,
    kinds: Any = tuple(VALUES),
) -> Problem:
    """Scores of any shape, memory, type and values, with everything that is passed beside them."""
    batch = draw(st.sampled_from(BATCHES))
    n = max(min(draw(st.sampled_from(LENGTHS)), longest), least_n)
    dtype = draw(st.sampled_from(DTYPES))
    kind, seed = draw(st.sampled_from(sorted(kinds))), draw(st.integers(0, 2**16))
    generator = torch.Generator().manual_seed(seed)
    largest = torch.finfo(dtype).max
    x = torch.randn((*batch, n), generator=generator, dtype=torch.float64)
    x = VALUES[kind](x, largest, generator)
    x = torch.where(x.isfinite(), x.clamp(-largest, largest), x).to(dtype)
    place = draw(st.integers(0, len(batch)))
    x = _laid_out(x, draw(st.sampled_from(LAYOUTS)), place)
    k, budgets = _budgets(draw, n, batch, real_k, per_row)
    temperature, least = _temperatures(draw, batch)
    arguments = {
        "scores": x.requires_grad_() if draw(st.booleans()) else x,
        "k": k,
        "temperature": temperature,
        "dim": place if draw(st.booleans()) else place - x.dim(),
        "mask": _masks(draw, x, place, seed),
        "largest": draw(st.booleans()),
    }
    wrong = _spoiled(draw, arguments, n) if spoil else None
    return Problem(arguments, wrong, budgets, least, kind, seed)
