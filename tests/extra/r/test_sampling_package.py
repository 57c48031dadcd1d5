"""Against R's `sampling` package: committed values everywhere, and freshly made ones where R is installed."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest
import scipy.stats
import torch

from khot.designs import ConditionalPoisson, Systematic

HERE = Path(__file__).parent
GOLDEN = json.loads((HERE / "golden_designs.json").read_text("utf-8"))


def tensor(values):
    return torch.tensor(values, dtype=torch.float64)


def check(entry):
    pi = tensor(entry["probs"])
    k = round(float(pi.sum()))
    design = ConditionalPoisson(k, probs=pi)
    theirs = tensor(entry["log_odds"])
    ours = design.natural_parameters
    torch.testing.assert_close(ours - ours.mean(), theirs - theirs.mean(), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(design.joint_inclusion, tensor(entry["maximum_entropy"]), rtol=1e-5, atol=1e-6)
    systematic = Systematic(k, probs=pi)
    torch.testing.assert_close(systematic.joint_inclusion, tensor(entry["systematic"]), rtol=1e-9, atol=1e-9)
    for made, counts in ((design, "maximum_entropy_counts"), (systematic, "systematic_counts")):
        check_counts(entry[counts], lambda sets, made=made: made.log_prob(sets).exp())


def check_counts(counts, law):
    """How often R drew each set, against probabilities."""
    sets = tensor([[float(bit) for bit in word] for word in counts])
    observed = tensor(list(counts.values()))
    expected = law(sets) * observed.sum()
    likely = expected > 5
    assert expected[likely].sum() > 0.999 * observed.sum()
    scaled = expected[likely] * observed[likely].sum() / expected[likely].sum()
    assert scipy.stats.chisquare(observed[likely], scaled).pvalue > 1e-4


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


@pytest.mark.parametrize("entry", GOLDEN, ids=lambda entry: f"n={len(entry['probs'])}")
def test_committed_values(entry):
    check(entry)


def test_values_made_now():
    for entry in made_now("golden_designs.R"):
        check(entry)
