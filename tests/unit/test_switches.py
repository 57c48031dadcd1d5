"""A text such as "no" is no switch, as Python takes it for True. The parameters are found by their types."""

import inspect
from functools import partial

import numpy as np
import pytest
import torch
from torch.nn import Linear, Sequential

import khot
from khot import designs, estimators, metrics, nn, parallel
from khot.apps import beam, dictionary, features, moe, neighbors, sae, sindy, sparse
from khot.interop import jax as khot_jax
from khot.interop import numpy as khot_numpy
from khot.relaxations import registry
from khot.vision import NetworkConfig, data, from_config, reduce_tokens, training
from strategies.public_names import is_error, public_names

SCORES, VALUES = torch.randn(2, 5), torch.randn(2, 5, 3)
ARRAY = np.random.default_rng(0).normal(size=(20, 5)).astype(np.float32)
TARGET = ARRAY[:, 0] + ARRAY[:, 2]
TRANSFORMER = NetworkConfig(model="vit", image_size=(8, 16), patch_size=4, k=2)
LOG_PROBS = torch.randn(2, 1, 6).log_softmax(-1)


def loss(y):
    return y.sum(-1)


def one_word(tokens, state):
    return LOG_PROBS[:1].expand(*tokens.shape, 6), state


CALLS = {
    **{
        f"khot.{method}_topk": partial(registry.get(method).weights, SCORES, 2) for method in registry.names()
    },
    "khot.calibrate_temperature": partial(khot.calibrate_temperature, SCORES, 2, entropy=0.5),
    "khot.cdf_topk": partial(khot.cdf_topk, SCORES, 2, cdf=torch.special.ndtr),
    "khot.hard_topk": partial(khot.hard_topk, SCORES, 2),
    "khot.kth_best": partial(khot.kth_best, VALUES, SCORES, 2),
    "khot.sample": partial(khot.sample, SCORES, 2),
    "khot.select": partial(khot.select, VALUES, SCORES, 2),
    "khot.soft_median": partial(khot.soft_median, SCORES),
    "khot.soft_quantile": partial(khot.soft_quantile, SCORES, 0.5),
    "khot.soft_rank": partial(khot.soft_rank, SCORES),
    "khot.soft_sort": partial(khot.soft_sort, SCORES),
    "khot.topk": partial(khot.topk, SCORES, 2, "successive_softmax"),
    "khot.topk_entries": partial(khot.topk_entries, SCORES, 2),
    "khot.topk_matrix": partial(khot.topk_matrix, SCORES, 2, "softsort"),
    "khot.topk_values": partial(khot.topk_values, SCORES, 2, "softsort"),
    **{f"khot.nn.{name}": partial(getattr(nn, name), 2) for name in nn.__all__},
    "khot.nn.SampledTopK": partial(nn.SampledTopK, 2, estimator="gumbel_straight_through"),
    "khot.designs.sample": partial(designs.sample, SCORES, 2),
    **{
        f"khot.estimators.{name}": partial(getattr(estimators, name), SCORES, 2)
        for name in estimators.names()
    },
    "khot.estimators.score_function_loss": partial(estimators.score_function_loss, loss, SCORES, 2),
    "khot.metrics.entropy": partial(metrics.entropy, torch.full((2, 5), 0.4)),
    **{
        f"khot.parallel.{name}": partial(getattr(parallel, name), SCORES, 2)
        for name in ("hard_topk", "laplace_topk", "sample", "sigmoid_topk", "sparse_topk", "topk")
    },
    **{
        f"khot.interop.numpy.{name}": partial(getattr(khot_numpy, name), ARRAY, 2)
        for name in ("hard_topk", "laplace_topk", "normal_topk", "sigmoid_topk", "sparse_topk")
    },
    "khot.interop.numpy.vjp": partial(khot_numpy.vjp, khot_numpy.sigmoid_topk, ARRAY, 2),
    **{
        f"khot.interop.jax.{name}": partial(getattr(khot_jax, name), ARRAY, 2)
        for name in ("hard_topk", "laplace_topk", "sigmoid_topk", "sparse_topk")
    },
    "khot.apps.moe.Experts": partial(moe.Experts, 4, 8, 16),
    "khot.apps.moe.TopKRouter": partial(moe.TopKRouter, 8, 4, 2, routing="sigmoid_topk"),
    "khot.apps.moe.replace_router": partial(moe.replace_router, Linear(8, 8)),
    "khot.apps.features.FeatureGate": partial(features.FeatureGate, 8, 2),
    "khot.apps.features.InstanceSelector": partial(features.InstanceSelector, Linear(8, 8), 2),
    "khot.apps.features.TopKSelector": lambda **switch: features.TopKSelector(2, **switch).fit(ARRAY, TARGET),
    "khot.apps.sae.SparseAutoencoder": partial(sae.SparseAutoencoder, 8, 16, 2),
    "khot.apps.sae.TrainSettings": sae.TrainSettings,
    "khot.apps.sparse.TopKSparse": partial(sparse.TopKSparse, 0.25, method="sigmoid"),
    "khot.apps.sparse.sparsify": partial(sparse.sparsify, Sequential(Linear(8, 8)), 0.5, method="sigmoid"),
    "khot.apps.neighbors.NeighborLoss": partial(neighbors.NeighborLoss, 2),
    "khot.apps.neighbors.SoftKNeighborsClassifier": lambda **switch: neighbors.SoftKNeighborsClassifier(
        3, **switch
    ).fit(ARRAY, TARGET > 0),
    "khot.apps.beam.soft_beam_search": partial(
        beam.soft_beam_search,
        lambda tokens, state: (LOG_PROBS[:1].expand(*tokens.shape, 6), state),
        None,
        2,
        start=0,
        max_length=2,
    ),
    "khot.apps.beam.soft_beam_step": partial(
        beam.soft_beam_step, LOG_PROBS, beam.BeamState.start(torch.zeros(2, dtype=torch.long)), 2
    ),
    "khot.apps.sindy.ExactK": lambda **switch: sindy.ExactK(2, **switch).fit(ARRAY, TARGET),
    "khot.apps.sindy.MostFrequentTerms": partial(sindy.MostFrequentTerms, 2),
    "khot.apps.sindy.SmoothedDerivative": lambda **switch: sindy.SmoothedDerivative(5, **switch)(ARRAY, 0.1),
    "khot.apps.dictionary.TopKDictionary": lambda **switch: dictionary.TopKDictionary(4, **switch).fit(ARRAY),
    "khot.vision.data.FolderImages": partial(data.FolderImages, "absent"),
    "khot.vision.data.load": partial(data.load, "digits"),
    "khot.vision.training.TrainSettings": training.TrainSettings,
    "khot.vision.training.evaluate": partial(training.evaluate, Linear(8, 8), []),
    "khot.vision.training.train": partial(training.train, training.run_preset("digits"), "absent"),
    "khot.vision.reduce_tokens": partial(reduce_tokens, from_config(TRANSFORMER), 0.5),
}
# Torch's own, which it reads as Python does; scikit-learn's, which may be a number.
OTHERS = {"validate_args", "verbose"}


