"""Statistics of routers, counted by hand."""

import math

import pytest
import torch
from torch.utils.checkpoint import checkpoint

from khot.apps.moe import (
    Experts,
    MoE,
    RoutingStatistics,
    TopKRouter,
    mask_padding,
    record_routing,
    replay_routing,
    watch_routing,
)


def test_counted_by_hand():
    statistics = RoutingStatistics(4)
    indices = torch.tensor([[0, 1], [0, 2], [3, 2], [1, 0]])
    mask = torch.tensor([1, 1, 0, 1])
    kept = torch.tensor([[1, 1], [1, 0], [1, 1], [1, 1]]).bool()
    first = statistics.update(indices, mask, kept)
    assert first.tokens == 3
    assert first.usage == pytest.approx((3 / 5, 2 / 5, 0, 0))
    assert first.entropy == pytest.approx(-(0.6 * math.log(0.6) + 0.4 * math.log(0.4)) / math.log(4))
    assert (first.idle, first.overlap) == (2, None)
    assert first.dropped == pytest.approx(1 / 6)
    second = statistics.update(indices.flip(1) * torch.tensor([[1], [1], [1], [3]]), mask)
    assert second.overlap == pytest.approx((2 + 2 + 1) / 6)  # the last token went from {1, 0} to {0, 3}
    assert statistics.update(indices[:2]).overlap is None
    assert statistics.usage.sum().item() == pytest.approx(1)
    assert statistics.table().count("\n") == 4
    assert statistics.table(last=1).splitlines()[-1].startswith("| 2 | 2 |")


def test_even_use_and_one_expert():
    statistics = RoutingStatistics(4)
    assert statistics.update(torch.arange(8).view(8, 1) % 4).entropy == pytest.approx(1)
    assert statistics.update(torch.zeros(8, 1, dtype=torch.int64)).entropy == 0
    nothing = statistics.update(torch.zeros(8, 1, dtype=torch.int64), torch.zeros(8))
    assert (nothing.tokens, nothing.entropy, nothing.dropped) == (0, 0, 0)
    assert RoutingStatistics(1).update(torch.zeros(2, 1, dtype=torch.int64)).entropy == 1


def test_the_picture():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    statistics = RoutingStatistics(4, "first layer")
    for _ in range(3):
        statistics.update(torch.arange(8).view(8, 1) % 4)
    axes = statistics.plot()
    assert axes.get_title() == "first layer"
    assert len(axes.collections) == 4
    assert statistics.plot(axes) is axes
    matplotlib.pyplot.close("all")


def layers():
    torch.manual_seed(0)
    return torch.nn.Sequential(*(MoE(TopKRouter(6, 4, 2), Experts(4, 6, 8)) for _ in range(2)))


def test_watching_a_model():
    model, x = layers(), torch.randn(3, 5, 6)
    with watch_routing(model) as statistics:
        model(x)
        with mask_padding(model, torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [0, 0, 0, 0, 0]])):
            model(x)
    model(x)
    assert list(statistics) == ["0.router", "1.router"]
    assert [step.tokens for step in statistics["1.router"].steps] == [15, 7]
    assert model[0].router.token_mask is None


def test_recorded_choices_are_replayed():
    model, x = layers(), torch.randn(10, 6)
    with record_routing(model) as recorded:
        model(x)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.5 * torch.randn_like(parameter))
    with record_routing(model) as other:
        model(x)
    assert not torch.equal(other["0.router"], recorded["0.router"])
    with replay_routing(model, recorded), record_routing(model) as again:
        model(x).sum().backward()
    assert all(torch.equal(again[name], recorded[name]) for name in recorded)
    assert model[1].router.weight.grad.abs().sum() > 0
    assert model[0].router.replayed_indices is None
    with (
        pytest.raises(ValueError, match=r"no router is named 'x'; there are 0\.router, 1\.router"),
        replay_routing(model, {"x": recorded["0.router"]}),
    ):
        pass


def test_errors():
    with (
        pytest.raises(ValueError, match="Linear has no TopKRouter and no replaced router"),
        watch_routing(torch.nn.Linear(2, 2)),
    ):
        pass
    with pytest.raises(ValueError, match="num_experts must be at least 1, got 0"):
        RoutingStatistics(0)


def test_dropped_places_are_seen_and_what_is_computed_again_is_not():
    layer = MoE(TopKRouter(6, 4, 2), Experts(4, hidden=6, width=8), capacity=3, drop="position")
    x = torch.randn(20, 6, requires_grad=True)
    mask = torch.arange(20) > 4
    with watch_routing(layer) as watched:
        checkpoint(layer, x, mask, use_reentrant=False).sum().backward()
    _, routing = layer(x, mask, return_routing=True)
    (step,) = watched["router"].steps
    assert step.tokens == 15
    assert step.dropped == pytest.approx((routing.weights[mask] == 0).float().mean().item())
    assert step.dropped > 0.5


def test_no_step_has_an_empty_picture():
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    assert RoutingStatistics(4).plot().get_xlabel() == "step"
    matplotlib.pyplot.close("all")


@pytest.mark.parametrize(
    ("indices", "options", "error", "message"),
    [
        ([0, 1], {}, ValueError, r"RoutingStatistics: indices must have the shape \(tokens, k\), got \(2,\)"),
        ([[4]], {}, ValueError, r"RoutingStatistics: indices must be in \[0, 3\], got 4 to 4"),
        ([[0.5]], {}, TypeError, "RoutingStatistics: indices must be integers, got torch.float32"),
        (
            [[0]],
            {"kept": torch.ones(1, 2).bool()},
            ValueError,
            r"kept must be boolean .* \(1, 2\)",
        ),
        (
            [[0]],
            {"kept": torch.ones(1, 1)},
            ValueError,
            r"kept must be boolean .* got torch\.float32",
        ),
    ],
)
def test_wrong_updates(indices, options, error, message):
    with pytest.raises(error, match=message):
        RoutingStatistics(4).update(torch.tensor(indices), **options)
