"""The selectors that `khot reproduce features` compares, each a function of rows, labels, k and a seed.

A ranking gives the features of every k at once, best first; the others are fitted anew for each k. All see
the training rows alone, standardised where the method is not invariant, with the defaults of their
packages.
"""

# pyright: basic, reportMissingImports=false
from __future__ import annotations

import collections
import collections.abc
import contextlib
import functools
import io
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

import numpy as np
import torch

from khot.apps.features import TopKSelector

__all__ = ["SELECTORS", "Chosen", "Selector", "is_installed"]

Chosen = dict[int, np.ndarray]
"""Features by k."""


@dataclass(frozen=True)
class Selector:
    """A way to select.

    Args:
        select: from rows, labels, the ks and a seed to the features of each k.
        ranks: whether one fit serves every k.
        package: what it comes from.
        large_splits: on how many splits of the large sets it runs, 0 if it is for genes alone.
        gene_splits: on how many of the gene sets, 0 if rows are too few for it.
        once: sets where one split has to be enough, as it was stopped there.
        seconds: of processor time for one fit, after which it is stopped.
        slow: whether it waits until the others are done.
        note: what a reader of the table must know.
    """

    select: Callable[[np.ndarray, np.ndarray, Sequence[int], int], Chosen]
    ranks: bool = True
    package: str = "scikit-learn"
    large_splits: int = 5
    gene_splits: int = 5
    once: tuple[str, ...] = ()
    seconds: int = 240
    slow: bool = False
    note: str = ""


def is_installed(selector: Selector) -> bool:
    """Whether its package is there."""
    try:
        version(selector.package)
    except PackageNotFoundError:
        return False
    return True


def _best(scores: np.ndarray, ks: Sequence[int]) -> Chosen:
    order = np.argsort(-np.nan_to_num(scores, nan=-np.inf), kind="stable")
    return {k: order[:k] for k in ks}