# What a new operator or estimator declares of itself.
DECLARED = {"khot.relaxations.Relaxation", "khot.estimators.register"}


def switches(made):
    return [
        name
        for name, parameter in inspect.signature(made).parameters.items()
        if str(parameter.annotation) in ("bool", "bool | None") and name not in OTHERS
    ]


# One name for each function and class: khot.relaxations has those of khot too.
FOUND = {made: name for name, made in reversed(public_names().items()) if not is_error(made)}
SWITCHES = [
    (name, switch) for made, name in FOUND.items() if name not in DECLARED for switch in switches(made)
]


@pytest.mark.parametrize(("name", "switch"), SWITCHES)
def test_a_text_is_refused(name, switch):
    with pytest.raises((TypeError, ValueError), match=rf"(?i){switch}.* must be .*(true or |bool).*'no'"):
        CALLS[name](**{switch: "no"})


@pytest.mark.parametrize("layer", nn.__all__)
@pytest.mark.parametrize("switch", ["largest", "at_most", "capped", "learn_temperature", "learn_k"])
def test_a_text_is_refused_among_further_options_of_layers(layer, switch):
    absent = "unexpected keyword|has no option|cannot be learned|needs an estimator with one"
    refused = rf"{switch} must be True or False, got 'no'"
    with pytest.raises((TypeError, ValueError), match=f"{refused}|{absent}"):
        CALLS[f"khot.nn.{layer}"](**{switch: "no"})


def test_the_switches_are_found():
    assert ("khot.topk", "hard") in SWITCHES
    assert ("khot.apps.sae.SparseAutoencoder", "skip") in SWITCHES
