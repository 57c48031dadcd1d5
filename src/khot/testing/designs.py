"""The contract of sampling designs: what is claimed, against enumeration and against draws.

Statistical checks have fixed seeds and raise a false alarm with probability `LEVEL` each; the χ² test on how
often each *set* is drawn is the one that tells designs with equal inclusion probabilities apart.
"""

# torch.special has no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from khot.designs import KHotDistribution
from khot.relaxations import sigmoid_topk
from khot.testing.requirements import require, require_close, scores

__all__ = ["CHECKS", "check_design"]

Make = Callable[..., KHotDistribution]
"""What is checked: called with k and ``probs=`` or ``logits=``, most often a class."""

LEVEL = 1e-6
_DRAWS = 50_000
_SIZES = ((1, 1), (2, 1), (4, 2), (5, 1), (5, 4), (6, 3))


def check_design(design: Make) -> None:
    """Run the contract on a design.

    What raises ``NotImplementedError`` is not held against it, as long as the error says something.

    Args:
        design: a class of :mod:`khot.designs` or your own, or a function with the same arguments.

    Raises:
        ContractError: it does not do what it claims; the message says what, where and by how much.

    Example:
        >>> from khot.designs import SequentialPivotal
        >>> check_design(SequentialPivotal)
    """
    for check in CHECKS:
        check(design)


def check_exactly_k(design: Make) -> None:
    """Zeros and ones, k of them ones, in every shape and dtype; the indices are those of the ones."""
    for n, k in (*_SIZES, (3, 0), (3, 3), (400, 37)):
        for dtype in (torch.float32, torch.float64):
            made = design(k, logits=scores(2, n, dtype=dtype))
            x = made.sample((3,), generator=_seeded())
            where = f"n = {n}, k = {k}, {dtype}"
            require(x.shape == (3, 2, n), f"{where}: sample has shape {tuple(x.shape)}")
            require(x.dtype == dtype, f"{where}: sample has dtype {x.dtype}")
            require(((x == 0) | (x == 1)).all(), f"{where}: a sample is not 0 or 1")
            require((x.sum(-1) == k).all(), f"{where}: a sample has {x.sum(-1).unique().tolist()} ones")
            indices = made.sample_indices((3,), generator=_seeded())
            require(indices.shape == (3, 2, k), f"{where}: indices have shape {tuple(indices.shape)}")
            one_hot = torch.zeros(3, 2, n).scatter(-1, indices, 1.0)
            require((one_hot.sum(-1) == k).all(), f"{where}: an index is drawn twice")


def check_seeds(design: Make) -> None:
    """All randomness comes from the generator."""
    made = design(20, logits=scores(60))
    first, again, other = (made.sample((5,), generator=_seeded(seed)) for seed in (1, 1, 2))
    require(torch.equal(first, again), "one seed gives two samples")
    require(not torch.equal(first, other), "two seeds give one sample")


def check_settled_units(design: Make) -> None:
    """π = 1 is always drawn, π = 0 never."""
    pi = torch.tensor([1.0, 0.5, 0.0, 0.25, 0.25, 1.0], dtype=torch.float64)
    x = design(3, probs=pi).sample((200,), generator=_seeded())
    require((x[:, pi == 1] == 1).all(), "a unit with probability 1 is not drawn")
    require((x[:, pi == 0] == 0).all(), "a unit with probability 0 is drawn")


def check_inclusion(design: Make) -> None:
    """Units are drawn as often as ``mean`` says, and ``mean`` is π if inclusion is exact."""
    for n, k in _SIZES:
        pi = sigmoid_topk(scores(n), k)
        made = design(k, probs=pi)
        if made.exact_inclusion:
            require_close(made.mean, pi, 1e-9, f"n = {n}, k = {k}: mean, with exact inclusion,")
        variance = (made.mean * (1 - made.mean)).clamp_min(1e-12)
        away = (made.sample((_DRAWS,), generator=_seeded()).mean(0) - made.mean).abs()
        worst = (away / (variance / _DRAWS).sqrt()).max().item()
        bound = -torch.special.ndtri(torch.tensor(LEVEL / (2 * n), dtype=torch.float64)).item()
        require(worst <= bound, f"n = {n}, k = {k}: a unit's share is {worst:.1f} standard errors off")


