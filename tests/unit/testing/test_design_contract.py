"""The contract of designs: every design of khot passes, and a broken one is noticed by the check for it."""

import pytest
import torch

import khot
from khot.designs import ConditionalPoisson, PlackettLuce, Systematic, get, names
from khot.testing import ContractError, check_design
from khot.testing.designs import CHECKS


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("name", names())
def test_designs_of_khot(name, check):
    check(get(name))


class OneTooMany(ConditionalPoisson):
    def sample(self, sample_shape=(), generator=None):
        x = super().sample(sample_shape, generator)
        return torch.maximum(x, khot.hard_topk(1 - x, 1))


class Unseeded(ConditionalPoisson):
    def sample(self, sample_shape=(), generator=None):
        return super().sample(sample_shape)


class Gumbel(ConditionalPoisson):
    """Plackett–Luce samples under the name of conditional Poisson ones."""

    def _draw(self, sample_shape, generator):
        return PlackettLuce(int(self.k), logits=self.natural_parameters.detach())._draw(
            sample_shape, generator
        )


class WrongLaw(Systematic):
    """The right inclusion probabilities, but the probabilities of sets of another design."""

    def log_prob(self, value):
        return ConditionalPoisson(int(self.k), probs=self.probs).log_prob(value)


class WrongEntropy(ConditionalPoisson):
    def entropy(self):
        return super().entropy() / 2


class Silent(Systematic):
    def log_prob(self, value):
        raise NotImplementedError


class Approximate(PlackettLuce):
    exact_inclusion = True


class NoGradient(ConditionalPoisson):
    def log_prob(self, value):
        found = super().log_prob(value)
        return found.detach() + 0 * self._parameter.clamp(-1e6, 1e6).sum()


class NoGraph(ConditionalPoisson):
    """Right, but a constant where nothing is random."""

    @property
    def mean(self):
        mean = super().mean
        return mean.detach() if self.k in (0, self.n) else mean


class BeyondOne(ConditionalPoisson):
    @property
    def mean(self):
        return super().mean * (1 + 1e-15)


class AlwaysK(ConditionalPoisson):
    """Draws what is excluded where too few are allowed."""

    def sample(self, sample_shape=(), generator=None):
        return self._draw_k_hot(torch.Size(sample_shape), generator).to(self._dtype)


class Lenient(Systematic):
    def __init__(self, k, *, probs=None, scores=None, validate_args=False):
        super().__init__(k, probs=probs, scores=scores, validate_args=False)


@pytest.mark.parametrize(
    ("design", "message"),
    [
        (OneTooMany, "ones"),
        (Unseeded, "one seed gives two samples"),
        (Gumbel, "standard errors off|sets are not drawn|probability 1"),
        (WrongLaw, "joint inclusion|entropy|mode"),
        (WrongEntropy, "entropy: off by"),
        (Silent, "without a word"),
        (Approximate, "with exact inclusion"),
        (NoGradient, "gradient of log_prob"),
        (NoGraph, "k = 0: mean has no graph"),
        (BeyondOne, "outside of"),
        (AlwaysK, "not drawn whole"),
        (Lenient, "taken without an error"),
    ],
)
def test_a_broken_design_is_noticed(design, message):
    with pytest.raises(ContractError, match=message):
        check_design(design)
