"""The contract of the registry, by the kernels for GPUs: the checks whose rows are few, in float32."""

from dataclasses import replace

import pytest
import torch

from khot.relaxations import registry
from khot.testing import derivatives, extremes, properties, relaxation_checks
from khot.testing.truth import TRUTHS
from strategies.seeded import randn

pytestmark = [
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # numpy's, of overflow in the interpreter
    pytest.mark.usefixtures("in_the_operators"),
]
CHECKS = {
    "sigmoid": {"order", "equivariance", "budget_edges", "half_gradient"},
    "laplace": set(),
    "sparse": {"order"},
    "successive_halving": {"equivariance", "budget_edges"},
}
ALL = {"ties", "infinities", "hard_flag", "masked_gradient"}


def in_single(spec):
    """The operator with scores in float32, which the kernels read."""
    weights = spec.weights

    def single(scores, k, **options):
        single = scores.float() if scores.element_size() == 8 else scores
        return weights(single, k, **options).to(scores.dtype)

    return replace(spec, weights=single)


CASES = [
    check
    for name, more in CHECKS.items()
    for check in relaxation_checks(in_single(registry.get(name)))
    if not check.options and check.name in ALL | more
]


@pytest.fixture
def to_the_precision_of_single(monkeypatch):
    """The tolerances of these checks are those of float64."""
    for module in (properties, extremes, derivatives):
        exact = module.require_close

        def require_close(actual, expected, tolerance, what, exact=exact):
            exact(actual, expected, max(tolerance, 4e-6), what)

        monkeypatch.setattr(module, "require_close", require_close)


@pytest.mark.usefixtures("to_the_precision_of_single")
@pytest.mark.parametrize("check", CASES, ids=str)
def test_contract(check):
    check()


@pytest.mark.parametrize("name", ["sigmoid", "laplace", "sparse"])
def test_truth(name):
    """An independent solution in extended precision."""
    x = randn(2, 12)
    for k, temperature in ((1, 0.1), (2.5, 1.0), (11.75, 10.0)):
        y = registry.get(name).weights(x, k, temperature=temperature)
        expected = [TRUTHS[name](row.double().numpy(), k, temperature).tolist() for row in x]
        torch.testing.assert_close(y, torch.tensor(expected, dtype=y.dtype), rtol=0, atol=4e-7)
