"""Applications: top-k in the interface that the users of another field know.

* ``khot.apps.beam``: beam search with a gradient;
* ``khot.apps.dictionary``: dictionaries with exactly k atoms a sample, in training too;
* ``khot.apps.features``: exactly k features, for all rows or for each;
* ``khot.apps.moe``: mixtures of experts, routers that learn;
* ``khot.apps.neighbors``: nearest neighbours that learn;
* ``khot.apps.sae``: sparse autoencoders;
* ``khot.apps.sindy``: governing equations with a stated number of terms;
* ``khot.apps.sparse``: networks of whose weights exactly k are used.

Each is loaded when it is first touched.
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
