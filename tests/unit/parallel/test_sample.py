"""Samples of rows that several processes hold: the same for any number of them, and of the right law."""

import math

import pytest
import torch

import khot
from khot import parallel
from khot.designs._arguments import normalised
from khot.designs.pivotal._duels import draw_all, duels, pivotal_tree
from khot.parallel._uniforms import numbered_uniforms, stream_seed
from strategies.thread_group import in_threads, unwrapped

CUTS = ([30], [5, 25], [7, 0, 20, 3], [0, 30, 0], [1] * 30)


def probabilities(k, seed=0):
    x = torch.randn(2, 30, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return khot.sigmoid_topk(x, k)


def seeded(seed=5):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("design", ["systematic", "tree_pivotal"])
@pytest.mark.parametrize("k", [1, 3, 7.5, 29, 30])
def test_the_same_wherever_the_row_is_cut(design, k):
    p = probabilities(k)
    drawn = []
    for cut in CUTS:

        def work(group, cut=cut):
            part = p.split(cut, -1)[group.rank]
            return parallel.sample(
                probs=part, k=k, design=design, sample_shape=(5, 2), generator=seeded(), group=group
            )

        drawn.append(torch.cat(unwrapped(in_threads(len(cut), work)), -1))
    assert all(torch.equal(each, drawn[0]) for each in drawn)
    assert drawn[0].shape == (5, 2, 2, 30)
    assert set(drawn[0].sum(-1).unique().tolist()) <= {math.floor(k), math.ceil(k)}


def test_systematic_is_that_of_one_process():
    for k in (3, 7.5):
        p = probabilities(k)
        one = khot.sample(probs=p, k=k, design="systematic", sample_shape=(50,), generator=seeded())
        other = parallel.sample(probs=p, k=k, design="systematic", sample_shape=(50,), generator=seeded())
        assert torch.equal(one, other)


def test_tree_pivotal_is_the_tree_of_one_process():
    """With the same uniform variables as the tree of the whole row, built by the design itself."""
    p, k = probabilities(4), 4
    padded = torch.nn.functional.pad(normalised(p, k), (0, 1))  # the unit for a k that is not whole
    tree = pivotal_tree(padded)
    seed = stream_seed(seeded(), torch.device("cpu"))
    u = numbered_uniforms(seed, torch.arange(6).view(-1, 1), torch.arange(31)).view(3, 2, 31)
    whole = draw_all(tree, k, torch.Size((3, 2)), duels(u))[..., :30]
    assert torch.equal(
        parallel.sample(probs=p, k=k, sample_shape=(3,), generator=seeded()), whole.to(p.dtype)
    )


@pytest.mark.parametrize("design", ["systematic", "tree_pivotal"])
def test_inclusion_probabilities(design):
    p = probabilities(4)[:1]
    x = parallel.sample(probs=p, k=4, design=design, sample_shape=(20_000,), generator=seeded())
    apart = (x.mean(0) - p).abs() / (p * (1 - p) / 20_000).sqrt()
    assert apart.max() < 4.5  # 30 normal variables; once in 5000


def test_uniforms_are_uniform_and_streams_differ():
    u = numbered_uniforms(3, torch.arange(20).view(-1, 1), torch.arange(5000))
    assert (u >= 0).all()
    assert (u < 1).all()
    counts = torch.histc(u, 50, 0, 1)
    assert ((counts - 2000).square() / 2000).sum() < 100  # χ² of 49: once in 10⁵
    assert torch.corrcoef(u).fill_diagonal_(0).abs().max() < 0.08  # 5 σ
    assert abs(torch.corrcoef(torch.stack([u[0, :-1], u[0, 1:]]))[0, 1]) < 0.07


def test_scores_masks_infinities_and_short_rows():
    x = torch.randn(3, 30, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    x[0, 4], x[1, :28] = math.inf, -math.inf
    mask = torch.ones(3, 30, dtype=torch.bool)
    mask[2, 10:] = False
    for design in ("systematic", "tree_pivotal"):

        def work(group, design=design):
            part, allowed = (t.split([12, 18], -1)[group.rank] for t in (x, mask))
            return parallel.sample(
                part, 5, design=design, mask=allowed, sample_shape=(9,), generator=seeded(), group=group
            )

        drawn = torch.cat(unwrapped(in_threads(2, work)), -1)
        assert drawn.sum(-1).tolist() == [[5.0, 2.0, 5.0]] * 9
        assert (drawn[:, 0, 4] == 1).all()
        assert (drawn[:, 2, 10:] == 0).all()
        alone = parallel.sample(
            x, 5, design=design, mask=mask, sample_shape=(9,), generator=seeded(), group=None
        )
        assert torch.equal(alone, drawn)


def test_without_a_generator_the_first_process_decides():
    p = probabilities(3)

    def work(group):
        return parallel.sample(probs=p.split([10, 20], -1)[group.rank], k=3, group=group)

    assert torch.cat(unwrapped(in_threads(2, work)), -1).sum(-1).tolist() == [3.0, 3.0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"design": "pareto"}, "design must be 'systematic' or 'tree_pivotal', got 'pareto'"),
        ({"sample_shape": (2, -1)}, r"sample_shape must not be negative, got \(2, -1\)"),
        ({"k": 31}, "k must satisfy 0 <= k <= n = 30, got k = 31"),
        ({"k": 5}, "probs must sum to k = 5 over all processes"),
        ({"probs": torch.full((30,), 2.0)}, "probs must lie in"),
        ({"largest": False}, "largest=False is for scores"),
        ({"scores": torch.zeros(30)}, "give one of scores, probs, got scores and probs"),
    ],
)
def test_wrong_arguments(arguments, message):
    given = {"probs": torch.full((30,), 0.1), "k": 3, **arguments}
    with pytest.raises(ValueError, match=message):
        parallel.sample(given.pop("scores", None), given.pop("k"), **given)


def test_a_number_is_no_shape():
    with pytest.raises(TypeError, match="sample: sample_shape must be a tuple of integers, got 3"):
        parallel.sample(probs=torch.full((30,), 0.1), k=3, sample_shape=3)


@pytest.mark.parametrize("n", range(1, 12))
def test_rows_of_every_length(n):
    k = min(3, n)
    drawn = parallel.sample(torch.randn(2, n, generator=torch.Generator().manual_seed(n)), k)
    assert drawn.sum(-1).tolist() == [k, k]
    assert parallel.sample(torch.empty(0, n), k).shape == (0, n)
