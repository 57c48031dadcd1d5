"""The contract of sampling designs: their claims are checked by enumeration and by drawing.

Statistical checks have fixed seeds; each has a false-alarm probability of `LEVEL`. The χ² test on how often
each *set* is drawn tells designs with equal inclusion probabilities apart.
"""

# torch.special has no types.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import torch
from torch import Tensor

from khot.designs import KHotDistribution
from khot.relaxations import sigmoid_topk
from khot.testing.requirements import require, require_close, scores

__all__ = ["CHECKS", "check_design"]

Make = Callable[..., KHotDistribution]
"""What is checked: called with k and ``probs=`` or ``scores=``, most often a class.

One whose ``parameters`` are ``logits`` alone is called with those: scores, or the logarithms of π.
"""

LEVEL = 1e-6
_DRAWS = 50_000
_SIZES = ((1, 1), (2, 1), (4, 2), (5, 1), (5, 4), (6, 3))
_NOTHING_OR_ALL = ((1, 0), (3, 0), (3, 3))


def check_design(design: Make) -> None:
    """Run the contract on a design.

    A method may raise ``NotImplementedError`` if its message is not empty.

    Args:
        design: a class of :mod:`khot.designs` or your own, or a function with the same arguments.

    Raises:
        ContractError: if the design does not do what it claims; the message says what, where and by how much.

    Example:
        >>> from khot.designs import SequentialPivotal
        >>> check_design(SequentialPivotal)
    """
    for check in CHECKS:
        check(design)


def check_exactly_k(design: Make) -> None:
    """Zeros and ones, k of them ones, in every shape and dtype; the indices are those of the ones."""
    for n, k in (*_SIZES, *_NOTHING_OR_ALL, (400, 37)):
        for dtype in (torch.float32, torch.float64):
            made = _by_scores(design, k, scores(2, n, dtype=dtype))
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
    made = _by_scores(design, 20, scores(60))
    first, again, other = (made.sample((5,), generator=_seeded(seed)) for seed in (1, 1, 2))
    require(torch.equal(first, again), "one seed gives two samples")
    require(not torch.equal(first, other), "two seeds give one sample")


def check_settled_units(design: Make) -> None:
    """π = 1 is always drawn, π = 0 never."""
    pi = torch.tensor([1.0, 0.5, 0.0, 0.25, 0.25, 1.0], dtype=torch.float64)
    x = _by_probs(design, 3, pi).sample((200,), generator=_seeded())
    require((x[:, pi == 1] == 1).all(), "a unit with probability 1 is not drawn")
    require((x[:, pi == 0] == 0).all(), "a unit with probability 0 is drawn")


def check_inclusion(design: Make) -> None:
    """Units are drawn as often as ``mean`` says, and ``mean`` is π if inclusion is exact."""
    for n, k in _SIZES:
        pi = sigmoid_topk(scores(n), k)
        made = _by_probs(design, k, pi)
        if made.exact_inclusion:
            require_close(made.mean, pi, 1e-9, f"n = {n}, k = {k}: mean, with exact inclusion,")
        variance = (made.mean * (1 - made.mean)).clamp_min(1e-12)
        away = (made.sample((_DRAWS,), generator=_seeded()).mean(0) - made.mean).abs()
        worst = (away / (variance / _DRAWS).sqrt()).max().item()
        bound = -torch.special.ndtri(torch.tensor(LEVEL / (2 * n), dtype=torch.float64)).item()
        require(worst <= bound, f"n = {n}, k = {k}: a unit's share is {worst:.1f} standard errors off")


def check_enumeration(design: Make) -> None:
    """``log_prob`` sums to 1; ``mean``, ``joint_inclusion``, ``entropy`` and ``mode`` are what it implies."""
    for n, k in (*_SIZES, *_NOTHING_OR_ALL):
        made = _by_probs(design, k, sigmoid_topk(scores(n), k))
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
        made = _by_probs(design, k, sigmoid_topk(scores(n), k))
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
    """The gradient of ``log_prob`` in the scores agrees with finite differences."""
    x = torch.tensor([1.0, 0.0, 1.0, 0.0, 1.0], dtype=torch.float64)
    theta = scores(5, seed=3)
    if _given(lambda: _by_scores(design, 3, theta).log_prob(x)) is None:
        return

    def log_prob(at: Tensor) -> Tensor:
        return _by_scores(design, 3, at).log_prob(x)

    if log_prob(theta).item() == -math.inf:
        return
    (gradient,) = torch.autograd.grad(log_prob(theta.requires_grad_()), theta)
    step = 1e-6 * torch.eye(5, dtype=torch.float64)
    with torch.no_grad():
        slopes = [(log_prob(theta + d) - log_prob(theta - d)) / 2e-6 for d in step]
    require_close(gradient, torch.stack(slopes), 1e-6, "gradient of log_prob")


