"""The contract of the registry, by the kernels for GPUs: the checks whose rows are few, in float32."""

from dataclasses import replace

import pytest

from khot.relaxations import registry
from khot.testing import derivatives, extremes, properties, relaxation_checks

pytestmark = [
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),  # numpy's, of overflow in the interpreter
    pytest.mark.usefixtures("in_the_operators"),
]
CHECKS = {"order", "equivariance", "ties", "truth", "infinities", "budget_edges"}
CHECKS |= {"hard_flag", "masked_gradient"}
COSTLY = {("sigmoid", "mask"), ("sigmoid", "half_gradient"), ("successive_halving", "half_gradient")}


def in_single(spec):
    """The operator with scores in float32, which the kernels read."""
    weights = spec.weights

    def single(scores, k, **options):
        single = scores.float() if scores.element_size() == 8 else scores
        return weights(single, k, **options).to(scores.dtype)

    return replace(spec, weights=single)


CASES = [
    check
    for name in ("sigmoid", "laplace", "sparse", "successive_halving")
    for check in relaxation_checks(in_single(registry.get(name)))
    if not check.options and (check.name in CHECKS or (name, check.name) in COSTLY)
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
