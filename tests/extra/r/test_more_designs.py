"""Sampford and Brewer against R's `sampling` package: committed values, and fresh ones where R is."""

import json

import pytest
import torch

from khot.designs import Brewer, Sampford
from strategies.r_results import HERE, fits, made_now, tensor

GOLDEN = json.loads((HERE / "golden_more_designs.json").read_text("utf-8"))


def check(golden):
    for entry in golden["designs"]:
        pi = tensor(entry["probs"])
        k = round(float(pi.sum()))
        design = Sampford(k, probs=pi)
        torch.testing.assert_close(design.joint_inclusion, tensor(entry["sampford"]), rtol=1e-9, atol=1e-12)
        fits(entry["sampford_counts"], lambda sets, design=design: design.log_prob(sets).exp())
        drawn = Brewer(k, probs=pi).sample((400_000,), generator=torch.Generator().manual_seed(0))
        # Brewer's design has no log_prob: our draws are twenty times theirs, and stand for the law.
        fits(
            entry["brewer_counts"],
            lambda sets, drawn=drawn: (drawn.unsqueeze(0) == sets.unsqueeze(1)).all(-1).double().mean(1),
        )


def check_where_theirs_gives_up(entry):
    assert entry["upsampford"] == "Too many iterations. The algorithm was stopped."
    pi = tensor(entry["probs"])
    x = Sampford(60, probs=pi).sample((500,), generator=torch.Generator().manual_seed(0))
    assert (x.sum(-1) == 60).all()
    assert ((x.mean(0) - pi).abs() < 5.5 * (pi * (1 - pi) / 500).sqrt() + 1e-9).all()


def test_committed_values():
    check(GOLDEN)
    check_where_theirs_gives_up(GOLDEN["60_of_300"])


@pytest.mark.slow
def test_values_made_now():
    golden = made_now("golden_more_designs.R")
    check(golden)
    check_where_theirs_gives_up(golden["60_of_300"])
