"""khot: differentiable and stochastic top-k for PyTorch.

Relaxations
    topk                    k-hot weights by any method: the one call to start with
    sigmoid_topk            independent gates tied by one threshold: the default
    laplace_topk            the same with Laplace gates
    normal_topk             the same with normal gates
    sparse_topk             exact zeros and ones: projection on the capped simplex
    cdf_topk                the same with a CDF of your own
    inverse_sigmoid_topk    scores that give the wanted weights
    hard_topk               the exact indicator, ties by index
    calibrate_temperature   the temperature that makes weights as sharp as wanted

Modules and packages
    khot.nn                 one thin ``torch.nn.Module`` per operator
    khot.losses             Fenchel–Young losses and top-k cross entropy
    khot.schedules          temperatures that fall while training
    khot.estimators         gradients through a hard or sampled selection
    khot.constraints        the capped simplex and the k-hot vectors, for ``torch.distributions``
    khot.testing            the contract any operator must pass, for your own operators too
    khot.relaxations        the operators and their registry
"""

from importlib.metadata import PackageNotFoundError, version

from khot import constraints, estimators, losses, nn, schedules
from khot.relaxations import (
    calibrate_temperature,
    cdf_topk,
    hard_topk,
    inverse_sigmoid_topk,
    laplace_topk,
    normal_topk,
    sigmoid_topk,
    sparse_topk,
    topk,
)

try:
    __version__ = version("khot")
except PackageNotFoundError:  # a source tree that was never installed
    __version__ = "0+unknown"

__all__ = [
    "__version__",
    "calibrate_temperature",
    "cdf_topk",
    "constraints",
    "estimators",
    "hard_topk",
    "inverse_sigmoid_topk",
    "laplace_topk",
    "losses",
    "nn",
    "normal_topk",
    "schedules",
    "sigmoid_topk",
    "sparse_topk",
    "topk",
]
