"""The contract of designs finds what it is for: each broken design fails where it should."""

import pytest

from khot.designs import SequentialPivotal
from khot.testing import ContractError, check_design
from khot.testing.designs import CHECKS
from strategies.broken_designs import BROKEN, WrongEntropy

NAMED = {check.__name__.removeprefix("check_"): check for check in CHECKS}


@pytest.mark.parametrize(
    ("name", "check", "message"),
    [(name, check, message) for name, (_, noticed) in BROKEN.items() for check, message in noticed],
)
def test_a_broken_design_fails(name, check, message):
    with pytest.raises(ContractError, match=message):
        NAMED[check](BROKEN[name][0])


def test_every_check_has_something_to_notice():
    assert {check for _, noticed in BROKEN.values() for check, _ in noticed} == set(NAMED)


def test_check_design_runs_them_all():
    check_design(SequentialPivotal)
    with pytest.raises(ContractError, match="entropy: off by"):
        check_design(WrongEntropy)
