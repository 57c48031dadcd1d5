r"""A dictionary in which every sample is a combination of exactly k atoms, in training and in coding:

.. math:: \min_{D, Z}\; \lVert X - Z D \rVert^2 \quad\text{with}\quad \lVert z_i \rVert_0 = k,\;
    \lVert d_j \rVert = 1,

solved by online learning, with codes from orthogonal least squares or matching pursuit.
``MiniBatchDictionaryLearning`` of scikit-learn learns with an ℓ1 penalty, whatever number of atoms its
``transform`` uses: you have to tune the penalty, and it solves another problem than ``transform``.
"""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from khot.apps.dictionary._matching_pursuit import Algorithm, codes_of
from khot.apps.dictionary._online import OnlineDictionary, first_atoms
from khot.relaxations._plain_arguments import check_switches, is_integer

try:
    from sklearn.base import (  # pyright: ignore[reportMissingTypeStubs]
        BaseEstimator,
        ClassNamePrefixFeaturesOutMixin,
        TransformerMixin,
    )
    from sklearn.utils import check_random_state  # pyright: ignore[reportMissingTypeStubs]
    from sklearn.utils.validation import (  # pyright: ignore[reportMissingTypeStubs]
        check_is_fitted,
        validate_data,
    )
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("khot.apps.dictionary needs scikit-learn: pip install 'khot[apps]'") from error

__all__ = ["TopKDictionary"]

Array = NDArray[Any]


