"""Designs that are broken in one way each, and what the check of the contract that must notice says."""

import torch

import khot
from khot.designs import ConditionalPoisson, PlackettLuce, SequentialPivotal, Systematic

BROKEN = {}


def noticed_by(check, message):
    def register(design):
        BROKEN.setdefault(design.__name__, (design, []))[1].append((check, message))
        return design

    return register


@noticed_by("exactly_k", "a sample has .* ones")
class OneTooMany(ConditionalPoisson):
    def sample(self, sample_shape=(), generator=None):
        x = super().sample(sample_shape, generator)
        return torch.maximum(x, khot.hard_topk(1 - x, 1))


@noticed_by("exactly_k", "a sample is not 0 or 1")
class Fractions(Systematic):
    def sample(self, sample_shape=(), generator=None):
        return self.mean.expand(*sample_shape, *self.mean.shape).detach().clone()


@noticed_by("exactly_k", "an index is drawn twice")
class WithReplacement(SequentialPivotal):
    def sample_indices(self, sample_shape=(), generator=None):
        return torch.zeros_like(super().sample_indices(sample_shape, generator))


@noticed_by("seeds", "one seed gives two samples")
class Unseeded(ConditionalPoisson):
    def sample(self, sample_shape=(), generator=None):
        return super().sample(sample_shape)


@noticed_by("seeds", "two seeds give one sample")
class AlwaysTheSame(SequentialPivotal):
    def sample(self, sample_shape=(), generator=None):
        return super().sample(sample_shape, torch.Generator().manual_seed(0))


@noticed_by("settled_units", "a unit with probability 1 is not drawn")
@noticed_by("inclusion", "standard errors off")
class EqualChances(SequentialPivotal):
    """Draws as if all units were alike."""

    def sample(self, sample_shape=(), generator=None):
        alike = torch.full_like(self.mean, float(self.k) / self.n)
        return SequentialPivotal(int(self.k), probs=alike).sample(sample_shape, generator)


@noticed_by("inclusion", "with exact inclusion")
class Approximate(PlackettLuce):
    exact_inclusion = True


@noticed_by("frequencies", "sets are not drawn as log_prob says")
class Gumbel(ConditionalPoisson):
    """Plackett–Luce samples under the name of conditional Poisson ones."""

    def _draw(self, sample_shape, generator):
        return PlackettLuce(int(self.k), logits=self.natural_parameters.detach())._draw(
            sample_shape, generator
        )


@noticed_by("frequencies", "an impossible set is drawn|sets are not drawn")
@noticed_by("enumeration", "joint inclusion")
class WrongLaw(Systematic):
    """The right inclusion probabilities, but the probabilities of sets of another design."""

    def log_prob(self, value):
        return ConditionalPoisson(int(self.k), probs=self.probs).log_prob(value)


@noticed_by("enumeration", "total probability")
class TooLikely(ConditionalPoisson):
    def log_prob(self, value):
        return super().log_prob(value) + 1e-6


@noticed_by("enumeration", "entropy: off by")
class WrongEntropy(ConditionalPoisson):
    def entropy(self):
        return super().entropy() / 2


@noticed_by("enumeration", "the mode is less likely")
class WrongMode(ConditionalPoisson):
    @property
    def mode(self):
        return khot.hard_topk(-self.probs, int(self.k))


@noticed_by("enumeration", "without a word")
class Silent(Systematic):
    def log_prob(self, value):
        raise NotImplementedError


@noticed_by("score", "gradient of log_prob")
class NoGradient(ConditionalPoisson):
    def log_prob(self, value):
        found = super().log_prob(value)
        return found.detach() + 0 * self._parameter.clamp(-1e6, 1e6).sum()


@noticed_by("range", "mean is outside of")
class BeyondOne(ConditionalPoisson):
    @property
    def mean(self):
        return super().mean * (1 + 1e-15)


@noticed_by("range", "π_ij is outside of")
class PairsBeyondOne(ConditionalPoisson):
    @property
    def joint_inclusion(self):
        return super().joint_inclusion * (1 + 1e-15)


@noticed_by("graph", "k = 0: mean has no graph")
class NoGraph(ConditionalPoisson):
    """Right, but a constant where nothing is random."""

    @property
    def mean(self):
        mean = super().mean
        return mean.detach() if self.k in (0, self.n) else mean


@noticed_by("few_allowed", "not drawn whole")
class AlwaysK(ConditionalPoisson):
    """Draws what is excluded where too few are allowed."""

    def sample(self, sample_shape=(), generator=None):
        return self._draw_k_hot(torch.Size(sample_shape), generator).to(self._dtype)


@noticed_by("misuse", "taken without an error")
class Lenient(Systematic):
    def __init__(self, k, *, probs=None, scores=None, validate_args=False):
        super().__init__(k, probs=probs, scores=scores, validate_args=False)
