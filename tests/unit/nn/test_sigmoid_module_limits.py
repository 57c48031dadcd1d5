"""khot.nn.SigmoidTopK: its learned parameters at the ends of their range, and printed."""

import pytest
import torch

from khot.nn import SigmoidTopK


def test_repr_shows_what_is_learned_without_a_warning():
    layer = SigmoidTopK(2, hard=True, learn_k=True, k_max=9, learn_temperature=True)
    assert repr(layer) == "SigmoidTopK(k=2 (learned, k_max=9), temperature=1 (learned), dim=-1, hard=True)"


@pytest.mark.parametrize("kappa", [-200.0, -20.0, 20.0, 200.0])
def test_a_learned_budget_stays_inside_its_open_interval(kappa):
    """At k_max = n a budget that rounds to k_max has no gradient, and would stay there for ever."""
    layer = SigmoidTopK(2, learn_k=True, k_max=4)
    with torch.no_grad():
        layer.kappa.fill_(kappa)
    assert 0 < layer.k.item() < 4


def test_a_learned_budget_can_leave_the_end_of_its_range():
    layer = SigmoidTopK(2, learn_k=True, k_max=4)
    with torch.no_grad():
        layer.kappa.fill_(18.0)
    layer(torch.arange(4.0)).square().sum().backward()
    assert layer.kappa.grad.item() > 0