def _standardised(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The columns that vary, with mean 0 and deviation 1, and where they are."""
    kept = np.flatnonzero(x.std(0) > 1e-6)
    x = x[:, kept].astype(np.float64)
    return (x - x.mean(0)) / x.std(0), kept


def _gates(x: np.ndarray, y: np.ndarray, ks: Sequence[int], seed: int, hidden: int = 64) -> Chosen:
    found = {k: TopKSelector(k, hidden_units=hidden, random_state=seed).fit(x, y) for k in ks}
    return {k: np.flatnonzero(np.asarray(selector.get_support())) for k, selector in found.items()}


def _random(x: np.ndarray, y: np.ndarray, ks: Sequence[int], seed: int) -> Chosen:
    order = np.random.default_rng(seed).permutation(x.shape[1])
    return {k: order[:k] for k in ks}


def _f_classif(x: np.ndarray, y: np.ndarray, ks: Sequence[int], seed: int) -> Chosen:
    from sklearn.feature_selection import f_classif

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # constant columns
        return _best(f_classif(x, y)[0], ks)


def _mutual_information(x: np.ndarray, y: np.ndarray, ks: Sequence[int], seed: int) -> Chosen:
    from sklearn.feature_selection import mutual_info_classif

    return _best(mutual_info_classif(x, y, random_state=seed), ks)


def _importances(x: np.ndarray, y: np.ndarray, ks: Sequence[int], seed: int) -> Chosen:
    from sklearn.ensemble import ExtraTreesClassifier

    return _best(ExtraTreesClassifier(200, random_state=seed).fit(x, y).feature_importances_, ks)


def _elimination(x: np.ndarray, y: np.ndarray, ks: Sequence[int], seed: int) -> Chosen:
    """The least important fifth goes, again and again, down to each k."""
    from sklearn.ensemble import ExtraTreesClassifier

    left, chosen = np.arange(x.shape[1]), {}
    for k in sorted(ks, reverse=True):
        while len(left) > k:
            found = ExtraTreesClassifier(50, random_state=seed).fit(x[:, left], y).feature_importances_
            keep = max(k, int(0.8 * len(left)))
            left = left[np.sort(np.argsort(-found, kind="stable")[:keep])]
        chosen[k] = left
    return chosen


def _boruta(x: np.ndarray, y: np.ndarray, ks: Sequence[int], seed: int) -> Chosen:
    from boruta import BorutaPy
    from sklearn.ensemble import RandomForestClassifier

    forest = RandomForestClassifier(max_depth=5, random_state=seed)
    found = BorutaPy(forest, n_estimators=100, max_iter=30, random_state=seed).fit(x, y)
    return _best(-found.ranking_.astype(float) + 1e-3 * forest.fit(x, y).feature_importances_, ks)


def _abess(x: np.ndarray, y: np.ndarray, ks: Sequence[int], seed: int) -> Chosen:
    from abess import LogisticRegression, MultinomialRegression

    z, kept = _standardised(x)
    kind = LogisticRegression if y.max() == 1 else MultinomialRegression
    chosen = {}
    for k in ks:
        found = np.asarray(kind(support_size=k).fit(z, y).coef_).reshape(z.shape[1], -1)
        chosen[k] = kept[np.argsort(-np.abs(found).sum(1), kind="stable")[:k]]
    return chosen


def _skscope(x: np.ndarray, y: np.ndarray, ks: Sequence[int], seed: int) -> Chosen:
    import jax
    import jax.numpy as jnp
    from skscope import ScopeSolver

    z, kept = _standardised(x)
    features, classes = z.shape[1], int(y.max()) + 1
    rows, wanted = jnp.asarray(z), jnp.asarray(np.eye(classes)[y])

    def loss(parameters: jax.Array) -> jax.Array:
        logits = rows @ parameters.reshape(features, classes)
        return -(jax.nn.log_softmax(logits) * wanted).sum(1).mean()

    groups = [feature for feature in range(features) for _ in range(classes)]
    chosen = {}
    for k in ks:
        solver = ScopeSolver(features * classes, sparsity=k, group=groups)
        solver.solve(loss, jit=True)
        chosen[k] = kept[np.unique(np.asarray(solver.get_support()) // classes)]
    return chosen


def _lassonet(x: np.ndarray, y: np.ndarray, ks: Sequence[int], seed: int) -> Chosen:
    """The last k features on its path, which ends when fewer are left; of those that leave at one step the
    ones with the larger weights beside the network.
    """
    from lassonet import LassoNetClassifier
    from lassonet.interfaces import HistoryItem

    z, kept = _standardised(x)
    last = np.zeros(z.shape[1])

    def note(model: LassoNetClassifier, path: Sequence[HistoryItem]) -> None:
        left = path[-1].selected.numpy().astype(bool)
        sizes = model.model.skip.weight.detach().norm(dim=0).numpy()
        last[left] = len(path) + (sizes / (1 + sizes))[left]
        if left.sum() < min(ks):
            raise StopIteration

    model = LassoNetClassifier(
        hidden_dims=(64,), M=10, path_multiplier=1.1, random_state=seed, torch_seed=seed, verbose=0
    )
    with contextlib.suppress(StopIteration):
        model.path(z.astype(np.float32), y, callback=note)
    return {k: kept[chosen] for k, chosen in _best(last, ks).items()}


def _stg(x: np.ndarray, y: np.ndarray, ks: Sequence[int], seed: int) -> Chosen:
    """Gates ranked by their means, at λ = 0.5; how many are open is not asked."""
    for name in collections.abc.__all__:  # stg imports them from where they were until Python 3.9
        setattr(collections, name, getattr(collections.abc, name))
    from stg import STG

    z, kept = _standardised(x)
    torch.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    with contextlib.redirect_stdout(io.StringIO()):
        model = STG(
            task_type="classification",
            input_dim=z.shape[1],
            output_dim=int(y.max()) + 1,
            hidden_dims=[64],
            activation="relu",
            optimizer="Adam",
            learning_rate=1e-3,
            batch_size=min(256, len(z)),
            feature_selection=True,
            sigma=0.5,
            lam=0.5,
            random_state=seed,
            device="cpu",
        )
        model.fit(z.astype(np.float32), y.astype(np.int64), nr_epochs=60, verbose=False)
        gates = model.get_gates(mode="raw")
    return {k: kept[chosen] for k, chosen in _best(np.asarray(gates), ks).items()}


SELECTORS: dict[str, Selector] = {
    "TopKSelector": Selector(_gates, ranks=False, package="khot"),
    "TopKSelector, linear": Selector(
        functools.partial(_gates, hidden=0),
        ranks=False,
        package="khot",
        large_splits=0,
        note="hidden_units=0",
    ),
    "SelectKBest(f_classif)": Selector(_f_classif),
    "SelectKBest(mutual information)": Selector(_mutual_information, slow=True),
    "ExtraTrees importances": Selector(_importances),
    "ExtraTrees elimination": Selector(
        _elimination, note="the least important fifth leaves, again and again"
    ),
    "abess": Selector(_abess, ranks=False, package="abess", note="multinomial regression, exactly k"),
    "skscope": Selector(
        _skscope,
        ranks=False,
        package="skscope",
        large_splits=1,
        once=("nci60",),
        note="the same loss, at most k",
    ),
    "lassonet": Selector(
        _lassonet,
        package="lassonet",
        large_splits=1,
        gene_splits=1,
        seconds=1200,
        slow=True,
        note="the k features last on its path, λ in steps of 10 %",
    ),
    "boruta": Selector(
        _boruta,
        package="boruta",
        large_splits=1,
        gene_splits=1,
        note="no k: its ranking, ties by a forest",
    ),
    "stg": Selector(
        _stg, package="stg", gene_splits=0, note="no k: gates ranked by their means, λ = 0.5, 60 epochs"
    ),
    "random": Selector(_random),
}
