"""khot: differentiable and stochastic top-k for PyTorch.

Relaxations
    sigmoid_topk            k-hot weights: independent gates tied by one threshold
    inverse_sigmoid_topk    scores that give the wanted weights
    hard_topk               the exact indicator, ties by index

Modules and packages
    khot.nn                 one thin ``torch.nn.Module`` per operator
    khot.estimators         gradients through a hard or sampled selection
    khot.constraints        the capped simplex and the k-hot vectors, for ``torch.distributions``
    khot.testing            the contract any operator must pass, for your own operators too
    khot.relaxations        the operators and their registry
"""

from importlib.metadata import PackageNotFoundError, version

from khot import constraints, estimators, nn
from khot.relaxations import hard_topk, inverse_sigmoid_topk, sigmoid_topk

try:
    __version__ = version("khot")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+unknown"

__all__ = [
    "__version__",
    "constraints",
    "estimators",
    "hard_topk",
    "inverse_sigmoid_topk",
    "nn",
    "sigmoid_topk",
]
