"""What `khot reproduce dictionary` compares: dictionaries of picture patches, each with its own coder."""

# pyright: basic
from __future__ import annotations

import functools
import importlib
import time
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np

from khot_bench.reproduce.ledger import Numbers

__all__ = [
    "ATOMS",
    "METHODS",
    "PASSES",
    "PICTURES",
    "SIDE",
    "TESTED",
    "TRAINED",
    "available",
    "denoise",
    "describe_patches",
]

PICTURES = ("astronaut", "brick", "camera", "chelsea", "coffee", "moon")
SIDE, PATCH, ATOMS, TRAINED, TESTED = 128, 8, 128, 2000, 2000
PASSES = 10
"""Of MiniBatchDictionaryLearning; ksvd has half as many, which take as long."""

ALPHA = {0: 0.1, 15: 0.3, 25: 0.5, 50: 1.0}
"""The ℓ1 penalty of MiniBatchDictionaryLearning by the noise: grows with it, not tuned further."""

Coder = Callable[[np.ndarray], np.ndarray]


def _topk(patches: np.ndarray, k: int, sigma: int, seed: int) -> Coder:
    from khot.apps.dictionary import TopKDictionary

    made = TopKDictionary(ATOMS, transform_n_nonzero_coefs=k, random_state=seed).fit(patches)
    return lambda some: made.inverse_transform(made.transform(some))


def _scikit_learn(patches: np.ndarray, k: int, sigma: int, seed: int) -> Coder:
    from sklearn.decomposition import MiniBatchDictionaryLearning

    options: Any = {"alpha": ALPHA[sigma], "max_iter": PASSES}
    made = MiniBatchDictionaryLearning(ATOMS, **options, transform_n_nonzero_coefs=k, random_state=seed).fit(
        patches
    )
    atoms = made.components_
    return lambda some: made.transform(some) @ atoms


def _ksvd(patches: np.ndarray, k: int, sigma: int, seed: int) -> Coder:
    np.random.seed(seed)  # noqa: NPY002 (the package draws from it)
    module = importlib.import_module("ksvd")
    made = module.ApproximateKSVD(ATOMS, max_iter=PASSES // 2, transform_n_nonzero_coefs=k)
    made.fit(patches.astype(np.float64))
    return lambda some: made.transform(some.astype(np.float64)) @ made.components_


def _spams(patches: np.ndarray, k: int, sigma: int, seed: int) -> Coder:
    spams = importlib.import_module("spams")
    np.random.seed(seed)  # noqa: NPY002 (the package draws from it)
    first = patches[np.random.permutation(len(patches))[:ATOMS]].T + 1e-3  # noqa: NPY002
    first = first / np.linalg.norm(first, axis=0)
    atoms = spams.trainDL(
        np.asfortranarray(patches.T, dtype=np.float64),
        D=np.asfortranarray(first, dtype=np.float64),
        mode=3,
        lambda1=k,
        iter=200,
        batchsize=512,
        numThreads=1,
        verbose=False,
    )

    def coded(some: np.ndarray) -> np.ndarray:
        codes = spams.omp(np.asfortranarray(some.T, dtype=np.float64), atoms, L=k, numThreads=1)
        return (atoms @ codes.toarray()).T

    return coded


METHODS: dict[str, Any] = {
    "TopKDictionary": _topk,
    "MiniBatchDictionaryLearning and OMP": _scikit_learn,
    "ksvd": _ksvd,
    "spams, ℓ0": _spams,
}


def available(method: str) -> bool:
    """Whether the package of a method is there."""
    needed = {"ksvd": "ksvd", "spams, ℓ0": "spams"}.get(method, "sklearn")
    return find_spec(needed) is not None


@functools.cache
def picture(name: str) -> np.ndarray:
    """The middle of a picture of scikit-image, in grey, SIDE × SIDE values in [0, 255]."""
    color, data, transform = (importlib.import_module(f"skimage.{m}") for m in ("color", "data", "transform"))
    image = getattr(data, name)()
    grey = color.rgb2gray(image[..., :3]) if image.ndim == 3 else image / 255.0
    short = min(grey.shape)
    top, left = ((length - short) // 2 for length in grey.shape)
    square = grey[top : top + short, left : left + short]
    return 255 * transform.resize(square, (SIDE, SIDE), anti_aliasing=True)


def _places(step: int) -> np.ndarray:
    last = SIDE - PATCH
    return np.unique(np.r_[0 : last + 1 : step, last])


def _patches(image: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Patches (n, 64) in float32 without their means, and these, for all pairs of places."""
    windows = np.lib.stride_tricks.sliding_window_view(image, (PATCH, PATCH))
    found = windows[rows[:, None], columns].reshape(-1, PATCH * PATCH) / 255
    means = found.mean(axis=1, keepdims=True)
    return (found - means).astype(np.float32), means


def _timed(method: str, train: np.ndarray, test: np.ndarray, k: int, sigma: int, seed: int) -> Any:
    begin = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        coder = METHODS[method](train, k, sigma, seed)
        middle = time.process_time()
        described = coder(test)
    return described, {"fit": middle - begin, "code": time.process_time() - middle}


def describe_patches(method: str, name: str, k: int, seed: int) -> Numbers:
    """Learn from patches of the left half of a picture; the error on its right half, as a share."""
    image, random = picture(name), np.random.default_rng(seed)
    rows, half = _places(1), SIDE // 2
    left, _ = _patches(image, rows, np.arange(half - PATCH))
    right, _ = _patches(image, rows, np.arange(half, SIDE - PATCH + 1))
    train, test = random.permutation(left)[:TRAINED], random.permutation(right)[:TESTED]
    described, numbers = _timed(method, train, test, k, 0, seed)
    return {**numbers, "error": float(np.square(test - described).sum() / np.square(test).sum())}


def denoise(method: str, name: str, sigma: int, k: int, seed: int) -> Numbers:
    """Learn from a noisy picture's patches, describe every second one by k atoms, average; PSNR in dB."""
    image, random = picture(name), np.random.default_rng(seed)
    noisy = image + sigma * random.normal(size=image.shape)
    every, places = _places(1), _places(2)
    train = random.permutation(_patches(noisy, every, every)[0])[:TRAINED]
    patches, means = _patches(noisy, places, places)
    described, numbers = _timed(method, train, patches, k, sigma, seed)
    total, count = np.zeros_like(image), np.zeros_like(image)
    values = 255 * (described + means).reshape(-1, PATCH, PATCH)
    corners = [(row, column) for row in places for column in places]
    for (row, column), value in zip(corners, values, strict=True):
        total[row : row + PATCH, column : column + PATCH] += value
        count[row : row + PATCH, column : column + PATCH] += 1
    return {**numbers, "psnr": psnr(image, total / count), "noisy": psnr(image, noisy)}


def psnr(image: np.ndarray, other: np.ndarray) -> float:
    """Peak signal-to-noise ratio for values up to 255."""
    return float(10 * np.log10(255**2 / np.square(image - other).mean()))
