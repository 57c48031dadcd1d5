"""Designs by name."""

import pytest

import khot
from khot.designs import KHotDistribution, SequentialPivotal, get, name_of, names, register, registry


def test_names_are_those_of_the_classes():
    for name in names():
        assert issubclass(get(name), KHotDistribution)
        assert get(name).__name__.lower() == name.replace("_", "")
        assert getattr(khot.designs, get(name).__name__) is get(name)
        assert name_of(get(name)) == name_of(name) == name
    assert {"conditional_poisson", "adjusted_pareto", "tille"} <= set(names())


def test_a_design_of_ones_own(monkeypatch):
    monkeypatch.setattr(registry, "_DESIGNS", dict(registry._DESIGNS))

    class EveryOther(SequentialPivotal):
        pass

    with pytest.raises(ValueError, match=r"name_of: design EveryOther has no name; .*designs\.register"):
        name_of(EveryOther)
    assert register(EveryOther) is EveryOther
    assert names()[-1] == "every_other"
    assert get("every_other") is EveryOther
    with pytest.raises(ValueError, match="a design named 'every_other' is already registered"):
        register(EveryOther)


def test_messages():
    with pytest.raises(ValueError, match=r"get: unknown design 'x'; known designs: .*conditional_poisson, "):
        get("x")
    for wrong in (3, dict, None):
        with pytest.raises(TypeError, match=r"get: design must be a name or a class of khot\.designs, got"):
            get(wrong)