def check_range(design: Make) -> None:
    """Probabilities lie in [0, 1], and joint ones within the bounds given by π, despite rounding."""
    sizes = ((n, k) for n in range(4, 9) for k in range(1, n, 3))
    for (n, k), argument in itertools.product(sizes, _unbounded(design)):
        made = design(k, **{argument: 30 * scores(4, n, seed=n + k)})
        pi, where = made.mean, f"n = {n}, k = {k}, {argument} of standard deviation 30"
        for what, value in (("mean", pi), ("probs", made.probs)):
            require(((value >= 0) & (value <= 1)).all(), f"{where}: {what} is outside of [0, 1]: {value}")
        require(made.stddev.isfinite().all(), f"{where}: the standard deviation is {made.stddev}")
        joint = _given(lambda made=made: made.joint_inclusion)
        if joint is not None:
            one, other = pi.unsqueeze(-1), pi.unsqueeze(-2)
            least, most = one + other - 1, torch.minimum(one, other)
            require((joint >= 0).all() and (joint <= most).all(), f"{where}: π_ij is outside of [0, π_i]")
            require((joint >= least - 1e-6).all(), f"{where}: π_ij is less than π_i + π_j − 1")


def check_graph(design: Make) -> None:
    """Everything that depends on scores with a gradient has one too: backward() works for any k."""
    for (n, k), argument in itertools.product(((4, 2), *_NOTHING_OR_ALL), _unbounded(design)):
        theta = scores(n).requires_grad_()
        made = design(k, **{argument: theta})
        x = made.sample(generator=_seeded())
        require(not x.requires_grad, f"n = {n}, k = {k}: a sample has a gradient")
        for what, call in (
            ("probs", lambda made=made: made.probs),
            ("mean", lambda made=made: made.mean),
            ("variance", lambda made=made: made.variance),
            ("joint_inclusion", lambda made=made: made.joint_inclusion),
            ("log_prob", lambda made=made, x=x: made.log_prob(x)),
            ("entropy", made.entropy),
        ):
            found = _given(call)
            if found is None:
                continue
            require(found.requires_grad, f"n = {n}, k = {k}: {what} has no graph")
            (gradient,) = torch.autograd.grad(found.sum(), theta, retain_graph=True)
            require(gradient.isfinite().all(), f"n = {n}, k = {k}: the gradient of {what} is {gradient}")


def check_few_allowed(design: Make) -> None:
    """If k or fewer units are above −inf, exactly these are drawn."""
    for argument in _unbounded(design):
        x = scores(4, 5)
        for row, allowed in enumerate((5, 3, 2, 0)):
            x[row, allowed:] = -math.inf
        _check_few_allowed(design(3, **{argument: x.requires_grad_()}), x, 3)


def _check_few_allowed(made: KHotDistribution, x: Tensor, k: int) -> None:
    drawn = (x > -math.inf).double()
    sample = made.sample((20,), generator=_seeded())
    require((sample[:, 0].sum(-1) == k).all(), "a row beside short ones has not k ones")
    require((sample[:, 1:] == drawn[1:]).all(), "a row with k units to draw or fewer is not drawn whole")
    require((made.mean[1:] == drawn[1:]).all(), "the mean of a row that is drawn whole is not 1 and 0")
    require((made.variance[1:] == 0).all(), "the variance of a row that is drawn whole is not 0")
    indices = made.sample_indices((20,), generator=_seeded())
    require(indices.shape == (20, 4, k), f"indices have shape {tuple(indices.shape)}")
    for row, size in enumerate((3, 3, 2, 0)):
        least, most = indices[:, row, :size] < 5, indices[:, row, size:] == 5
        require(least.all() and most.all(), f"indices of {size} units are {indices[0, row].tolist()}")
    for what, call, settled in (
        ("log_prob", lambda: made.log_prob(sample[0]), torch.zeros(4)),
        ("entropy", made.entropy, torch.zeros(4)),
        ("mode", lambda: made.mode, drawn),
        ("joint inclusion", lambda: made.joint_inclusion, drawn.unsqueeze(-1) * drawn.unsqueeze(-2)),
    ):
        found = _given(call)
        if found is not None:
            require((found[1:] == settled[1:]).all(), f"{what} of a row that is drawn whole is {found[1:]}")
    (gradient,) = torch.autograd.grad(made.mean.sum(), x)
    require(gradient.isfinite().all(), "the gradient beside rows that are drawn whole is not finite")


def check_misuse(design: Make) -> None:
    """Probabilities that do not sum to k, k beyond n, and more than k logits at +inf are errors."""
    calls: dict[str, Callable[[], KHotDistribution]] = {
        "k = 4 of n = 3": lambda: _by_scores(design, 4, torch.zeros(3)),
    }
    if "logits" in _parameters(design):
        calls["more than k logits at +inf"] = lambda: design(1, logits=torch.full((3,), math.inf))
    if "probs" in _parameters(design):
        wrong = torch.tensor([0.5, 0.5, 0.5])
        calls["probs with sum 1.5 for k = 2"] = lambda: design(2, probs=wrong)
    for what, call in calls.items():
        try:
            call()
        except ValueError:
            continue
        require(False, f"{what}: taken without an error")


def _parameters(design: Make) -> tuple[str, ...]:
    return getattr(design, "parameters", KHotDistribution.parameters)


def _unbounded(design: Make) -> list[str]:
    """The parameters that are any numbers: scores, logits."""
    return [argument for argument in _parameters(design) if argument != "probs"]


def _by_scores(design: Make, k: int, x: Tensor) -> KHotDistribution:
    return design(k, scores=x) if "scores" in _parameters(design) else design(k, logits=x)


def _by_probs(design: Make, k: int, pi: Tensor) -> KHotDistribution:
    if "probs" in _parameters(design):
        return design(k, probs=pi)
    return design(k, logits=torch.where(pi == 1, math.inf, pi.log()))


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
    check_range,
    check_graph,
    check_few_allowed,
    check_misuse,
)