class TopKDictionary(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    """Learn a dictionary in which each sample uses exactly k atoms; a scikit-learn transformer.

    Cost: for m atoms, O(k² m) per sample and O(m² d) per batch, besides the products of samples and atoms.

    Args:
        n_components: how many atoms; by default as many as features.
        transform_n_nonzero_coefs: k, the number of atoms per sample, in training and in ``transform``; by
            default a tenth of the features, at least one.
        transform_algorithm: how the next atom is chosen, in training too: ``"ols"`` takes the one that lowers
            the error most, ``"omp"`` the one with the largest correlation to the residual.
        transform_tol: in ``transform`` a sample takes no more atoms once its squared residual is at most
            this; for noise with standard deviation σ in d features, d (1.15 σ)² is usual.
        max_iter: passes over the data.
        batch_size: samples per step.
        shuffle: shuffle the samples in each pass.
        grow: learn with k/2 atoms per sample in the first half of the passes, then with k.
        replace_unused: replace atoms that are used less than this share of the mean by the samples with the
            largest error; 0 for never.
        dict_init: initial atoms (n_components, n_features); by default randomly drawn samples.
        tol: stop if the error falls by less than this share in each of ``max_no_improvement`` passes in a
            row, counted once k has grown; 0 for never.
        max_no_improvement: see ``tol``.
        split_sign: code positive and negative parts as separate features.
        random_state: seed for the initial atoms and the order of samples.
        callback: called after each pass with the estimator, which has ``components_``, ``n_iter_`` and
            ``error_``.
        verbose: print the error of each pass.

    Attributes: ``components_`` (n_components, n_features), atoms of length one; ``error_``, the squared error
    of the last pass as a share of the samples' sum of squares; ``n_iter_`` passes and ``n_steps_`` batches;
    ``n_features_in_``.

    float32 data is processed in float32. Samples are not centred; for image patches, subtract their means
    first.

    Example:
        >>> random = np.random.default_rng(0)
        >>> atoms = random.normal(size=(20, 12))
        >>> codes = np.zeros((500, 20))
        >>> for row in codes:
        ...     row[random.permutation(20)[:2]] = random.normal(size=2)
        >>> dictionary = TopKDictionary(20, transform_n_nonzero_coefs=2, random_state=0).fit(codes @ atoms)
        >>> found = dictionary.transform(codes @ atoms)
        >>> found.shape, int((found != 0).sum(axis=1).max())
        ((500, 20), 2)

    Reference: Mairal, Bach, Ponce & Sapiro (2010); Rubinstein, Zibulevsky & Elad (2008).
    """

    components_: Array
    error_: float
    n_iter_: int
    n_features_in_: int

    def __init__(
        self,
        n_components: int | None = None,
        *,
        transform_n_nonzero_coefs: int | None = None,
        transform_algorithm: Algorithm = "ols",
        transform_tol: float | None = None,
        max_iter: int = 20,
        batch_size: int = 512,
        shuffle: bool = True,
        grow: bool = True,
        replace_unused: float = 0.01,
        dict_init: Any = None,
        tol: float = 1e-3,
        max_no_improvement: int = 3,
        split_sign: bool = False,
        random_state: Any = None,
        callback: Callable[[TopKDictionary], object] | None = None,
        verbose: bool = False,
    ) -> None:
        self.n_components = n_components
        self.transform_n_nonzero_coefs = transform_n_nonzero_coefs
        self.transform_algorithm: Algorithm = transform_algorithm
        self.transform_tol = transform_tol
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.grow = grow
        self.replace_unused = replace_unused
        self.dict_init = dict_init
        self.tol = tol
        self.max_no_improvement = max_no_improvement
        self.split_sign = split_sign
        self.random_state = random_state
        self.callback = callback
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None) -> TopKDictionary:
        """Learn from samples (n, features); returns the estimator."""
        samples = self._samples(X, reset=True)
        k = self._checked(samples)
        random = check_random_state(self.random_state)
        self._begin(samples, random)
        idle, before = 0, math.inf
        for passed in range(self.max_iter):
            half = self.grow and 2 * passed < self.max_iter
            errors, squares = 0.0, 0.0
            replace = self.replace_unused if 5 * passed < 4 * self.max_iter else 0.0
            for batch in self._batches(samples, random):
                size = math.ceil(k / 2) if half else k
                error, square = self._online.learn(batch, size, replace, self.transform_algorithm)
                errors, squares = errors + error, squares + square
            self._finish(passed + 1, errors / squares if squares > 0 else 0.0)
            idle = idle + 1 if not half and self.error_ > (1 - self.tol) * before else 0
            before = math.inf if half else self.error_
            if self.tol > 0 and idle >= self.max_no_improvement:
                break
        return self

    def partial_fit(self, X: Any, y: Any = None) -> TopKDictionary:
        """Learn from more samples, in the given order; returns the estimator."""
        fresh = not hasattr(self, "_online")
        samples = self._samples(X, reset=fresh)
        k = self._checked(samples)
        if fresh:
            self._begin(samples, check_random_state(self.random_state))
        errors, squares = 0.0, 0.0
        for first in range(0, len(samples), self.batch_size):
            batch = samples[first : first + self.batch_size].astype(self._online.atoms.dtype, copy=False)
            error, square = self._online.learn(batch, k, self.replace_unused, self.transform_algorithm)
            errors, squares = errors + error, squares + square
        self._finish(getattr(self, "n_iter_", 0) + 1, errors / squares if squares > 0 else 0.0)
        return self

    def transform(self, X: Any) -> Array:
        """Codes (n, n_components) with k entries each; twice as wide with ``split_sign``."""
        check_is_fitted(self, "components_")
        samples = self._samples(X, reset=False)
        k = self._checked(samples)
        atoms = self.components_.astype(samples.dtype, copy=False)
        codes = codes_of(atoms, samples, k, algorithm=self.transform_algorithm, tol=self.transform_tol)
        if self.split_sign:
            return np.concatenate([np.maximum(codes, 0), np.maximum(-codes, 0)], axis=1)
        return codes

    def inverse_transform(self, X: Any) -> Array:
        """Samples (n, features) from codes."""
        check_is_fitted(self, "components_")
        codes = np.asarray(X)
        count = len(self.components_)
        if codes.ndim != 2 or codes.shape[1] != count * (1 + self.split_sign):
            raise ValueError(
                f"TopKDictionary: codes must have {count * (1 + self.split_sign)} columns, got the shape "
                f"{codes.shape}"
            )
        if self.split_sign:
            codes = codes[:, :count] - codes[:, count:]
        return codes @ self.components_

    @property
    def _n_features_out(self) -> int:
        """For ``get_feature_names_out``."""
        return len(self.components_) * (1 + self.split_sign)

    def __sklearn_tags__(self) -> Any:
        tags: Any = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags

    def _samples(self, X: Any, *, reset: bool) -> Array:
        samples = cast("Array", validate_data(self, X, reset=reset, dtype=[np.float64, np.float32]))
        # Sums of squares of samples and codes must be finite; this leaves room for 10⁷ terms or more.
        limit = float(np.finfo(samples.dtype).max) ** 0.4
        largest = float(np.abs(samples).max(initial=0.0))
        if largest > limit:
            raise ValueError(
                f"TopKDictionary: X must have values of at most {limit:.1g} ({samples.dtype}), "
                f"got {largest:.3g}; divide X by a constant"
            )
        return samples

    def _begin(self, samples: Array, random: np.random.RandomState) -> None:
        count = samples.shape[1] if self.n_components is None else self.n_components
        if self.dict_init is None:
            atoms = first_atoms(samples, count, random)
        else:
            atoms = np.array(self.dict_init, dtype=samples.dtype)
            if atoms.shape != (count, samples.shape[1]):
                raise ValueError(
                    f"TopKDictionary: dict_init must have the shape {(count, samples.shape[1])}, "
                    f"got {atoms.shape}"
                )
            lengths = np.sqrt(np.square(atoms).sum(axis=1, keepdims=True))
            if not (lengths > 0).all():
                raise ValueError("TopKDictionary: dict_init must have no atom of zeros")
            atoms = atoms / lengths
        self._online = OnlineDictionary.from_atoms(atoms)

    def _batches(self, samples: Array, random: np.random.RandomState) -> Iterator[Array]:
        order = random.permutation(len(samples)) if self.shuffle else np.arange(len(samples))
        for first in range(0, len(order), self.batch_size):
            yield samples[order[first : first + self.batch_size]]

    def _finish(self, passes: int, error: float) -> None:
        self.components_ = self._online.atoms.copy()
        self.n_iter_, self.n_steps_, self.error_ = passes, self._online.steps, error
        if self.verbose:
            print(f"TopKDictionary: pass {passes}, error {error:.4f}", flush=True)  # noqa: T201
        if self.callback is not None:
            self.callback(self)

    def _checked(self, samples: Array) -> int:
        features = samples.shape[1]
        for name, least in (
            ("max_iter", 1),
            ("batch_size", 1),
            ("max_no_improvement", 1),
            ("n_components", 1),
        ):
            _integer(name, getattr(self, name), least, optional=name == "n_components")
        check_switches("TopKDictionary", shuffle=self.shuffle, grow=self.grow, split_sign=self.split_sign)
        for name in ("tol", "replace_unused", "transform_tol"):
            value: Any = getattr(self, name)
            good = isinstance(value, (int, float, np.number)) and 0 <= float(value) < math.inf
            if not (good or (value is None and name == "transform_tol")):
                raise ValueError(f"TopKDictionary: {name} must be a number of at least 0, got {value!r}")
        if self.transform_algorithm not in ("ols", "omp"):
            raise ValueError(
                "TopKDictionary: transform_algorithm must be 'ols' or 'omp', got "
                f"{self.transform_algorithm!r}"
            )
        most = min(features, features if self.n_components is None else self.n_components)
        k = self.transform_n_nonzero_coefs
        _integer("transform_n_nonzero_coefs", k, 1, optional=True)
        if k is None:
            return min(max(features // 10, 1), most)
        if k > most:
            raise ValueError(
                f"TopKDictionary: transform_n_nonzero_coefs must be at most {most}, the smaller of atoms and "
                f"features, got {k}"
            )
        return k


def _integer(name: str, value: Any, least: int, *, optional: bool) -> None:
    if not ((optional and value is None) or (is_integer(value) and value >= least)):
        kind = "None or an integer" if optional else "an integer"
        raise ValueError(f"TopKDictionary: {name} must be {kind} of at least {least}, got {value!r}")
