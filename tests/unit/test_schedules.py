"""khot.schedules: temperatures that fall while training, and the scheduler that sets them."""

import itertools
import math

import pytest
import torch
from torch import nn

from khot.apps.sparse import cubic
from khot.nn import LaplaceTopK, SigmoidTopK
from khot.schedules import TemperatureScheduler, constant, cosine, exponential

SCHEDULES = [exponential, cosine]


def test_constant_is_constant():
    assert {constant(0.3)(step) for step in (0, 1, 10**6)} == {0.3}


@pytest.mark.parametrize("make", SCHEDULES)
@pytest.mark.parametrize(("start", "end"), [(1.0, 0.01), (0.1, 3.0), (0.7, 0.7)])
def test_the_ends_are_as_told_and_kept(make, start, end):
    schedule = make(start, end, steps=10)
    for step in (-5, 0):
        assert schedule(step) == pytest.approx(start, rel=1e-14)
    for step in (10, 11, 10**6):
        assert schedule(step) == pytest.approx(end, rel=1e-14)


@pytest.mark.parametrize("make", SCHEDULES)
@pytest.mark.parametrize(("start", "end"), [(1.0, 0.01), (0.1, 3.0)])
def test_each_step_goes_the_same_way(make, start, end):
    schedule = make(start, end, steps=25)
    values = [schedule(step) for step in range(26)]
    signs = {math.copysign(1, b - a) for a, b in itertools.pairwise(values)}
    assert signs == {math.copysign(1, end - start)}


def test_exponential_multiplies_by_one_factor():
    schedule = exponential(2.0, 0.02, steps=8)
    for step in range(8):
        assert schedule(step + 1) / schedule(step) == pytest.approx(0.01 ** (1 / 8), rel=1e-12)


def test_cosine_is_half_way_after_half_the_steps_and_flat_at_the_ends():
    schedule = cosine(1.0, 0.2, steps=100)
    assert schedule(50) == pytest.approx(0.6)
    assert schedule(25) == pytest.approx(0.6 + 0.4 * math.sqrt(0.5))
    assert schedule(0) - schedule(1) < 0.1 * (schedule(50) - schedule(51))
    assert schedule(99) - schedule(100) < 0.1 * (schedule(50) - schedule(51))


@pytest.mark.parametrize("make", SCHEDULES)
def test_warmup_stays_at_the_start_and_then_delays(make):
    late, early = make(1.0, 0.1, steps=6, warmup=4), make(1.0, 0.1, steps=6)
    assert [late(step) for step in range(5)] == [1.0] * 5
    assert [late(step + 4) for step in range(8)] == [early(step) for step in range(8)]


@pytest.mark.parametrize("make", SCHEDULES)
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"start": 0.0}, r"start must be positive and finite, got 0\.0"),
        ({"start": -1.0}, r"start must be positive and finite, got -1\.0"),
        ({"end": math.inf}, "end must be positive and finite, got inf"),
        ({"end": math.nan}, "end must be positive and finite, got nan"),
        ({"steps": 0}, "steps must be at least 1, got 0"),
        ({"warmup": -1}, "warmup must be at least 0, got -1"),
    ],
)
def test_bad_settings_name_the_schedule_the_rule_and_the_value(make, change, message):
    settings = {"start": 1.0, "end": 0.1, "steps": 5} | change
    with pytest.raises(ValueError, match=f"{make.__name__}: {message}"):
        make(**settings)


@pytest.mark.parametrize("make", [*SCHEDULES, cubic])
@pytest.mark.parametrize("argument", ["start", "end", "steps", "warmup"])
@pytest.mark.parametrize("value", [None, "5", True, [1], torch.tensor(1.0), math.nan, 1.5])
def test_settings_of_another_type_name_the_schedule_and_the_argument(make, argument, value):
    if argument in ("start", "end") and value == 1.5:
        value = -1.5
    settings = {"start": 1.0, "end": 0.1, "steps": 5, "warmup": 0} | {argument: value}
    with pytest.raises((TypeError, ValueError), match=f"^{make.__name__}: {argument} must be .*, got "):
        make(**settings)


@pytest.mark.parametrize("make", SCHEDULES)
@pytest.mark.parametrize(("start", "end"), [(5e-324, 1e308), (1e308, 5e-324), (1.7e308, 1.0)])
def test_the_ends_of_the_type_stay_in_range(make, start, end):
    schedule = make(start, end, steps=10)
    values = [schedule(step) for step in range(11)]
    assert (values[0], values[-1]) == (start, end)
    assert all(min(start, end) <= value <= max(start, end) for value in values)


def test_a_step_beyond_every_float_is_the_last():
    assert exponential(1.0, 0.1, steps=5)(10**400) == cosine(1.0, 0.1, steps=5)(10**400) == 0.1


