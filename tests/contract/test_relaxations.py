"""Every registered relaxation passes the contract, as its property row allows."""

import pytest

from khot.relaxations import registry
from khot.testing import Check, relaxation_checks

ALL = [check for spec in registry.specs().values() for check in relaxation_checks(spec)]


@pytest.mark.parametrize("check", ALL, ids=str)
def test_contract(check: Check) -> None:
    check()
