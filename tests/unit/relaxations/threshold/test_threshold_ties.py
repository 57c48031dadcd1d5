"""Budgets just below the size of a group of ties, with a few scores and a crowd below it.

Every tie gets nearly its full weight, so the share of the ties is a start far from the root, which the
scores below decide about.
"""

import numpy as np
import pytest
import torch

import khot
from khot.testing import truth

pytestmark = pytest.mark.usefixtures("implementation")

# ties at 0, scores below at −gap, a crowd further below, and what the budget lacks to the ties
ROWS = [
    (277, 2, 8326, 11.2822, 13.6172, 4.5e-5),
    (935, 3, 5183, 11.2634, 13.4650, 6.1e-5),
    (221, 1, 22131, 10.5409, 17.0571, 2.0e-5),
]


@pytest.mark.parametrize(("ties", "below", "crowd", "gap", "further", "lack"), ROWS)
def test_budget_just_below_the_ties(ties, below, crowd, gap, further, lack):
    x = torch.zeros(ties + below + crowd)
    x[ties:] = -gap
    x[ties + below :] -= further
    k = torch.tensor(ties - lack)
    y = khot.sigmoid_topk(x, k)
    assert abs(y.double().sum().item() - k.item()) <= 1e-5 * k.item()
    np.testing.assert_allclose(y.numpy(), truth.sigmoid(x.numpy(), k.item()), rtol=1e-4)
