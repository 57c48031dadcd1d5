"""Feature selection: ask for k features and get exactly k.

* :class:`TopKSelector`, a scikit-learn estimator: ``fit``, ``transform``, ``get_support``;
* :class:`FeatureGate`, the same gate as a module, to put in front of your network;
* :class:`InstanceSelector`, instance-wise selection: k features for each row, chosen by a network.

The first needs scikit-learn (``pip install "khot[apps]"``), the others only torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from khot.apps.features.gate import FeatureGate
from khot.apps.features.instancewise import InstanceSelector, SelectedFeatures

if TYPE_CHECKING:
    from khot.apps.features.selector import TopKSelector

__all__ = ["FeatureGate", "InstanceSelector", "SelectedFeatures", "TopKSelector"]


def __getattr__(name: str) -> Any:
    if name == "TopKSelector":  # loads scikit-learn
        from khot.apps.features.selector import TopKSelector

        return TopKSelector
    raise AttributeError(f"module 'khot.apps.features' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
