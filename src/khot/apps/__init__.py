"""Applications: top-k behind the interfaces that users of other fields know.

* ``khot.apps.beam``: beam search with a gradient;
* ``khot.apps.dictionary``: dictionary learning with exactly k atoms per sample, in training too;
* ``khot.apps.features``: feature selection, exactly k features for all rows or for each row;
* ``khot.apps.moe``: mixture of experts with trainable routers;
* ``khot.apps.neighbors``: learned nearest neighbours;
* ``khot.apps.sae``: sparse autoencoders;
* ``khot.apps.sindy``: governing equations with exactly k terms;
* ``khot.apps.sparse``: networks that use exactly k of their weights.

Each is imported when it is first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from khot.apps import beam, dictionary, features, moe, neighbors, sae, sindy, sparse

__all__ = ["beam", "dictionary", "features", "moe", "neighbors", "sae", "sindy", "sparse"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return importlib.import_module(f"khot.apps.{name}")
    raise AttributeError(f"module 'khot.apps' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
