"""Nearest neighbours in a learned metric, for scikit-learn: see :class:`SoftKNeighborsClassifier`."""

# pyright: basic
from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

try:
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils import check_random_state
    from sklearn.utils._param_validation import Interval, StrOptions
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise ImportError(
        "khot.apps.neighbors.SoftKNeighborsClassifier needs scikit-learn 1.6 or newer: "
        f'pip install "khot[apps]" ({error})'
    ) from error

from khot.apps._learning import learning
from khot.apps.neighbors._nearness import blocks, nearness
from khot.apps.neighbors.loss import NeighborLoss
from khot.calibration import calibrate_temperature
from khot.relaxations.facade import topk
from khot.relaxations.hard import hard_topk
from khot.relaxations.registry import get, names

__all__ = ["SoftKNeighborsClassifier"]

_ROWS_TO_CALIBRATE = 512


class SoftKNeighborsClassifier(ClassifierMixin, BaseEstimator):
    """k-nearest-neighbours classifier with soft votes and a learned linear map.

    ``fit`` standardises the features and learns a linear map with :class:`khot.apps.neighbors.NeighborLoss`:
    the soft k nearest neighbours of a row should have its label. To classify a row, all training rows vote
    with their top-k weights; at a small temperature this is :class:`sklearn.neighbors.KNeighborsClassifier`.
    Cost: distances between all pairs, computed in blocks, so that memory grows linearly with the number of
    rows.

    Args:
        n_neighbors: k.
        n_components: the number of dimensions of the learned space, initially the principal components; None
            keeps all features.
        temperature: > 0, in the units of squared distances, or ``"auto"``: initially about half of the weight
            lies on the k nearest.
        weights: ``"soft"``: votes by top-k weights; ``"uniform"``: one vote for each of the k nearest.
        method: the relaxation, a name in ``khot.relaxations.names()``; not a random one.
        max_iter: number of Adam steps; 0 keeps the initial map.
        batch_size: rows per step, among which neighbours are searched.
        learning_rate: learning rate of Adam.
        warm_start: start with the map of the last fit.
        random_state: seed for the batches; torch's global generator is not used.
        verbose: print the loss, ten times in a fit.
        device: the device to train on.

    Attributes:
        classes_: the labels.
        components_: the map, (n_components, n_features), applied to features divided by their standard
            deviations.
        temperature_: the temperature of the votes.
        n_iter_: the number of steps taken.
        loss_curve_: the loss of each step.
        n_samples_fit_: the number of rows that vote.
        n_features_in_: the number of features seen by ``fit``.
        feature_names_in_: their names, if all are strings.

    Example:
        >>> from sklearn.datasets import load_iris
        >>> X, y = load_iris(return_X_y=True)
        >>> model = SoftKNeighborsClassifier(5, max_iter=50, random_state=0).fit(X[::2], y[::2])
        >>> model.score(X[1::2], y[1::2]) > 0.9
        True
        >>> model.predict_proba(X[:2]).shape
        (2, 3)

    Reference: Goldberger et al. (2004), Neighbourhood Components Analysis; Grover et al. (2019).
    """

    _parameter_constraints = {  # noqa: RUF012
        "n_neighbors": [Interval(Integral, 1, None, closed="left")],
        "n_components": [Interval(Integral, 1, None, closed="left"), None],
        "temperature": [StrOptions({"auto"}), Interval(Real, 0, None, closed="neither")],
        "weights": [StrOptions({"soft", "uniform"})],
        "method": [StrOptions({name for name in names() if not get(name).stochastic})],
        "max_iter": [Interval(Integral, 0, None, closed="left")],
        "batch_size": [Interval(Integral, 2, None, closed="left")],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "warm_start": ["boolean"],
        "random_state": ["random_state"],
        "verbose": ["verbose"],
        "device": [str, torch.device],
    }

    def __init__(
        self,
        n_neighbors: int = 5,
        *,
        n_components: int | None = None,
        temperature: float | str = "auto",
        weights: str = "soft",
        method: str = "sigmoid",
        max_iter: int = 200,
        batch_size: int = 512,
        learning_rate: float = 0.01,
        warm_start: bool = False,
        random_state: Any = None,
        verbose: int = 0,
        device: str | torch.device = "cpu",
    ) -> None:
        self.n_neighbors = n_neighbors
        self.n_components = n_components
        self.temperature = temperature
        self.weights = weights
        self.method = method
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.warm_start = warm_start
        self.random_state = random_state
        self.verbose = verbose
        self.device = device

    def fit(self, X: Any, y: Any) -> SoftKNeighborsClassifier:
        """Learn the map, and keep the rows that will vote.

        Args:
            X: (n_samples, n_features), numbers.
            y: labels (n_samples,).

        Returns:
            The classifier itself.
        """
        self._validate_params()
        X, y = validate_data(self, X, y, dtype=(np.float64, np.float32))
        check_classification_targets(y)
        if self.n_components is not None and self.n_components > X.shape[1]:
            raise ValueError(f"n_components={self.n_components} must be <= n_features={X.shape[1]}.")
        before = self.components_ if self.warm_start and hasattr(self, "components_") else None
        self.classes_, labels = np.unique(y, return_inverse=True)
        self._keep_units(X)
        with learning():
            self._learn_and_keep(self._standardised(X), labels, before)
        return self

    def _keep_units(self, X: np.ndarray) -> None:
        """The mean and the deviation of columns whose largest value is 1: squares of it do not overflow."""
        largest = np.abs(X).max(0)
        self._largest = np.where(largest > 0, largest, 1).astype(X.dtype)
        self._mean, spread = (X / self._largest).mean(0), (X / self._largest).std(0)
        self._scale = np.where(spread > 0, spread, 1).astype(X.dtype)

    def _standardised(self, X: np.ndarray) -> Tensor:
        """Deviations from the mean, kept so far from overflow that a map of them is finite."""
        farthest = float(np.finfo(X.dtype).max) ** 0.25
        with np.errstate(over="ignore"):
            rows = (X / self._largest - self._mean) / self._scale
        return torch.as_tensor(np.clip(rows, -farthest, farthest).astype(X.dtype), device=self.device)

    def _learn_and_keep(self, rows: Tensor, labels: np.ndarray, before: np.ndarray | None) -> None:
        start = self._first_map(rows) if before is None else torch.as_tensor(before).to(rows)
        if start.shape[1] != rows.shape[1] or start.shape[0] != (self.n_components or rows.shape[1]):
            raise ValueError(
                f"warm_start needs the features and n_components of the last fit: the map was "
                f"{tuple(start.shape)}, now there are {rows.shape[1]} features."
            )
        generator = torch.Generator().manual_seed(
            int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        )
        self.temperature_ = self._first_temperature(rows @ start.T, generator)
        self._learn(rows, torch.as_tensor(labels, device=rows.device), start, generator)
        self._votes = labels
        self._embedded = self._mapped(rows)
        self.n_samples_fit_ = len(rows)

    def _first_map(self, rows: Tensor) -> Tensor:
        """The identity, or the principal directions."""
        if self.n_components is None:
            return torch.eye(rows.shape[1], dtype=rows.dtype, device=rows.device)
        _, _, directions = torch.linalg.svd(rows - rows.mean(0), full_matrices=True)
        largest = directions.abs().argmax(1, keepdim=True)
        return (directions * directions.gather(1, largest).sign())[: self.n_components]

    def _first_temperature(self, points: Tensor, generator: torch.Generator) -> float:
        if self.temperature != "auto":
            return float(self.temperature)
        chosen = torch.randperm(len(points), generator=generator)[:_ROWS_TO_CALIBRATE].to(points.device)
        scores = nearness(points[chosen], points[chosen], "sqeuclidean")
        others = ~torch.eye(len(chosen), dtype=torch.bool, device=points.device)
        k, count = self.n_neighbors, len(chosen) - 1
        typical = -scores.mean().item() or 1.0
        if k >= count:
            return typical
        wanted = (1 + k / count) / 2  # of even weights k/count lies on any k
        try:
            found = calibrate_temperature(scores, k, weight_on_topk=wanted, mask=others, method=self.method)
        except ValueError:  # of rows that are equal no temperature makes k of them nearer
            return typical
        return float(torch.as_tensor(found).mean())

    def _learn(self, rows: Tensor, labels: Tensor, start: Tensor, generator: torch.Generator) -> None:
        linear = start.clone().requires_grad_()
        self.loss_curve_: list[float] = []
        steps = self.max_iter if len(self.classes_) > 1 else 0
        loss = NeighborLoss(
            self.n_neighbors, method=self.method, temperature=self.temperature_, normalize=False
        )
        optimizer = torch.optim.Adam([linear], lr=self.learning_rate)
        for step in range(steps):
            batch, wanted = rows, labels
            if len(rows) > self.batch_size:
                chosen = torch.randint(len(rows), (self.batch_size,), generator=generator).to(rows.device)
                batch, wanted = rows[chosen], labels[chosen]
            value = loss(batch @ linear.T, wanted)
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
            self.loss_curve_.append(value.item())
            if self.verbose and (step + 1) % max(1, steps // 10) == 0:
                print(f"[SoftKNeighborsClassifier] step {step + 1} of {steps}, loss {value.item():.4f}")  # noqa: T201
        self.n_iter_ = max(1, steps)
        self.components_ = linear.detach().cpu().numpy()

    def embed(self, X: Any) -> np.ndarray:
        """The rows in the learned space, (n_samples, n_components)."""
        check_is_fitted(self)
        X = validate_data(self, X, dtype=(np.float64, np.float32), reset=False)
        return self._mapped(self._standardised(X))

    def _mapped(self, rows: Tensor) -> np.ndarray:
        linear = torch.as_tensor(self.components_, dtype=rows.dtype, device=rows.device)
        return (rows @ linear.T).cpu().numpy()

    def _blocks_of_scores(self, X: Any, k: int) -> Any:
        points = torch.as_tensor(self.embed(X), device=self.device)
        if k > self.n_samples_fit_:
            raise ValueError(
                f"Expected n_neighbors <= n_samples_fit, but n_neighbors = {k}, n_samples_fit = "
                f"{self.n_samples_fit_}, n_samples = {len(points)}"
            )
        others = torch.as_tensor(self._embedded, device=self.device).to(points.dtype)
        return (
            nearness(points[rows], others, "sqeuclidean") for rows in blocks(len(points), len(others), None)
        )

    def kneighbors(self, X: Any, n_neighbors: int | None = None, return_distance: bool = True) -> Any:
        """The nearest training rows in the learned space, nearest first.

        Args:
            X: (n_samples, n_features).
            n_neighbors: how many; by default that of the classifier.
            return_distance: return (Euclidean distances, indices) instead of indices only.
        """
        check_is_fitted(self)
        k = self.n_neighbors if n_neighbors is None else n_neighbors
        if not isinstance(k, Integral):
            raise TypeError(f"n_neighbors does not take {type(k)} value, enter integer value")
        if k <= 0:
            raise ValueError(f"Expected n_neighbors > 0. Got {k}")
        found = [scores.topk(k) for scores in self._blocks_of_scores(X, k)]
        indices = torch.cat([part.indices for part in found]).cpu().numpy()
        distances = torch.cat([(-part.values).sqrt() for part in found]).cpu().numpy()
        return (distances, indices) if return_distance else indices

    def predict_proba(self, X: Any) -> np.ndarray:
        """The share of the votes for each class, (n_samples, n_classes)."""
        check_is_fitted(self)
        votes = torch.nn.functional.one_hot(
            torch.as_tensor(self._votes, device=self.device), len(self.classes_)
        )
        shares: list[Tensor] = []
        for scores in self._blocks_of_scores(X, self.n_neighbors):
            if self.weights == "uniform":
                weights = hard_topk(scores, self.n_neighbors)
            else:
                weights = topk(scores, self.n_neighbors, self.method, temperature=self.temperature_)
            shares.append(weights @ votes.to(weights.dtype))
        total = torch.cat(shares)
        return (total / total.sum(-1, keepdim=True)).cpu().numpy()

    def predict(self, X: Any) -> np.ndarray:
        """The class with the most votes; the first one on a tie."""
        check_is_fitted(self)
        return self.classes_[self.predict_proba(X).argmax(1)]