def test_a_bad_constant_is_an_error():
    with pytest.raises(ValueError, match="constant: temperature must be positive and finite, got 0"):
        constant(0)


def model() -> nn.Module:
    return nn.Sequential(
        nn.Linear(4, 6),
        SigmoidTopK(2),
        nn.Sequential(
            LaplaceTopK(2, temperature=5.0), SigmoidTopK(2, temperature=0.7, learn_temperature=True)
        ),
    )


def temperatures(network: nn.Module) -> list[float]:
    layers = (network[1], network[2][0], network[2][1])
    return [t.item() if isinstance(t := layer.temperature, torch.Tensor) else t for layer in layers]


def test_the_scheduler_sets_every_layer_but_the_learned():
    network, schedule = model(), exponential(1.0, 0.01, steps=4)
    scheduler = TemperatureScheduler(network, schedule)
    for step in range(6):
        now = schedule(step)
        assert temperatures(network) == pytest.approx([now, now, 0.7], rel=1e-6)
        assert scheduler.temperature == now
        scheduler.step()


def test_the_weights_follow():
    layer = SigmoidTopK(1)
    scheduler = TemperatureScheduler(layer, exponential(1.0, 0.01, steps=1))
    x = torch.tensor([1.0, 0.0])
    soft = layer(x)
    scheduler.step()
    assert soft[0] == pytest.approx(1 / (1 + math.exp(-0.5)))
    assert layer(x)[0] == pytest.approx(1)


def test_the_state_makes_a_round_trip():
    schedule = cosine(1.0, 0.1, steps=10)
    scheduler = TemperatureScheduler(model(), schedule)
    for _ in range(3):
        scheduler.step()
    network = model()
    resumed = TemperatureScheduler(network, schedule)
    resumed.load_state_dict(scheduler.state_dict())
    assert temperatures(network)[:2] == pytest.approx([schedule(3)] * 2, rel=1e-7)
    resumed.step()
    assert temperatures(network)[:2] == pytest.approx([schedule(4)] * 2, rel=1e-7)


@pytest.mark.parametrize(
    "state", [{}, None, "a", {"last_step": -5}, {"last_step": 1.9}, {"last_step": True}, {"last_step": "2"}]
)
def test_a_state_that_is_none_is_refused_and_changes_nothing(state):
    scheduler = TemperatureScheduler(SigmoidTopK(2), exponential(1.0, 0.1, steps=5))
    scheduler.step()
    with pytest.raises((TypeError, ValueError), match=r"^TemperatureScheduler: (state|last_step) must be"):
        scheduler.load_state_dict(state)
    assert scheduler.last_step == 1


@pytest.mark.parametrize("network", [nn.Linear(2, 3), SigmoidTopK(2, learn_temperature=True)])
def test_nothing_to_schedule_is_an_error(network):
    with pytest.raises(
        ValueError, match=f"TemperatureScheduler: no submodule .* in {type(network).__name__}"
    ):
        TemperatureScheduler(network, constant(1.0))


def test_a_learned_temperature_is_left_alone_even_where_it_has_no_gradient():
    """Frozen, or seen without gradient: it is still a parameter of the model."""
    frozen = SigmoidTopK(2, temperature=0.7, learn_temperature=True).requires_grad_(False)
    learned = SigmoidTopK(2, temperature=0.7, learn_temperature=True)
    with torch.no_grad():
        TemperatureScheduler(nn.Sequential(SigmoidTopK(2), frozen, learned), constant(0.1))
    assert [frozen.temperature.item(), learned.temperature.item()] == pytest.approx([0.7, 0.7])


def test_any_module_with_a_number_or_a_buffer_is_governed():
    number, buffer, parameter = nn.Module(), nn.Module(), nn.Module()
    number.temperature = 1.0
    buffer.register_buffer("temperature", torch.tensor(1.0))
    parameter.temperature = nn.Parameter(torch.tensor(1.0))
    TemperatureScheduler(nn.ModuleList([number, buffer, parameter]), constant(0.25))
    assert number.temperature == 0.25
    assert buffer.temperature == 0.25
    assert parameter.temperature == 1


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_a_bad_temperature_of_a_schedule_is_named(value):
    with pytest.raises(ValueError, match="TemperatureScheduler: temperature must be positive and finite"):
        TemperatureScheduler(SigmoidTopK(2), lambda step: value)


def test_what_float32_cannot_hold_is_the_nearest_that_it_can():
    layer = SigmoidTopK(1)
    TemperatureScheduler(layer, constant(1e-60))
    assert layer(torch.tensor([1.0, 0.0])).tolist() == [1, 0]


def test_a_schedule_does_not_undo_a_calibration():
    with pytest.raises(ValueError, match=r"SigmoidTopK has calibrate = 0\.9, which the schedule would undo"):
        TemperatureScheduler(SigmoidTopK(2, calibrate=0.9), constant(1.0))
