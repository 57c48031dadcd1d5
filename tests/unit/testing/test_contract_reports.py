"""A wrong derivative is reported as such, with the numbers of torch's gradcheck."""

import dataclasses

import pytest

from khot.testing import ContractError, relaxation_checks
from strategies.broken_operators import BROKEN
from strategies.toy_operator import TOY


@pytest.mark.parametrize(
    ("name", "check"),
    [("jacobian_is_its_diagonal", "first_order"), ("right_first_derivative_only", "second_order")],
)
def test_a_wrong_derivative_is_a_contract_error_with_the_jacobians(name, check):
    spec = dataclasses.replace(TOY, weights=BROKEN[name][0])
    checks = {each.name: each for each in relaxation_checks(spec)}
    with pytest.raises(ContractError, match=r"Jacobian mismatch"):
        checks[check]()
