"""Every design of khot passes the contract: what it claims, against enumeration and against draws."""

import pytest

from khot.designs import get, names
from khot.testing.designs import CHECKS

COSTLY = {
    "pareto range",
    "pareto score",
    "plackett_luce few_allowed",
    "random_pivotal inclusion",
    *(f"adjusted_pareto {check}" for check in ("enumeration", "graph", "inclusion", "range", "score")),
}


def cases():
    for name in names():
        for check in CHECKS:
            title = check.__name__.removeprefix("check_")
            marks = pytest.mark.full if f"{name} {title}" in COSTLY else ()
            yield pytest.param(name, check, marks=marks, id=f"{name}-{title}")


@pytest.mark.parametrize(("name", "check"), list(cases()))
def test_contract(name, check):
    check(get(name))
