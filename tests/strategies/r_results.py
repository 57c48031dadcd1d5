"""What the R scripts of ``tests/extra/r`` give, and how it is compared."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import scipy.stats
import torch

from khot.designs.survey import approximate_variance

HERE = Path(__file__).parent.parent / "extra" / "r"


def tensor(values):
    return torch.tensor(values, dtype=torch.float64)


def fits(counts, law):
    """χ² of R's counts of sets against probabilities."""
    sets = tensor([[float(bit) for bit in word] for word in counts])
    observed = tensor(list(counts.values()))
    p = law(sets)
    assert (p > 0).all(), "R draws only what is possible"
    expected = p * observed.sum()
    likely = expected > 5
    if likely.sum() < 2:
        return
    scaled = expected[likely] * observed[likely].sum() / expected[likely].sum()
    assert scipy.stats.chisquare(observed[likely], scaled).pvalue > 1e-4


def check_variances(golden):
    """Ours of each method, for the draws of ``golden_variances.R``."""
    for entry in golden:
        y, x, pi = (tensor(entry[name]) for name in ("y", "drawn", "probs"))
        for method in ("deville1", "deville2", "deville3"):
            torch.testing.assert_close(approximate_variance(y, x, pi, method), tensor(entry[method]))
        torch.testing.assert_close(approximate_variance(y, x, pi, "hajek"), tensor(entry["deville1"]))
        torch.testing.assert_close(approximate_variance(y, x, pi), tensor(entry["deville2"]))


def committed(file):
    """What a script printed when it was run last."""
    return json.loads((HERE / file).read_text("utf-8"))


def made_now(script):
    """What an R script of this folder prints, or a skipped test."""
    program = shutil.which("Rscript")
    if program is None:
        pytest.skip("Rscript is not installed (Debian: r-base-core)")
    done = subprocess.run([program, str(HERE / script)], capture_output=True, text=True, check=False)
    if done.returncode and "sampling" in done.stderr:
        pytest.skip("R has no package 'sampling' (Debian: r-cran-sampling)")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
