"""Each baseline of `khot reproduce features` selects k of a small problem, most of them the right ones."""

import numpy as np
import pytest

from khot_bench.reproduce.feature_selectors import SELECTORS, is_installed

KNOWN = [1, 6, 9]


def problem(rows=150, features=12, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, features)).astype(np.float32)
    return x, np.digitize(x[:, KNOWN].sum(1) + 0.1 * rng.normal(size=rows), [-1.0, 1.0])


@pytest.mark.filterwarnings("default")  # those of the packages are theirs
@pytest.mark.parametrize("name", SELECTORS)
def test_it_selects(name):
    selector = SELECTORS[name]
    if not is_installed(selector):
        pytest.skip(f"{selector.package} is not installed")
    chosen = selector.select(*problem(), (5, 3), 0)
    assert {k: len(set(features.tolist())) for k, features in chosen.items()} == {5: 5, 3: 3}
    if name != "random":
        assert len(set(chosen[5].tolist()) & set(KNOWN)) >= 2
