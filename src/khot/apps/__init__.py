"""Applications: top-k in the interface that the users of another field know.

``khot.apps.moe``: mixtures of experts, routers that learn; ``khot.apps.sae``: sparse autoencoders. Each is
loaded when it is first touched.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from khot.apps import moe, sae

__all__ = ["moe", "sae"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return importlib.import_module(f"khot.apps.{name}")
    raise AttributeError(f"module 'khot.apps' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
