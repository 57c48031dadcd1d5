"""Gradients through a sampled subset of k of n.

A sample has no derivative; its expectation has. Each estimator gives samples that can be used inside any
model, ``estimator(scores, k, generator=…) -> x``, and a gradient that approximates that of the expectation.

========================  ===================  =========  ===================================================
name                      law of the sample    parameter  gradient
========================  ===================  =========  ===================================================
sampled_straight_through  any design           scores*    of the inclusion probabilities: exact for affine f
reinmax                   closed designs       logits*    second order: exact for quadratic losses
simple                    conditional Poisson  logits     straight-through with the exact covariance
score_function            any with a log_prob  logits*    unbiased, from losses, with a leave-one-out baseline
imle, adaptive_imle       Plackett–Luce        logits     a difference of two selections under the same noise
relaxed_subset            Plackett–Luce        logits     k softmaxes in turn; the sample itself is relaxed
gumbel_straight_through   Plackett–Luce        logits     that of the relaxed sample, at the same noise
========================  ===================  =========  ===================================================

The parameter is what the law takes the scores for: *scores*, with π = ``sigmoid_topk(scores, k)``, or the
*logits* of conditional Poisson and of Plackett–Luce, whose π is another function of them. With a star it is
that of the default design, and another design may have the other: ``Estimator.parameter`` says.

``get(name, **options)`` chooses by name, as ``khot.nn.SampledTopK`` does; ``estimate_gradient`` calls any of
them with a loss, and ``diagnose`` measures their bias and variance on a loss of your own.
``straight_through(soft, hard)`` is the primitive: the value of one tensor, the gradient of another.
"""

from khot.estimators.diagnosis import Diagnosed, Diagnosis, diagnose
from khot.estimators.gradient import estimate_gradient
from khot.estimators.gumbel_straight_through import gumbel_straight_through
from khot.estimators.imle import AdaptiveStep, adaptive_imle, imle
from khot.estimators.registry import Estimator, get, names, register
from khot.estimators.reinmax import reinmax
from khot.estimators.relaxed_subset import relaxed_subset
from khot.estimators.sampled_straight_through import sampled_straight_through
from khot.estimators.score_function import score_function, score_function_loss
from khot.estimators.simple import simple
from khot.relaxations import straight_through

__all__ = [
    "AdaptiveStep",
    "Diagnosed",
    "Diagnosis",
    "Estimator",
    "adaptive_imle",
    "diagnose",
    "estimate_gradient",
    "get",
    "gumbel_straight_through",
    "imle",
    "names",
    "register",
    "reinmax",
    "relaxed_subset",
    "sampled_straight_through",
    "score_function",
    "score_function_loss",
    "simple",
    "straight_through",
]
