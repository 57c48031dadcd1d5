"""Estimates from a sample with known inclusion probabilities, as in survey sampling.

Values, indicators and probabilities are tensors (…, n) over all n units of the population, and batches
broadcast: indicators (draws, n) give one estimate per draw. The values of units that were not drawn are not
used, so they may be anything, even NaN.
"""

from khot.designs.survey.approximate import approximate_variance
from khot.designs.survey.estimates import hajek_mean, horvitz_thompson_mean, horvitz_thompson_total
from khot.designs.survey.inclusion import inclusion_probabilities
from khot.designs.survey.variances import (
    design_effect,
    horvitz_thompson_variance,
    sen_yates_grundy_variance,
)

__all__ = [
    "approximate_variance",
    "design_effect",
    "hajek_mean",
    "horvitz_thompson_mean",
    "horvitz_thompson_total",
    "horvitz_thompson_variance",
    "inclusion_probabilities",
    "sen_yates_grundy_variance",
]
