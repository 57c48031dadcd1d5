"""The packages khot is measured against: one adapter per peer, each a module with a `load`.

`load` gives a `Side`, or raises `PeerAbsent` with the way to install the package. Peers are not
dependencies of khot: `tools/set_up_peers.sh` builds an environment that has them all. Every peer runs
with its own defaults unless its adapter's note says otherwise.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import pkgutil
import warnings
from types import ModuleType

__all__ = ["PeerAbsent", "all_peers", "import_quietly"]


class PeerAbsent(RuntimeError):
    """A peer cannot be measured here."""

    def __init__(self, name: str, package: str, reason: str, pip_options: str = "") -> None:
        """Say which side is missing, the package it would come from, why, and what pip needs for it."""
        self.name = name
        self.package = package
        self.reason = reason
        self.install = f"tools/set_up_peers.sh, or pip install {pip_options} {package}".replace("  ", " ")
        super().__init__(f"{name} is absent: {reason}; install it with {self.install}")


def all_peers() -> dict[str, str]:
    """The source of every adapter by the name of its module; nothing is imported."""
    names = sorted(module.name for module in pkgutil.iter_modules(__path__))
    return {name: f"{__name__}.{name}:load" for name in names}


def import_quietly(module: str, *, name: str, package: str, pip_options: str = "") -> ModuleType:
    """Import a peer's module without what it prints or warns about; `PeerAbsent` if that fails."""
    try:
        with (
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise PeerAbsent(name, package, "not installed", pip_options) from error
    except Exception as error:
        # A package that is installed but broken (a missing shared library, an old API) is absent too.
        reason = f"does not import: {type(error).__name__}: {error}"
        raise PeerAbsent(name, package, reason, pip_options) from error
