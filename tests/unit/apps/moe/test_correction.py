"""The correction bias: counted in float32, moved once a step, whatever computes forward passes meanwhile."""

import copy

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from khot.apps.moe import TopKRouter, balance_experts, update_correction_biases


def made(seed=0):
    torch.manual_seed(seed)
    router = TopKRouter(6, 8, 2, score="sigmoid", correction_bias=True)
    nn.init.normal_(router.weight)
    return router


def stepped(passes):
    """Counts before, and the bias after, one step with these forward passes."""
    router = made()
    optimizer = torch.optim.SGD(router.parameters(), lr=0.0)
    balance_experts(router, optimizer, rate=0.01)
    passes(router)
    counts = router.expert_counts.clone()
    optimizer.step()
    assert router.expert_counts.sum() == 0
    return counts, router.e_score_correction_bias


X = torch.randn(64, 6, generator=torch.Generator().manual_seed(1))


def test_the_sign_rule_by_hand():
    counts, bias = stepped(lambda router: router(X).weights.sum().backward())
    chosen = made()(X).indices
    by_hand = torch.tensor([float((chosen == e).sum()) for e in range(8)])
    assert torch.equal(counts, by_hand)
    assert torch.equal(bias, 0.01 * (by_hand.mean() - by_hand).sign())


@pytest.mark.parametrize("reentrant", [True, False])
def test_what_is_computed_again_is_not_counted_again(reentrant):
    def again(router):
        x = X.clone().requires_grad_()
        run = checkpoint(lambda h: router(h).weights, x, use_reentrant=reentrant)
        run.sum().backward()

    counts, _ = stepped(again)
    assert counts.sum() == 128


def test_one_update_for_all_micro_batches_and_none_for_evaluation():
    def in_parts(router):
        for part in X.split(16):
            router(part).weights.sum().backward()
        router.eval()
        router(3 * X)
        router.train()

    whole, in_fours = stepped(lambda router: router(X).weights.sum().backward()), stepped(in_parts)
    assert torch.equal(whole[0], in_fours[0])
    assert torch.equal(whole[1], in_fours[1])
    assert whole[1].abs().max() == torch.tensor(0.01)


def test_balance_comes_and_weights_do_not_feel_the_bias():
    router = made()
    x = torch.randn(512, 6, generator=torch.Generator().manual_seed(2)) + 1.0

    def largest():
        return torch.bincount(router(x).indices.flatten(), minlength=8).max().item()

    first = largest()
    for _ in range(300):
        router.expert_counts.zero_()
        router(x)
        router.update_correction_bias(0.005)
    assert largest() < 0.6 * first
    assert largest() < 1.3 * 128
    logits, weights, indices = router(x)
    torch.testing.assert_close(weights, logits.sigmoid().gather(1, indices))


def test_counts_and_bias_stay_float32():
    router = made().to(torch.bfloat16)
    router.e_score_correction_bias.fill_(0.001)
    moved = copy.deepcopy(router).half().to("cpu")
    for one in (router, moved):
        assert one.weight.dtype in (torch.bfloat16, torch.float16)
        assert one.e_score_correction_bias.dtype == one.expert_counts.dtype == torch.float32
        assert torch.equal(one.e_score_correction_bias, torch.full((8,), 0.001))
    for _ in range(300):  # in bfloat16 counts would stand still at 256
        router(torch.ones(1, 6, dtype=torch.bfloat16))
    assert router.expert_counts.max() == 300


def test_all_routers_of_a_model():
    model = nn.ModuleList([made(), TopKRouter(6, 8, 2), made()])
    model[0](X)
    assert update_correction_biases(model) == 2
    assert model[0].e_score_correction_bias.abs().max() > 0
    assert model[2].e_score_correction_bias.abs().max() == 0


def test_a_handle_ends_it():
    router = made()
    optimizer = torch.optim.SGD(router.parameters(), lr=0.0)
    balance_experts(router, optimizer).remove()
    router(X)
    optimizer.step()
    assert router.e_score_correction_bias.abs().max() == 0


def test_errors():
    with pytest.raises(ValueError, match="has no correction bias; make it with correction_bias=True"):
        TopKRouter(6, 8, 2).update_correction_bias()
    with pytest.raises(ValueError, match="rate must be a number of at least 0, got -1"):
        made().update_correction_bias(-1)
    plain = TopKRouter(6, 8, 2)
    with pytest.raises(ValueError, match="model must have a router with a correction bias, got none"):
        balance_experts(plain, torch.optim.SGD(plain.parameters(), lr=0.1))


@pytest.mark.parametrize("how", ["assign", "to_empty"])
def test_a_router_without_memory_counts_once_it_has_some(how):
    source = made()
    with torch.device("meta"):
        router = TopKRouter(
            source.weight.shape[1], source.num_experts, source.k, score="sigmoid", correction_bias=True
        )
    torch.use_deterministic_algorithms(True)  # new memory is NaN
    try:
        if how == "to_empty":
            router.to_empty(device="cpu")
        router.load_state_dict(source.state_dict(), assign=how == "assign")
    finally:
        torch.use_deterministic_algorithms(False)
    router(torch.randn(5, source.weight.shape[1]))
    assert router.expert_counts.sum().item() == 5 * source.k
    update_correction_biases(router)
    assert router.e_score_correction_bias.isfinite().all()


def test_a_wrong_rate_is_refused_before_the_first_step():
    router = made()
    optimizer = torch.optim.SGD(router.parameters(), lr=0.1)
    with pytest.raises(ValueError, match="balance_experts: rate must be a number of at least 0, got -1"):
        balance_experts(router, optimizer, rate=-1)
