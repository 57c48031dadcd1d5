"""khot: differentiable and stochastic top-k for PyTorch.

Relaxations
    topk                    k-hot weights by any method: the one call to start with
    sigmoid_topk            one sigmoid gate per score, one shared threshold: the default
    laplace_topk            the same with Laplace gates
    normal_topk             the same with normal gates
    sparse_topk             exact zeros and ones: projection on the capped simplex
    cdf_topk                gates from any CDF you pass
    inverse_sigmoid_topk    the scores that give these weights
    successive_halving_topk a tournament that pairs the best with the worst
    iterative_topk          a softmax around the largest score left, k times
    successive_softmax_topk draws without replacement, each replaced by its probabilities
    soft_rank_topk          windows around soft ranks
    pairwise_topk           windows around ranks from all pairwise comparisons
    softsort_topk           distances to the k largest scores
    neuralsort_topk         the rows of NeuralSort
    network_topk            a soft sorting network
    sinkhorn_topk           entropic optimal transport to two anchors, or to one for each rank
    perturbed_topk          the mean of hard selections under noise
    gumbel_topk             a relaxed sample of k without replacement
    hard_topk               the exact indicator; ties go to the lower index
    topk_entries            only the k selected entries: Entries(indices, weights, values)
    select                  the k best of given vectors, by any method: Selection(values, weights, indices)
    topk_matrix, topk_values
                            soft one-hot rows and values of the k best, by any method
    calibrate_temperature   the temperature that gives a chosen sharpness

Ranks
    soft_rank, soft_sort    differentiable ranks and sorted values
    soft_quantile, soft_median
                            differentiable order statistics
    kth_best                the vector with the k-th largest score
    rank_bounds, kth_best_bounds, heaviside_bounds, delta_bounds
                            sound bounds when only intervals for the scores are known: RankBounds, Lines

Sampling
    sample                  exactly k of n, with given scores or inclusion probabilities

Modules and packages
    khot.nn                 layers: start with TopK; one for each operator
    khot.losses             Fenchel–Young, top-k cross entropy, and ranking losses: NDCG, recall, Spearman
    khot.metrics            how close soft weights are to the exact top-k, and how good a ranking is
    khot.schedules          temperatures that fall during training
    khot.apps.moe           mixture of experts: trainable routers, and routers for transformers models
    khot.apps.sindy         governing equations with exactly k terms, for pysindy
    khot.apps.dictionary    dictionary learning with exactly k atoms per sample, as in scikit-learn
    khot.apps.sparse        networks that use exactly k of their weights
    khot.apps.beam          beam search with a gradient
    khot.apps.features      feature selection, exactly k: a scikit-learn estimator, a gate, instance-wise
    khot.apps.neighbors     learned nearest neighbours: a loss for embeddings, a scikit-learn classifier
    khot.apps.sae           sparse autoencoders: training, and files that other tools open
    khot.vision             networks that select k tokens, and a plain vision transformer
    khot.vision.data        image data sets from files, folders and scikit-learn
    khot.parallel           operators for rows and batches that are split over processes
    khot.designs            distributions of k-hot vectors, in the style of ``torch.distributions``
    khot.estimators         gradients through a hard or sampled selection
    khot.interop            the operators for NumPy arrays and in JAX
    khot.constraints        the capped simplex and the k-hot vectors, for ``torch.distributions``
    khot.testing            the contract every operator must pass, your own operators included
    khot.relaxations        the operators and their registry
"""

import importlib
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

# _interpreter is first: a sub-interpreter must be refused before torch is imported.
from khot import (
    _interpreter,  # noqa: F401  # pyright: ignore[reportUnusedImport]
    constraints,
    designs,
    estimators,
    losses,
    metrics,
    nn,
    schedules,
)
from khot.calibration import calibrate_temperature
from khot.designs import sample
from khot.relaxations import (
    Entries,
    Lines,
    RankBounds,
    Selection,
    cdf_topk,
    delta_bounds,
    gumbel_topk,
    hard_topk,
    heaviside_bounds,
    inverse_sigmoid_topk,
    iterative_topk,
    kth_best,
    kth_best_bounds,
    laplace_topk,
    network_topk,
    neuralsort_topk,
    normal_topk,
    pairwise_topk,
    perturbed_topk,
    rank_bounds,
    select,
    sigmoid_topk,
    sinkhorn_topk,
    soft_median,
    soft_quantile,
    soft_rank,
    soft_rank_topk,
    soft_sort,
    softsort_topk,
    sparse_topk,
    successive_halving_topk,
    successive_softmax_topk,
    topk,
    topk_entries,
    topk_matrix,
    topk_values,
)

if TYPE_CHECKING:
    from khot import apps, interop, parallel, vision
    from khot import testing as testing

try:
    __version__ = version("khot")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+unknown"

__all__ = [
    "Entries",
    "Lines",
    "RankBounds",
    "Selection",
    "__version__",
    "apps",
    "calibrate_temperature",
    "cdf_topk",
    "constraints",
    "delta_bounds",
    "designs",
    "estimators",
    "gumbel_topk",
    "hard_topk",
    "heaviside_bounds",
    "interop",
    "inverse_sigmoid_topk",
    "iterative_topk",
    "kth_best",
    "kth_best_bounds",
    "laplace_topk",
    "losses",
    "metrics",
    "network_topk",
    "neuralsort_topk",
    "nn",
    "normal_topk",
    "pairwise_topk",
    "parallel",
    "perturbed_topk",
    "rank_bounds",
    "sample",
    "schedules",
    "select",
    "sigmoid_topk",
    "sinkhorn_topk",
    "soft_median",
    "soft_quantile",
    "soft_rank",
    "soft_rank_topk",
    "soft_sort",
    "softsort_topk",
    "sparse_topk",
    "successive_halving_topk",
    "successive_softmax_topk",
    "topk",
    "topk_entries",
    "topk_matrix",
    "topk_values",
    "vision",
]

_ON_DEMAND = ("apps", "interop", "parallel", "testing", "vision")


def __getattr__(name: str) -> Any:
    """Load what not every program needs when it is first touched."""
    if name in _ON_DEMAND:
        return importlib.import_module(f"khot.{name}")
    raise AttributeError(f"module 'khot' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_ON_DEMAND})
