"""Wrong arguments of the whole package are refused by name, before anything is computed."""

import numpy as np
import pytest
import torch
from torch import nn

from khot.apps.moe import (
    ExpertChoiceRouter,
    Experts,
    MoE,
    RoutingStatistics,
    TopKRouter,
    apply_capacity,
    balance_experts,
    load_balance_loss,
    z_loss,
)

TOKENS, LOGITS = torch.randn(3, 4), torch.randn(3, 5)
WEIGHTS, INDICES = torch.ones(3, 2), torch.zeros(3, 2, dtype=torch.int64)


def layer(**options):
    return MoE(TopKRouter(4, 5, 2), Experts(5, 4, 6), **options)


def biased():
    router = TopKRouter(4, 5, 2, score="sigmoid", correction_bias=True)
    return router, torch.optim.SGD(router.parameters(), lr=0.1)


WRONG = [
    # Masks and indices that are no tensors.
    (lambda: z_loss(LOGITS, [True] * 3), TypeError, "z_loss: mask must be a torch.Tensor, got list"),
    (lambda: z_loss(LOGITS, "all"), TypeError, "z_loss: mask must be a torch.Tensor, got str"),
    (
        lambda: load_balance_loss(LOGITS, INDICES, mask=np.ones(3)),
        TypeError,
        "load_balance_loss: mask must be a torch.Tensor, got ndarray",
    ),
    (
        lambda: load_balance_loss(LOGITS, [[0]]),
        TypeError,
        "load_balance_loss: indices must be a torch.Tensor, got list",
    ),
    (
        lambda: load_balance_loss(LOGITS.long(), INDICES),
        TypeError,
        "load_balance_loss: logits must have a floating-point dtype, got torch.int64",
    ),
    (
        lambda: load_balance_loss(LOGITS, INDICES, "sequence", sequences=True),
        TypeError,
        "sequences must be an integer, got True",
    ),
    (
        lambda: apply_capacity(WEIGHTS, None, 5, capacity=1),
        TypeError,
        "apply_capacity: indices must be a torch.Tensor, got NoneType",
    ),
    (
        lambda: apply_capacity([1.0], INDICES, 5, capacity=1),
        TypeError,
        "apply_capacity: weights must be a torch.Tensor, got list",
    ),
    (
        lambda: apply_capacity(WEIGHTS, INDICES, 5.0, capacity=1),
        TypeError,
        "apply_capacity: num_experts must be an integer, got 5.0",
    ),
    (
        lambda: apply_capacity(WEIGHTS, INDICES, 5, capacity_factor=True),
        ValueError,
        "apply_capacity: capacity_factor must be a positive number, got True",
    ),
    (
        lambda: apply_capacity(WEIGHTS, INDICES, 5, capacity=1, mask=[1, 1, 1]),
        TypeError,
        "apply_capacity: mask must be a torch.Tensor, got list",
    ),
    (
        lambda: RoutingStatistics(5).update([[0]]),
        TypeError,
        "RoutingStatistics: indices must be a torch.Tensor, got list",
    ),
    (
        lambda: RoutingStatistics(5).update(INDICES, kept=[[True]]),
        TypeError,
        "RoutingStatistics: kept must be a torch.Tensor, got list",
    ),
    (lambda: RoutingStatistics(True), TypeError, "num_experts must be an integer, got True"),
    # Routers.
    (lambda: TopKRouter(True, 5, 2), TypeError, "TopKRouter: hidden must be an integer, got True"),
    (lambda: TopKRouter(4, 5, 2, jitter=True), ValueError, r"jitter must be in \[0, 1\), got True"),
    (
        lambda: TopKRouter(4, 5, 2, scaling_factor=True),
        ValueError,
        "scaling_factor must be a positive number or 'unit', got True",
    ),
    (lambda: TopKRouter(4, 5, 2, temperature=True), TypeError, "temperature must be a number .*, got True"),
    (lambda: TopKRouter(4, 5, 2, temperature=torch.ones(7)), ValueError, "routing='topk' has no temperature"),
    (
        lambda: ExpertChoiceRouter(4, 5, 1.0, temperature=torch.ones(7)),
        ValueError,
        "ExpertChoiceRouter: routing='topk' has no temperature",
    ),
    (lambda: ExpertChoiceRouter(True, 5, 1.0), TypeError, "hidden must be an integer, got True"),
    (
        lambda: TopKRouter(4, 5, 2)(TOKENS, generator=3),
        TypeError,
        "TopKRouter: generator must be a torch.Generator or None, got 3",
    ),
    (
        lambda: TopKRouter(4, 5, 2)([[0.0] * 4]),
        TypeError,
        "TopKRouter: hidden_states must be a torch.Tensor, got list",
    ),
    (
        lambda: TopKRouter(4, 5, 2)(TOKENS.long()),
        TypeError,
        "TopKRouter: hidden_states must have a floating-point dtype, got torch.int64",
    ),
    (
        lambda: ExpertChoiceRouter(4, 5, 1.0)(None),
        TypeError,
        "ExpertChoiceRouter: hidden_states must be a torch.Tensor, got NoneType",
    ),
    (
        lambda: balance_experts(*biased(), rate=True),
        ValueError,
        "balance_experts: rate must be a number of at least 0, got True",
    ),
    (
        lambda: biased()[0].update_correction_bias(True),
        ValueError,
        "update_correction_bias: rate must be a number of at least 0, got True",
    ),
    # Experts and layers.
    (lambda: Experts(True, 4, 6), TypeError, "Experts: num_experts must be an integer, got True"),
    (lambda: Experts(5, True, 6), TypeError, "Experts: hidden must be an integer, got True"),
    (
        lambda: Experts(5, 4, 6)(TOKENS, INDICES - 1, WEIGHTS),
        ValueError,
        r"Experts: indices must be in \[0, 5\], got -1 to -1",
    ),
    (
        lambda: Experts(5, 4, 6)(TOKENS, INDICES + 9, WEIGHTS),
        ValueError,
        r"Experts: indices must be in \[0, 5\], got 9 to 9",
    ),
    (
        lambda: Experts(5, 4, 6)(TOKENS, INDICES, [1.0]),
        TypeError,
        "Experts: weights must be a torch.Tensor, got list",
    ),
    (
        lambda: Experts(5, 4, 6)(TOKENS, INDICES, WEIGHTS[:, :1]),
        ValueError,
        r"one shape \(tokens, k\) with 3 tokens, got \(3, 2\) and \(3, 1\)",
    ),
    (
        lambda: Experts(5, 4, 6)(LOGITS, INDICES, WEIGHTS),
        ValueError,
        r"hidden_states must have the shape \(tokens, 4\), got \(3, 5\)",
    ),
    (lambda: MoE("a", Experts(5, 4, 6)), TypeError, "MoE: router must be a torch module, got 'a'"),
    (lambda: MoE(TopKRouter(4, 5, 2), 3), TypeError, "MoE: experts must be Experts or torch modules, got 3"),
    (lambda: MoE(TopKRouter(4, 5, 2), [nn.Identity(), 1]), TypeError, "experts must be Experts or torch mod"),
    (lambda: layer(shared="a"), TypeError, "MoE: shared must be a torch module or None, got 'a'"),
    (
        lambda: layer()(TOKENS, return_routing="no"),
        TypeError,
        "MoE: return_routing must be True or False, got 'no'",
    ),
    (lambda: layer()([[0.0]]), TypeError, "MoE: hidden_states must be a torch.Tensor, got list"),
    (lambda: layer()(torch.tensor(1.0)), ValueError, "MoE: hidden_states must have at least one dimension"),
]


@pytest.mark.parametrize(("call", "error", "message"), WRONG)
def test_wrong_arguments_are_named(call, error, message):
    with pytest.raises(error, match=message):
        call()
