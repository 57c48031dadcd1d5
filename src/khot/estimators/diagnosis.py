"""Bias and variance of estimators on a loss, against the exact gradient of each one's own distribution."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, cast

import torch
from torch import Tensor

from khot.estimators._arguments import check_k, check_losses
from khot.estimators._laws import enumerated
from khot.estimators.gradient import gradient_of
from khot.estimators.registry import Estimator, get, names
from khot.relaxations._chunks import at_once
from khot.relaxations._plain_arguments import (
    check_callable,
    check_floating,
    check_generator,
    check_integer,
)

__all__ = ["Diagnosed", "Diagnosis", "diagnose"]

Loss = Callable[[Tensor], Tensor]

_REFERENCE_CHUNK = 1000


@dataclass(frozen=True)
class Diagnosed:
    """The result for one estimator; all lengths are relative to the length of the exact gradient.

    Args:
        estimator: its name and options.
        design: the distribution it samples from, whose exact gradient it is compared with.
        bias: the length of the mean error, corrected for the part that is due to chance.
        noise: the standard error of the bias: a bias below it is not significant.
        variance: the mean squared distance of an estimate from the mean of all estimates.
        cosine: the cosine between the mean estimate and the exact gradient.
        cosine_each: the mean of the cosines between single estimates and the exact gradient.
        reference: how the exact gradient was found: ``enumeration``, or ``long run`` of the score function.
        reference_noise: the standard error of the reference.

    Example:
        >>> found = diagnose(lambda x: x[..., 0], torch.zeros(4), 2, estimators=["simple"], repeats=10)
        >>> found.rows[0].design, found.rows[0].reference
        ('conditional_poisson', 'enumeration')
    """

    estimator: str
    design: str
    bias: float
    noise: float
    variance: float
    cosine: float
    cosine_each: float
    reference: str
    reference_noise: float


@dataclass(frozen=True)
class Diagnosis:
    """The result of :func:`diagnose`: print it, or use ``table()`` or ``plot()``.

    Args:
        rows: one :class:`Diagnosed` for each estimator.
        samples: the number of draws averaged in one estimate.
        repeats: the number of estimates.

    Example:
        >>> f = lambda x: x[..., 0] * x[..., 1]
        >>> found = diagnose(f, torch.zeros(4), 2, estimators=["simple", "reinmax"])
        >>> [row["estimator"] for row in found.table()]
        ['simple', 'reinmax']
    """

    rows: tuple[Diagnosed, ...]
    samples: int
    repeats: int

    def table(self) -> list[dict[str, Any]]:
        """The rows as dictionaries."""
        return [asdict(row) for row in self.rows]

    def __str__(self) -> str:
        """An aligned table."""
        header = ("estimator", "design", "bias", "±", "variance", "cosine", "one's", "reference")
        cells = [
            (
                row.estimator,
                row.design,
                *(f"{v:.3g}" for v in (row.bias, row.noise, row.variance)),
                *(f"{v:.3f}" for v in (row.cosine, row.cosine_each)),
                row.reference,
            )
            for row in self.rows
        ]
        widths = [max(len(line[i]) for line in [header, *cells]) for i in range(len(header))]
        lines = (
            "  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip()
            for line in [header, *cells]
        )
        return "\n".join(lines)

    def plot(self, axes: Any = None) -> Any:
        """Draw bias and standard deviation of each estimator on a logarithmic axis.

        Args:
            axes: matplotlib axes; by default new ones.

        Returns:
            The axes.
        """
        try:
            import matplotlib.pyplot as plt
        except ImportError as error:
            raise ImportError("Diagnosis.plot needs matplotlib: pip install matplotlib") from error
        drawn: Any = plt.subplots(layout="constrained")[1] if axes is None else axes  # pyright: ignore[reportUnknownMemberType]
        places = range(len(self.rows))
        # A bias within its noise is shown at the noise, as a bound: an open mark.
        shown = [max(row.bias, row.noise) for row in self.rows]
        drawn.scatter(
            [math.sqrt(row.variance) for row in self.rows],
            places,
            marker="|",
            s=120,
            label="standard deviation",
        )
        colours = ["C1" if row.bias > 2 * row.noise else "none" for row in self.rows]
        drawn.scatter(shown, places, color=colours, edgecolors="C1", label="bias (open: within its noise)")
        drawn.set_xscale("log")
        drawn.set_yticks(list(places), [row.estimator for row in self.rows])
        drawn.invert_yaxis()
        drawn.set_xlabel(f"in units of the exact gradient; {self.samples} samples for an estimate")
        drawn.grid(axis="x", alpha=0.3)
        drawn.legend(fontsize="small")
        return drawn


def diagnose(
    f: Loss,
    scores: Tensor,
    k: int,
    *,
    estimators: Iterable[str | Estimator] | Mapping[str, str | Estimator] | None = None,
    samples: int = 4,
    repeats: int = 1000,
    reference_samples: int = 100_000,
    generator: torch.Generator | None = None,
) -> Diagnosis:
    r"""Measure bias, variance and direction of gradient estimators on a loss.

    .. math:: \text{bias} = \frac{\lVert \mathbb{E}\,\hat g - g \rVert}{\lVert g \rVert}, \quad
        \text{variance} = \frac{\mathbb{E}\,\lVert \hat g - \mathbb{E}\,\hat g \rVert^2}{\lVert g \rVert^2},
        \quad g = \nabla_\theta\, \mathbb{E} f(x)

    g is exact, by enumeration, if the distribution has a closed form and at most 20000 sets. Otherwise it is
    a long run of the unbiased score function, whose own error is reported. Each estimator is compared with
    the gradient of its *own* distribution: at the same scores, designs and Plackett–Luce differ.

    Cost: ``samples`` × ``repeats`` evaluations of the loss for each estimator, and the reference.

    Args:
        f: the loss, (…, n) → (…), in the dtype of ``scores``.
        scores: a vector of length n.
        k: how many to draw.
        estimators: names, or estimators from :func:`get`, or a mapping from labels to them, at least one; by
            default all.
        samples: the number of draws averaged in one estimate. It is the same for all estimators, so that all
            call ``f`` equally often.
        repeats: the number of estimates to make.
        reference_samples: the number of draws in a long run.
        generator: source of randomness; by default torch's global generator.

    Returns:
        A :class:`Diagnosis`.

    Example:
        >>> f = lambda x: (x.cumsum(-1) ** 2).sum(-1)
        >>> seeded = torch.Generator().manual_seed(0)
        >>> both = ["simple", "reinmax"]
        >>> found = diagnose(f, torch.linspace(-1, 1, 6), 3, estimators=both, generator=seeded)
        >>> [row.bias > 2 * row.noise for row in found.rows]  # reinmax is exact for this f
        [True, False]

    Reference: Ahmed, Zeng, Niepert & Van den Broeck (2023), whose toy experiment this generalises.
    """
    name = "diagnose"
    check_callable(name, "f", f)
    check_floating(name, "scores", scores)
    if scores.dim() != 1:
        raise ValueError(f"{name}: scores must be a vector, got shape {tuple(scores.shape)}")
    check_k(name, scores, k, 0)
    k = int(k)
    chosen = _labelled(name, estimators)
    check_integer(name, "samples", samples, 2 if any(each.needs_losses for each in chosen.values()) else 1)
    check_integer(name, "repeats", repeats, 2)
    check_integer(name, "reference_samples", reference_samples, 2 * _REFERENCE_CHUNK)
    check_generator(name, generator)
    references: dict[str, tuple[Tensor, float]] = {}
    rows: list[Diagnosed] = []
    for label, estimator in chosen.items():
        design = estimator.design
        if design not in references:
            references[design] = _reference(f, scores, k, design, reference_samples, generator)
        estimates = _estimates(f, scores, k, estimator, samples, repeats, generator)
        rows.append(_compared(label, design, estimates, *references[design]))
    return Diagnosis(tuple(rows), samples, repeats)


def _labelled(
    name: str, estimators: Iterable[str | Estimator] | Mapping[str, str | Estimator] | None
) -> dict[str, Estimator]:
    if isinstance(estimators, Mapping):
        given = cast("Mapping[str, str | Estimator]", estimators)
        chosen = {label: get(e, name) for label, e in given.items()}
    else:
        if isinstance(estimators, str) or not isinstance(estimators, Iterable | None):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(
                f"{name}: estimators must be several names or estimators, or a mapping from labels to them, "
                f"got {estimators!r}"
            )
        made = [get(e, name) for e in (names() if estimators is None else estimators)]
        chosen = {str(e): e for e in made}
    if not chosen:
        raise ValueError(f"{name}: estimators must be at least one, or None for all, got {estimators!r}")
    return chosen


def _estimates(
    f: Loss,
    scores: Tensor,
    k: int,
    estimator: Estimator,
    samples: int,
    repeats: int,
    generator: torch.Generator | None,
) -> Tensor:
    """Gradients (repeats, n) in float64."""
    size = at_once(samples * scores.numel())
    parts: list[Tensor] = []
    for first in range(0, repeats, size):
        rows = scores.expand(min(size, repeats - first), -1)
        parts.append(gradient_of("diagnose", f, rows, k, estimator, samples, generator).double())
    return torch.cat(parts)


def _reference(
    f: Loss, scores: Tensor, k: int, design: str, draws: int, generator: torch.Generator | None
) -> tuple[Tensor, float]:
    """The gradient of the expectation, and its standard error: 0 if it is exact."""
    with torch.enable_grad():
        leaf = scores.detach().double().requires_grad_()
        found = enumerated(design, leaf, k)
        if found is not None:
            sets, probabilities = found
            losses = f(sets.to(scores.dtype))
            check_losses("diagnose", losses, sets.shape[:-1])
            losses = losses.detach().double()
            # Less their mean, which changes nothing but rounding: a constant loss has gradient 0.
            expected = (probabilities * (losses - losses.mean())).sum()
            return torch.autograd.grad(expected, leaf)[0], 0.0
    chunks = draws // _REFERENCE_CHUNK
    run = get("score_function", design=design)
    parts = torch.stack(
        [
            gradient_of("diagnose", f, scores, k, run, _REFERENCE_CHUNK, generator).double()
            for _ in range(chunks)
        ]
    )
    return parts.mean(0), float((parts.var(0).sum() / chunks).sqrt())


def _compared(label: str, design: str, estimates: Tensor, exact: Tensor, exact_noise: float) -> Diagnosed:
    mean, spread = estimates.mean(0), float(estimates.var(0).sum())
    scale = float(exact.square().sum().sqrt()) or 1.0
    by_chance = spread / len(estimates) + exact_noise**2
    squared = float((mean - exact).square().sum()) - by_chance
    cosine = torch.nn.functional.cosine_similarity
    return Diagnosed(
        estimator=label,
        design=design,
        bias=math.sqrt(max(squared, 0.0)) / scale,
        noise=math.sqrt(by_chance) / scale,
        variance=spread / scale**2,
        cosine=float(cosine(mean, exact, dim=0)),
        cosine_each=float(cosine(estimates, exact.unsqueeze(0), dim=1).mean()),
        reference="long run" if exact_noise else "enumeration",
        reference_noise=exact_noise / scale,
    )