def check_enumeration(design: Make) -> None:
    """``log_prob`` sums to 1; ``mean``, ``joint_inclusion``, ``entropy`` and ``mode`` are what it implies."""
    for n, k in _SIZES:
        made = design(k, probs=sigmoid_topk(scores(n), k))
        sets = made.enumerate_support()
        log_prob = _given(lambda made=made, sets=sets: made.log_prob(sets))
        if log_prob is None:
            return
        p, where = log_prob.exp(), f"n = {n}, k = {k}"
        require_close(p.sum(), torch.ones_like(p.sum()), 1e-9, f"{where}: total probability")
        require_close(p @ sets, made.mean, 1e-9, f"{where}: mean")
        joint = _given(lambda made=made: made.joint_inclusion)
        if joint is not None:
            require_close(joint, sets.T @ (p.unsqueeze(-1) * sets), 1e-8, f"{where}: joint inclusion")
        entropy = _given(made.entropy)
        if entropy is not None:
            require_close(entropy, torch.special.entr(p).sum(), 1e-8, f"{where}: entropy")
        mode = _given(lambda made=made: made.mode)
        if mode is not None:
            short = (p.max() - made.log_prob(mode).exp()).item()
            require(short <= 1e-9, f"{where}: the mode is less likely than another set, by {short:.3g}")


def check_frequencies(design: Make) -> None:
    """Sets are drawn as often as ``log_prob`` says, by a χ² test."""
    for n, k in ((4, 2), (6, 3)):
        made = design(k, probs=sigmoid_topk(scores(n), k))
        sets = made.enumerate_support()
        log_prob = _given(lambda made=made, sets=sets: made.log_prob(sets))
        if log_prob is None:
            return
        place = 2.0 ** torch.arange(n, dtype=sets.dtype)
        drawn = made.sample((_DRAWS,), generator=_seeded()) @ place
        observed = (drawn.unsqueeze(-1) == sets @ place).sum(0).double()
        expected = log_prob.exp().double() * _DRAWS
        require((observed[expected == 0] == 0).all(), f"n = {n}, k = {k}: an impossible set is drawn")
        likely = expected > 5
        statistic = ((observed - expected).square() / expected)[likely].sum()
        degrees = max(int(likely.sum()) - 1, 1)
        p_value = torch.special.gammaincc(torch.tensor(degrees / 2.0).double(), statistic / 2).item()
        require(p_value > LEVEL, f"n = {n}, k = {k}: sets are not drawn as log_prob says, p = {p_value:.1g}")


def check_score(design: Make) -> None:
    """``log_prob`` has the gradient of its differences, in the logits."""
    x = torch.tensor([1.0, 0.0, 1.0, 0.0, 1.0], dtype=torch.float64)
    theta = scores(5, seed=3)
    if _given(lambda: design(3, logits=theta).log_prob(x)) is None:
        return

    def log_prob(logits: Tensor) -> Tensor:
        return design(3, logits=logits).log_prob(x)

    if log_prob(theta).item() == -math.inf:
        return
    (gradient,) = torch.autograd.grad(log_prob(theta.requires_grad_()), theta)
    step = 1e-6 * torch.eye(5, dtype=torch.float64)
    with torch.no_grad():
        slopes = [(log_prob(theta + d) - log_prob(theta - d)) / 2e-6 for d in step]
    require_close(gradient, torch.stack(slopes), 1e-6, "gradient of log_prob")


def check_misuse(design: Make) -> None:
    """Probabilities that do not sum to k, and k beyond n, are errors."""
    for arguments, what in (
        ({"k": 2, "probs": torch.tensor([0.5, 0.5, 0.5])}, "probs with sum 1.5 for k = 2"),
        ({"k": 4, "logits": torch.zeros(3)}, "k = 4 of n = 3"),
    ):
        try:
            design(**arguments)
        except ValueError:
            continue
        require(False, f"{what}: taken without an error")


def _seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _given(call: Callable[[], Tensor]) -> Tensor | None:
    """The result, or None if the design does not have it and says so."""
    try:
        return call()
    except NotImplementedError as error:
        require(bool(str(error)), "NotImplementedError without a word on what to use instead")
        return None


CHECKS: tuple[Callable[[Make], None], ...] = (
    check_exactly_k,
    check_seeds,
    check_settled_units,
    check_inclusion,
    check_enumeration,
    check_frequencies,
    check_score,
    check_misuse,
)
