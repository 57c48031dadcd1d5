"""Against R's `sampling` package: committed values everywhere, and freshly made ones where R is installed."""

import itertools
import json

import pytest
import torch

from khot.designs import ConditionalPoisson, Cube, Midzuno, SequentialPivotal, Systematic, Tille
from khot.designs.survey import (
    hajek_mean,
    horvitz_thompson_total,
    horvitz_thompson_variance,
    inclusion_probabilities,
    sen_yates_grundy_variance,
)
from strategies.r_results import HERE, fits, made_now, tensor

GOLDEN = json.loads((HERE / "golden_designs.json").read_text("utf-8"))
CLOSED = {
    "maximum_entropy": ConditionalPoisson,
    "systematic": Systematic,
    "tille": Tille,
    "midzuno": Midzuno,
    "sequential_pivotal": SequentialPivotal,
}


def check_design(entry):
    pi = tensor(entry["probs"])
    k, n = round(float(pi.sum())), len(pi)
    made = {name: design(k, probs=pi) for name, design in CLOSED.items()}
    ours, theirs = made["maximum_entropy"].natural_parameters, tensor(entry["log_odds"])
    torch.testing.assert_close(ours - ours.mean(), theirs - theirs.mean(), rtol=1e-5, atol=1e-6)
    for name, accuracy in (
        ("maximum_entropy", 1e-5),
        ("systematic", 1e-9),
        ("tille", 1e-9),
        ("midzuno", 1e-9),
    ):
        joint = made[name].joint_inclusion
        torch.testing.assert_close(joint, tensor(entry[name]), rtol=accuracy, atol=min(1e-6, accuracy))
    for name, design in made.items():
        fits(entry[f"{name}_counts"], lambda sets, design=design: design.log_prob(sets).exp())
    orders = torch.tensor(list(itertools.permutations(range(n))))
    shuffled = SequentialPivotal(k, probs=pi[orders])
    fits(
        entry["random_pivotal_counts"],
        lambda sets: torch.stack([shuffled.log_prob(row[orders]).exp().mean() for row in sets]),
    )


def check_estimates(entry):
    pi = tensor(entry["probs"])
    n, k = len(pi), round(float(pi.sum()))
    y, x = torch.arange(1, n + 1, dtype=torch.float64) ** 2, (torch.arange(n) < k).double()
    joint = ConditionalPoisson(k, probs=pi).joint_inclusion
    torch.testing.assert_close(horvitz_thompson_total(y, x, pi), tensor(entry["total"][0]))
    torch.testing.assert_close(hajek_mean(y, x, pi), tensor(entry["hajek"][0]))
    estimates = torch.stack([horvitz_thompson_variance(y, x, joint), sen_yates_grundy_variance(y, x, joint)])
    # Their weights are solved for to 1e-6 only, and small π_ij are divided by.
    torch.testing.assert_close(estimates, tensor(entry["variances"]), rtol=1e-4, atol=1e-4)


def check_certain(entry):
    """R stops, or has zeros, where a unit is certain; here it is one more unit."""
    pi = tensor(entry["probs"])
    assert entry["maximum_entropy_counts"] == {}
    assert entry["maximum_entropy_pi2"].startswith("error")
    assert entry["all_certain"].startswith("error")
    assert entry["all_certain_tille"].startswith("error")
    assert tensor([float(value) for value in entry["tille_pi2"].split()])[0] == 0
    truth = tensor([[1.0, 0.5, 0.5], [0.5, 0.5, 0.0], [0.5, 0.0, 0.5]])
    for design in CLOSED.values():
        made = design(2, probs=pi)
        torch.testing.assert_close(made.joint_inclusion, truth)
        assert (made.sample((100,))[:, 0] == 1).all()
        assert (design(2, probs=tensor([1.0, 1.0, 0.0])).sample((5,)) == tensor([1.0, 1.0, 0.0])).all()


def check(golden):
    for entry in golden["designs"]:
        check_design(entry)
        check_estimates(entry)
    for entry in golden["sizes"]:
        for k, probs in enumerate(entry["probs"], 1):
            ours = inclusion_probabilities(tensor(entry["sizes"]), k)
            torch.testing.assert_close(ours, tensor(probs), rtol=1e-12, atol=1e-12)
    check_certain(golden["certain"])


def test_committed_values():
    check(GOLDEN)


def test_the_cube_is_as_balanced():
    """The same spread of balanced totals, by the same way of landing: within sampling error of 300 draws."""
    entry = GOLDEN["cube"]
    pi, balance = tensor(entry["probs"]), tensor(entry["balance"])
    design = Cube(15, probs=pi, balance=balance)
    x = design.sample((1000,), generator=torch.Generator().manual_seed(0))
    spread = ((x / pi) @ balance / balance.sum(0)).std(0)
    assert (spread / tensor(entry["relative_errors"])).log().abs().max() < 4.5 * (1 / 600 + 1 / 2000) ** 0.5


@pytest.mark.slow
def test_values_made_now():
    check(made_now("golden_designs.R"))
