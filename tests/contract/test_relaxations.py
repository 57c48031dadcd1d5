"""Every registered relaxation passes the contract, as its property row allows: compiled and portable."""

import pytest

from khot.kernels import loader
from khot.relaxations import registry
from khot.testing import Check, relaxation_checks

ALL = [check for spec in registry.specs().values() for check in relaxation_checks(spec)]


@pytest.mark.parametrize("check", ALL, ids=str)
def test_contract(check: Check) -> None:
    check()


@pytest.mark.parametrize("check", [c for c in ALL if c.name not in ("compile", "export")], ids=str)
def test_contract_without_the_compiled_library(check: Check, monkeypatch: pytest.MonkeyPatch) -> None:
    absent = (None, loader.NativeStatus(False, "switched off by the test"), False)
    monkeypatch.setattr(loader, "_decision", lambda: absent)
    assert loader.native() is None
    check()
