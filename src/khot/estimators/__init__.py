"""Gradients through a sampled subset of k of n.

A sample has no derivative, but the expected loss has one. Each estimator, ``estimator(scores, k,
generator=…) -> x``, returns samples that you can use inside any model, with a gradient that approximates the
gradient of the expected loss.

========================  ===================  =========  ===================================================
name                      distribution         parameter  gradient
========================  ===================  =========  ===================================================
sampled_straight_through  any design           scores*    of the inclusion probabilities: exact for affine f
reinmax                   with a log_prob      logits*    second order: exact for quadratic losses
simple                    conditional Poisson  logits     straight-through with the exact covariance
score_function            with a log_prob      logits*    unbiased, from losses, with a leave-one-out baseline
imle, adaptive_imle       Plackett–Luce        logits     a difference of two selections under the same noise
relaxed_subset            Plackett–Luce        logits     k successive softmaxes; the sample itself is relaxed
gumbel_straight_through   Plackett–Luce        logits     of the relaxed sample at the same noise
========================  ===================  =========  ===================================================

The column 'parameter' tells how the distribution reads ``scores``: as *scores*, with
π = ``sigmoid_topk(scores, k)``, or as the *logits* of conditional Poisson or Plackett–Luce, whose π is
another function of them. A star marks the default design; other designs may differ, see
``Estimator.parameter``.

``get(name, **options)`` returns an estimator by name, as ``khot.nn.SampledTopK`` uses it.
``estimate_gradient`` calls any estimator with a loss, and ``diagnose`` measures their bias and variance on
your loss. ``straight_through(soft, hard)`` is the building block: the value of ``hard`` with the gradient of
``soft``.
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
