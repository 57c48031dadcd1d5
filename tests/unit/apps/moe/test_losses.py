"""Balance and z-loss against loops in plain Python, and beside the loss of transformers."""

import math

import pytest
import torch

from khot.apps.moe import TopKRouter, load_balance_loss, z_loss


def problem(tokens=24, experts=6, k=2, seed=0):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(tokens, experts, generator=generator, dtype=torch.float64)
    indices = torch.stack([torch.randperm(experts, generator=generator)[:k] for _ in range(tokens)])
    return logits, indices, torch.rand(tokens, generator=generator) > 0.4


def by_hand(logits, indices, mask, score="softmax"):
    """Over the tokens one by one."""
    experts, k = logits.shape[1], indices.shape[1]
    share, mass, count = [0.0] * experts, [0.0] * experts, 0
    for row, chosen, real in zip(logits.tolist(), indices.tolist(), mask.tolist(), strict=True):
        if not real:
            continue
        count += 1
        s = [math.exp(v) for v in row] if score == "softmax" else [1 / (1 + math.exp(-v)) for v in row]
        for e in range(experts):
            share[e] += e in chosen
            mass[e] += s[e] / sum(s)
    if count == 0:
        return 0.0
    return experts / k * sum(f / count * p / count for f, p in zip(share, mass, strict=True))


@pytest.mark.parametrize("score", ["softmax", "sigmoid"])
def test_switch_and_global_alone_are_the_loss_by_hand(score):
    logits, indices, mask = problem()
    for given in (None, mask):
        wanted = by_hand(logits, indices, torch.ones(24) if given is None else given, score)
        for kind in ("switch", "global"):
            found = load_balance_loss(logits, indices, kind, mask=given, score=score)
            assert found.item() == pytest.approx(wanted, rel=1e-12)


def test_memory_in_any_order():
    logits, indices, mask = problem()
    wanted = load_balance_loss(logits, indices, mask=mask)
    turned = logits.T.contiguous().T, indices.T.contiguous().T
    assert torch.equal(load_balance_loss(*turned, mask=mask), wanted)


def test_by_sequence_is_the_mean_over_sequences():
    logits, indices, mask = problem()
    parts = [slice(0, 8), slice(8, 16), slice(16, 24)]
    every = torch.ones(24)
    wanted = sum(by_hand(logits[p], indices[p], every[p]) for p in parts) / 3
    assert load_balance_loss(logits, indices, "sequence", sequences=3).item() == pytest.approx(wanted)
    mask[parts[1]] = False  # a sequence of padding alone has no say
    wanted = sum(by_hand(logits[p], indices[p], mask[p]) for p in parts) / 2
    found = load_balance_loss(logits, indices, "sequence", mask=mask.view(3, 8))
    assert found.item() == pytest.approx(wanted)


def test_the_scale_beside_that_of_transformers():
    """1 at balance, where theirs is k; and it sees the experts that were used, not those of softmax top-k."""
    theirs = pytest.importorskip("transformers.models.mixtral.modeling_mixtral").load_balancing_loss_func
    logits, _, mask = problem(tokens=64, experts=8)
    logits = logits.float()
    top = logits.topk(2).indices
    ours = load_balance_loss(logits, top)
    torch.testing.assert_close(2 * ours, theirs((logits,), 8, 2))
    mask = torch.cat([mask, mask, mask])[:64]
    torch.testing.assert_close(
        2 * load_balance_loss(logits, top, mask=mask), theirs((logits,), 8, 2, mask.view(4, 16).long())
    )
    even = torch.arange(128).view(64, 2) % 8
    skewed = logits + torch.tensor([4.0, 0, 0, 0, 0, 0, 0, 0])
    assert theirs((skewed,), 8, 2) / 2 > 2.5
    torch.testing.assert_close(load_balance_loss(skewed, even), torch.tensor(1.0))
    assert torch.isnan(theirs((logits,), 8, 2, torch.zeros(4, 16)))  # why we say 0


def test_all_padding_gives_zero_and_zero_gradients():
    logits, indices, _ = problem()
    logits.requires_grad_()
    none = torch.zeros(24, dtype=torch.bool)
    total = z_loss(logits, none) + load_balance_loss(logits, indices, mask=none)
    total = total + load_balance_loss(logits, indices, "sequence", mask=none, sequences=2)
    assert total.item() == 0
    total.backward()
    assert torch.equal(logits.grad, torch.zeros_like(logits))
    assert z_loss(logits[:0]).item() == 0
    assert load_balance_loss(logits[:0], indices[:0]).item() == 0


