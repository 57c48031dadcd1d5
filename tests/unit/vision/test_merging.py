"""Merging, against loops over tokens, and what it must keep."""

import torch

from khot.vision.tokens._merging import merge


def by_loops(tokens, keys, sizes, gone):
    """One round for one image: the ``gone`` strongest ties from odd to even places are merged."""
    n = len(tokens)
    ties = []
    for i in range(1, n, 2):
        similarity = [torch.cosine_similarity(keys[i], keys[j], dim=0).item() for j in range(0, n, 2)]
        best = max(range(len(similarity)), key=similarity.__getitem__)
        ties.append((similarity[best], i, 2 * best))
    groups = {j: [j] for j in range(n)}
    for _, i, j in sorted(ties, reverse=True)[:gone]:
        groups[j].append(i)
        del groups[i]
    return {
        j: (
            sum(sizes[i] * tokens[i] for i in group) / sum(sizes[i] for i in group),
            sum(sizes[i] for i in group),
        )
        for j, group in groups.items()
    }


def test_one_round_against_loops():
    generator = torch.Generator().manual_seed(0)
    for n, k in ((6, 4), (7, 4), (12, 11), (13, 7)):
        tokens, keys = torch.randn(2, 3, n, 4, generator=generator)
        sizes = torch.randint(1, 5, (3, n), generator=generator).float()
        got = merge(tokens, keys, sizes, k)
        for row in range(3):
            expected = by_loops(tokens[row], keys[row], sizes[row], n - k)
            assert set(got.indices[row].tolist()) == set(expected)
            for token, size, index in zip(got.tokens[row], got.sizes[row], got.indices[row], strict=True):
                torch.testing.assert_close(token, expected[int(index)][0])
                assert size == expected[int(index)][1]


def test_many_rounds_keep_the_sum():
    generator = torch.Generator().manual_seed(1)
    tokens, keys = torch.randn(2, 5, 40, 4, generator=generator)
    got = merge(tokens, keys, torch.ones(5, 40), 3)
    assert got.tokens.shape == (5, 3, 4)
    assert (got.sizes.sum(1) == 40).all()
    torch.testing.assert_close(
        (got.tokens * got.sizes.unsqueeze(-1)).sum(1), tokens.sum(1), atol=1e-5, rtol=1e-5
    )


def test_equal_tokens_are_merged_before_others():
    keys = torch.eye(8)[torch.tensor([0, 1, 2, 2, 3, 4, 5, 5])].unsqueeze(0)
    got = merge(keys.clone(), keys, torch.ones(1, 8), 6)
    torch.testing.assert_close(got.tokens.sort(1).values, torch.eye(8)[:6].unsqueeze(0).sort(1).values)


def test_padding_goes_first_and_changes_nothing():
    tokens = torch.randn(1, 10, 4, generator=torch.Generator().manual_seed(2))
    sizes = torch.ones(1, 10)
    sizes[:, 1::2] = 0
    got = merge(tokens, tokens, sizes, 5)
    order = got.indices[0].argsort()
    assert got.indices[0][order].tolist() == [0, 2, 4, 6, 8]
    torch.testing.assert_close(got.tokens[0][order], tokens[0, 0::2])
    assert torch.equal(got.sizes, torch.ones(1, 5))
