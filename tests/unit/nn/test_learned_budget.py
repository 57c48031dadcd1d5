"""A learned budget beside learned slopes: with soft gates it collapses, hard ones find the features."""

import pytest
import torch
from torch import nn

from khot.nn import SigmoidTopK, TopK
from strategies.quick_run import costly


def fit(hard: bool, seed: int, steps: int = 500):
    """Five of twenty features matter; the budget costs 0.05 a unit."""
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(200, 20, generator=generator)
    true = torch.cat([torch.tensor([2.0, -2.0, 1.5, -1.5, 1.0]), torch.zeros(15)])
    target = features @ true + 0.1 * torch.randn(200, generator=generator)
    gate = SigmoidTopK(10, learn_k=True, k_max=20, hard=hard)
    scores, slope = nn.Parameter(torch.zeros(20)), nn.Parameter(features.T @ target / 200)
    optimiser = torch.optim.Adam([scores, slope, *gate.parameters()], lr=0.02)
    for _ in range(steps):
        optimiser.zero_grad()
        error = (target - features @ (slope * gate(scores))).square().mean()
        (error + 0.05 * gate.k).backward()
        optimiser.step()
    return gate.k.item(), gate.selected(scores).sort().values.tolist(), slope.detach(), true, error.item()


def test_soft_gates_collapse_because_slopes_undo_them():
    k, _, slope, true, error = fit(hard=False, seed=0)
    assert k < 4
    assert error < 0.02  # the fit is as good as it can be
    assert (slope[:5].abs() > 1.2 * true[:5].abs()).all()  # at a price that the slopes paid


@pytest.mark.parametrize("seed", [0, costly(1)])
def test_hard_gates_find_the_features(seed):
    k, selected, slope, true, error = fit(hard=True, seed=seed)
    assert 4.2 < k < 5.5
    assert selected == [0, 1, 2, 3, 4]
    assert error < 0.05
    torch.testing.assert_close(slope[:5], true[:5], atol=0.15, rtol=0)


@pytest.mark.parametrize("method", ["softsort", "gumbel", "successive_halving"])
def test_a_method_without_real_k_cannot_learn_it(method):
    with pytest.raises(ValueError, match=f"TopK: learn_k needs a method with real k, .* got '{method}'"):
        TopK(2, method, learn_k=True, k_max=4)


def test_the_end_of_the_range_must_be_a_number():
    with pytest.raises(TypeError, match="TopK: k_max must be a number, got '4'"):
        TopK(2, learn_k=True, k_max="4")
