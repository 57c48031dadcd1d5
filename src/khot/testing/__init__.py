"""The contract tests of khot: run them on its operators and designs, and on your own."""

from khot.testing.contract import Check, check_relaxation, relaxation_checks
from khot.testing.designs import check_design
from khot.testing.requirements import ContractError

__all__ = ["Check", "ContractError", "check_design", "check_relaxation", "relaxation_checks"]
