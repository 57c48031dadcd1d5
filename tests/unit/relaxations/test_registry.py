"""The registry of relaxations."""

import dataclasses

import pytest
import torch

import khot
from khot.relaxations import Relaxation, registry


@pytest.fixture
def empty(monkeypatch):
    monkeypatch.setattr(registry, "_SPECS", {})


def spec(name: str) -> Relaxation:
    return Relaxation(name=name, weights=lambda x, k: x)


@pytest.mark.usefixtures("empty")
def test_names_come_in_alphabetical_order_whatever_was_imported_first():
    for name in ("zeta", "alpha", "mu"):
        assert registry.register(spec(name)).name == name
    assert registry.names() == ["alpha", "mu", "zeta"]
    assert list(registry.specs()) == ["alpha", "mu", "zeta"]
    assert registry.get("alpha") is registry.specs()["alpha"]


@pytest.mark.usefixtures("empty")
def test_a_name_can_be_registered_once():
    first = registry.register(spec("same"))
    with pytest.raises(ValueError, match=r"'same' is already registered"):
        registry.register(spec("same"))
    assert registry.get("same") is first


@pytest.mark.usefixtures("empty")
def test_an_unknown_name_lists_the_known_ones():
    registry.register(spec("one"))
    registry.register(spec("two"))
    with pytest.raises(ValueError, match=r"unknown method 'three'; known methods: one, two"):
        registry.get("three")


def test_specs_are_read_only():
    with pytest.raises(TypeError):
        registry.specs()["new"] = spec("new")  # type: ignore[index]
    with pytest.raises(dataclasses.FrozenInstanceError):
        registry.get("sigmoid").bounded = False  # type: ignore[misc]


def test_every_spec_names_its_source_and_runs():
    x = torch.arange(4.0)
    for name, known in registry.specs().items():
        assert known.name == name
        assert known.reference
        assert known.weights(x, 2).shape == (4,)
        for options in known.example_options:
            assert known.weights(x, 2, **options).shape == (4,)


def test_the_row_of_sigmoid():
    """As in the property table of the documentation."""
    row = registry.get("sigmoid")
    assert row.weights is khot.sigmoid_topk
    assert row.bounded
    assert row.sums_to_k
    assert row.keeps_order
    assert row.shift_invariant
    assert row.ties_share
    assert row.real_k
    assert row.smooth == "C∞"
    assert row.max_n == 1_000_000
    assert not row.stochastic
