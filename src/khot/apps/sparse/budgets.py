r"""How many weights each layer keeps: the same share of each, or a larger share of thin layers.

``"uniform"``: :math:`k_l = \mathrm{round}(d\, n_l)`. ``"erk"``, Erdős–Rényi-kernel:

.. math:: d_l = \min\Bigl(1, \varepsilon\, \frac{\sum_i \text{shape}_{l,i}}{\prod_i \text{shape}_{l,i}}\Bigr),

with ε such that all layers together keep :math:`\mathrm{round}(d \sum_l n_l)`; counts are rounded by largest
remainders, so that this sum is exact.

Reference: Mocanu et al. (2018), arXiv:1707.04780; Evci, Gale, Menick, Castro & Elsen (2020), Rigging the
Lottery, arXiv:1911.11134.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, get_args

from khot.relaxations._plain_arguments import check_choice, is_integer, is_number

__all__ = ["Distribution", "check_density", "check_distribution", "layer_budgets"]

Distribution = Literal["uniform", "erk"]


def layer_budgets(
    shapes: Sequence[Sequence[int]], density: float, distribution: Distribution = "uniform"
) -> list[int]:
    """How many weights each of several layers keeps.

    Args:
        shapes: the shapes of the weights.
        density: the share of all weights to keep, in [0, 1].
        distribution: ``"uniform"`` keeps this share of each layer, ``"erk"`` more of thin layers and less of
            wide ones, with the same total.

    Returns:
        The number of weights for each layer.

    Example:
        >>> layer_budgets([(300, 784), (100, 300), (10, 100)], 0.05)
        [11760, 1500, 50]
        >>> layer_budgets([(300, 784), (100, 300), (10, 100)], 0.05, "erk")
        [9051, 3340, 919]
        >>> sum(layer_budgets([(300, 784), (100, 300), (10, 100)], 0.05, "erk")) == round(0.05 * 266200)
        True

    Reference: Mocanu et al. (2018), arXiv:1707.04780; Evci et al. (2020), arXiv:1911.11134, for ``"erk"``.
    """
    name = "layer_budgets"
    check_density(name, "density", density)
    check_distribution(name, distribution)
    shaped = all(isinstance(shape, Sequence) for shape in shapes)  # pyright: ignore[reportUnnecessaryIsInstance]
    if not shaped or not all(is_integer(side) and side >= 0 for shape in shapes for side in shape):
        raise ValueError(f"{name}: shapes must be those of weights, integers of at least 0, got {shapes!r}")
    sizes = [math.prod(shape) for shape in shapes]
    if distribution == "uniform":
        return [round(density * size) for size in sizes]
    return _whole(_erdos_renyi(shapes, sizes, round(density * sum(sizes))), sizes)


def check_density(name: str, argument: str, density: Any) -> None:
    """Check that the density is a number in [0, 1]."""
    if not is_number(density):
        raise TypeError(f"{name}: {argument} must be a number, got {density!r}")
    if not 0 <= density <= 1:
        raise ValueError(f"{name}: {argument} must be in [0, 1], got {density}")


def check_distribution(name: str, distribution: object) -> None:
    """Check that the distribution is a known one."""
    check_choice(name, "distribution", distribution, get_args(Distribution))


def _erdos_renyi(shapes: Sequence[Sequence[int]], sizes: Sequence[int], total: int) -> list[float]:
    """Real-valued counts: ε times the sum of a layer's sizes, or all of a layer that would exceed itself."""
    dense: set[int] = set()
    while True:
        rest = [i for i in range(len(sizes)) if i not in dense]
        left = total - sum(sizes[i] for i in dense)
        epsilon = left / max(sum(sum(shapes[i]) for i in rest), 1)
        full = {i for i in rest if epsilon * sum(shapes[i]) > sizes[i]}
        if not full:
            return [float(sizes[i]) if i in dense else epsilon * sum(shapes[i]) for i in range(len(sizes))]
        dense |= full


def _whole(counts: Sequence[float], sizes: Sequence[int]) -> list[int]:
    """Integers with the same sum, by largest remainders."""
    floors = [min(math.floor(count), size) for count, size in zip(counts, sizes, strict=True)]
    missing = round(sum(counts)) - sum(floors)
    order = sorted(range(len(counts)), key=lambda i: floors[i] - counts[i])
    for i in order[:missing]:
        floors[i] += 1
    return floors