def test_gradients():
    logits, indices, mask = problem(tokens=6)
    logits.requires_grad_()
    for kind in ("switch", "sequence", "global"):
        parts = {"sequences": 2} if kind == "sequence" else {}
        assert torch.autograd.gradcheck(
            lambda x, kind=kind, parts=parts: load_balance_loss(x, indices, kind, mask=mask[:6], **parts),
            logits,
        )
    assert torch.autograd.gradcheck(lambda x: z_loss(x, mask[:6]), logits)


def test_the_gradient_evens_the_load():
    torch.manual_seed(0)
    router, x = TopKRouter(8, 4, 1), torch.randn(256, 8) + 1.0
    torch.nn.init.normal_(router.weight)
    optimizer = torch.optim.Adam(router.parameters(), lr=0.02)
    first = torch.bincount(router(x).indices.flatten(), minlength=4).max()
    for _ in range(100):
        routing = router(x)
        loss = load_balance_loss(routing.logits, routing.indices)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert torch.bincount(router(x).indices.flatten(), minlength=4).max() < min(0.8 * first, 100)


def test_z_loss_by_hand():
    logits, _, mask = problem()
    squares = [math.log(sum(math.exp(v) for v in row)) ** 2 for row in logits.tolist()]
    assert z_loss(logits).item() == pytest.approx(sum(squares) / 24)
    real = [s for s, keep in zip(squares, mask.tolist(), strict=True) if keep]
    assert z_loss(logits.view(2, 12, 6), mask.view(2, 12)).item() == pytest.approx(sum(real) / len(real))


def test_z_loss_of_the_largest_numbers_is_finite_and_still_makes_them_smaller():
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        largest = torch.finfo(dtype).max
        for rows in ([[largest, -largest]], [[-largest, -largest]], [[largest, largest], [1.0, 2.0]]):
            logits = torch.tensor(rows, dtype=dtype, requires_grad=True)
            loss = z_loss(logits)
            loss.backward()
            assert loss.isfinite()
            assert logits.grad.isfinite().all()
            assert logits.grad[0, 0].sign() == logits[0, 0].sign()
    assert z_loss(torch.full((1, 3), -torch.inf)).item() == torch.inf


def test_errors():
    logits, indices, mask = problem()
    for arguments, message in (
        ((logits, indices, "local"), "kind must be 'switch', 'sequence' or 'global', got 'local'"),
        ((logits[0], indices), r"logits must have the shape \(tokens, experts\)"),
        ((logits, indices[:3]), r"indices must have the shape \(tokens, k\) with 24 tokens, got \(3, 2\)"),
        ((logits, indices, "sequence"), "kind='sequence' needs sequences"),
        ((logits, indices + 5), r"indices must be in \[0, 5\], got"),
    ):
        with pytest.raises(ValueError, match=message):
            load_balance_loss(*arguments)
    with pytest.raises(ValueError, match="sequences must divide the 24 tokens, got 5"):
        load_balance_loss(logits, indices, "sequence", sequences=5)
    with pytest.raises(ValueError, match="sequences is for kind='sequence', got kind='switch'"):
        load_balance_loss(logits, indices, sequences=2)
    with pytest.raises(ValueError, match=r"mask must have the shape of the tokens, \(24,\)"):
        load_balance_loss(logits, indices, mask=mask[:5])
    with pytest.raises(ValueError, match="score must be 'softmax', 'sigmoid' or 'sqrtsoftplus', got 'relu'"):
        load_balance_loss(logits, indices, score="relu")


def test_both_losses_take_the_mask_of_a_batch():
    logits, indices = torch.randn(6, 4), torch.zeros(6, 2, dtype=torch.int64)
    mask = torch.tensor([[1, 1, 0], [0, 1, 1]])
    assert torch.equal(z_loss(logits, mask), z_loss(logits, mask.flatten()))
    assert torch.equal(z_loss(logits.view(2, 3, 4), mask), z_loss(logits, mask))
    assert torch.equal(
        load_balance_loss(logits, indices, mask=mask), load_balance_loss(logits, indices, mask=mask.flatten())
    )
    with pytest.raises(ValueError, match="z_loss: mask must have the shape"):
        z_loss(logits.view(2, 3, 4), mask.T)


def test_logits_of_all_layers_at_once_are_refused():
    logits, indices = torch.randn(6, 4), torch.zeros(6, 2, dtype=torch.int64)
    with pytest.raises(TypeError, match=r"load_balance_loss: logits must be the tensor .* got tuple"):
        load_balance_loss((logits, logits), indices)
    with pytest.raises(TypeError, match="z_loss: logits must be the tensor of one router, got tuple"):
        z_loss((logits, logits))
    with pytest.raises(TypeError, match=r"load_balance_loss: indices must be integers, got torch\.float32"):
        load_balance_loss(logits, indices.float())
