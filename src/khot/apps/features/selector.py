"""Feature selection with exactly k features, in scikit-learn's interface: see :class:`TopKSelector`."""

# pyright: basic
from __future__ import annotations

import warnings
from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

try:
    from sklearn.base import BaseEstimator
    from sklearn.feature_selection import SelectorMixin
    from sklearn.utils import check_random_state, column_or_1d
    from sklearn.utils._param_validation import Interval, RealNotInt, StrOptions
    from sklearn.utils.multiclass import check_classification_targets, type_of_target
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise ImportError(
        f'khot.apps.features.TopKSelector needs scikit-learn 1.6 or newer: pip install "khot[apps]" ({error})'
    ) from error

from khot.apps._learning import learning
from khot.apps.features._sample_weights import positive_weights
from khot.apps.features._standardised import Standardised, standardised
from khot.apps.features._training import Recipe, initial_scores, new_network, train_gates
from khot.relaxations.facade import topk
from khot.relaxations.hard import hard_topk
from khot.relaxations.registry import get, names

__all__ = ["TopKSelector"]


class TopKSelector(SelectorMixin, BaseEstimator):
    """Select exactly ``n_features_to_select`` features, with gates that are trained with a small network.

    Every feature has a score, and the network sees the features multiplied by the top-k weights of the
    scores. Their sum falls from all features to k over the first 40 % of the steps, and the temperature from
    soft to sharp; in the end exactly k gates are open. You set k directly: there is no penalty to tune.

    Features are standardised inside ``fit`` (and clipped at five standard deviations); ``transform`` returns
    the columns unchanged. A constant column is selected only if there are not enough others. If there are at
    most ``batch_size`` rows, all are fitted in one batch in float64: then an integer weight equals repeated
    rows, and the result does not depend on the order of rows, up to rounding. Cost: ``max_iter`` steps of the
    network on a batch.

    Args:
        n_features_to_select: how many: an integer, a share in (0, 1], or None for half of them.
        task: ``"classification"``, ``"regression"``, or ``"auto"``, which takes integers in ``y`` as classes.
        hidden_units: hidden units of the network; 0 for a linear model.
        method: the relaxation of the gates, a name in ``khot.relaxations.names()``; not a random
            one.
        temperature: initial temperature of the gates; scores start at zero (of softsort and the iterative
            softmax a little apart, because their gradient is zero where all scores are equal).
        final_temperature: final temperature of the gates.
        max_iter: number of Adam steps.
        batch_size: rows per step.
        learning_rate: learning rate of the network.
        score_learning_rate: learning rate of the scores.
        alpha: L2 penalty of the network.
        warm_start: start with the scores and the network of the last fit; only ``n_features_to_select``,
            ``y`` and the rows may differ.
        random_state: seed for the initial network and the batches; torch's global generator is not used.
        verbose: print the loss, ten times in a fit.
        device: the device to train on.

    Attributes:
        inclusion_probabilities_: the final weights of the gates, (n_features,); they sum to k.
        scores_: the scores of the features, (n_features,).
        n_features_to_select_: k.
        n_iter_: the number of steps taken.
        loss_curve_: the loss of each step.
        network_: the network, a torch module; its input is standardised features times their weights.
        classes_: the labels, in classification.
        n_features_in_: the number of features seen by ``fit``.
        feature_names_in_: their names, if all are strings.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True, as_frame=True)
        >>> selector = TopKSelector(2, max_iter=200, random_state=0).fit(X, y)
        >>> selector.get_feature_names_out().tolist()
        ['petal length (cm)', 'petal width (cm)']
        >>> selector.transform(X).shape
        (150, 2)

    Reference: Wijk, Vinuesa & Azizpour (2025), Differentiable Top-k: From One-Hot to k-Hot; gates for
    features, Yamada et al. (2020), Feature Selection using Stochastic Gates.
    """

    _parameter_constraints = {  # noqa: RUF012
        "n_features_to_select": [
            None,
            Interval(RealNotInt, 0, 1, closed="right"),
            Interval(Integral, 1, None, closed="left"),
        ],
        "task": [StrOptions({"auto", "classification", "regression"})],
        "hidden_units": [Interval(Integral, 0, None, closed="left")],
        "method": [StrOptions({name for name in names() if not get(name).stochastic})],
        "temperature": [Interval(Real, 0, None, closed="neither")],
        "final_temperature": [Interval(Real, 0, None, closed="neither")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "score_learning_rate": [Interval(Real, 0, None, closed="neither")],
        "alpha": [Interval(Real, 0, None, closed="left")],
        "warm_start": ["boolean"],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
        "device": [str, torch.device],
    }

    def __init__(
        self,
        n_features_to_select: int | float | None = None,
        *,
        task: str = "auto",
        hidden_units: int = 64,
        method: str = "sigmoid",
        temperature: float = 1.0,
        final_temperature: float = 0.002,
        max_iter: int = 1000,
        batch_size: int = 256,
        learning_rate: float = 1e-3,
        score_learning_rate: float = 0.02,
        alpha: float = 0.0,
        warm_start: bool = False,
        random_state: Any = None,
        verbose: int = 0,
        device: str | torch.device = "cpu",
    ) -> None:
        self.n_features_to_select = n_features_to_select
        self.task = task
        self.hidden_units = hidden_units
        self.method = method
        self.temperature = temperature
        self.final_temperature = final_temperature
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.score_learning_rate = score_learning_rate
        self.alpha = alpha
        self.warm_start = warm_start
        self.random_state = random_state
        self.verbose = verbose
        self.device = device

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> TopKSelector:
        """Learn which features to keep.

        Args:
            X: (n_samples, n_features), numbers.
            y: labels (n_samples,); for regression numbers (n_samples,) or (n_samples, n_outputs).
            sample_weight: (n_samples,), not negative, not all zero.

        Returns:
            The selector itself.
        """
        self._validate_params()
        X, y = validate_data(
            self, X, y, dtype=(np.float64, np.float32), multi_output=True, ensure_min_samples=2
        )
        rows, weights = positive_weights(X, sample_weight)
        target = self._encoded(y[rows], weights)
        k = self._count(X.shape[1])
        exact = len(rows) <= self.batch_size
        data = standardised(X[rows], weights, np.float64 if exact else np.float32)
        if k > data.usable.sum():
            warnings.warn(
                f"Features {np.flatnonzero(~data.usable)} are constant, and only {data.usable.sum()} "
                f"are not: {k} features are selected all the same.",
                UserWarning,
                stacklevel=2,
            )
        with learning():
            self._train(data, target, k)
        return self

    def _encoded(self, y: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Classes as integers, or standardised columns of numbers, by weighted rows."""
        kind = type_of_target(y, input_name="y")
        classes = kind in ("binary", "multiclass") if self.task == "auto" else self.task == "classification"
        if classes:
            y = column_or_1d(y, warn=True)
            check_classification_targets(y)
            self.classes_, encoded = np.unique(y, return_inverse=True)
            if len(self.classes_) < 2:
                raise ValueError(
                    f"The number of classes has to be greater than one; got {len(self.classes_)} class"
                )
            return encoded
        if self.task == "auto" and not kind.startswith("continuous"):
            raise ValueError(
                f"Unknown label type: {kind}. task='auto' knows classes and numbers; for several labels "
                "a row set task='regression'."
            )
        if hasattr(self, "classes_"):
            del self.classes_
        numbers = np.asarray(y, dtype=np.float64).reshape(len(y), -1)
        return standardised(numbers, weights, np.float64, farthest=np.inf).x

    def _count(self, features: int) -> int:
        asked = self.n_features_to_select
        if asked is None:
            return max(1, features // 2)
        if isinstance(asked, Integral):
            if asked > features:
                raise ValueError(f"n_features_to_select={asked} must be <= n_features={features}.")
            return int(asked)
        return max(1, int(asked * features))

    def _train(self, data: Standardised, target: np.ndarray, k: int) -> None:
        x = torch.as_tensor(data.x, device=self.device)
        wanted = torch.as_tensor(target, device=self.device)
        if wanted.is_floating_point():
            wanted = wanted.to(x.dtype)
        seed = check_random_state(self.random_state).randint(np.iinfo(np.int32).max)
        generator = torch.Generator().manual_seed(int(seed))
        outputs = target.shape[1] if target.ndim == 2 else len(self.classes_)
        network, scores = self._start(x, outputs, generator)
        usable = torch.as_tensor(data.usable, device=self.device)
        recipe = Recipe(
            k,
            self.method,
            float(self.temperature),
            float(self.final_temperature),
            self.max_iter,
            self.batch_size,
            self.learning_rate,
            self.score_learning_rate,
            self.alpha,
        )
        weights = torch.as_tensor(data.weights, device=self.device)
        self.loss_curve_ = train_gates(
            x, wanted, weights, usable, network, scores, recipe, generator, self._report
        )
        self.n_iter_ = self.max_iter
        self.n_features_to_select_ = k
        self.network_ = network.to("cpu")
        found = scores.detach().to("cpu", torch.float64)
        allowed = usable.cpu()
        self.scores_ = found.numpy()
        gates = topk(found, k, self.method, temperature=self.final_temperature, mask=allowed)
        chosen = hard_topk(found, k, mask=allowed).bool()
        missing = k - int(chosen.sum())
        if missing:  # constant columns, first ones first
            chosen[torch.nonzero(~allowed).flatten()[:missing]] = True
            gates = chosen.double()
        self.inclusion_probabilities_ = gates.numpy()
        self._support = chosen.numpy()

    def _start(
        self, x: Tensor, outputs: int, generator: torch.Generator
    ) -> tuple[torch.nn.Sequential, Tensor]:
        features = x.shape[1]
        network = new_network(features, self.hidden_units, outputs, generator)
        scores = initial_scores(features, self.method, generator).to(x.device, x.dtype)
        if self.warm_start and hasattr(self, "network_"):
            before = [tuple(p.shape) for p in self.network_.parameters()]
            now = [tuple(p.shape) for p in network.parameters()]
            if before != now:
                raise ValueError(
                    "warm_start needs the features, classes and hidden_units of the last fit: the "
                    f"network had parameters of shapes {before}, now they are {now}."
                )
            network.load_state_dict(self.network_.state_dict())
            scores = torch.as_tensor(self.scores_, dtype=x.dtype, device=x.device).clone()
        return network.to(x.device, x.dtype), scores.requires_grad_()

    def _report(self, step: int, loss: float, temperature: float) -> None:
        if self.verbose:
            print(  # noqa: T201
                f"[TopKSelector] step {step} of {self.max_iter}, loss {loss:.4f}, temperature "
                f"{temperature:.4g}"
            )

    def _get_support_mask(self) -> np.ndarray:
        check_is_fitted(self)
        return self._support

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        return tags
