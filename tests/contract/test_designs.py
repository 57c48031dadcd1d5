"""Every design of khot passes the contract: what it claims, against enumeration and against draws."""

import pytest

from khot.designs import get, names
from khot.testing.designs import CHECKS


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
@pytest.mark.parametrize("name", names())
def test_contract(name, check):
    check(get(name))
