"""The demonstration shows what it claims: the soft gate learns, the hard one cannot."""

import functools

import pytest

from khot.cli.demo import demo, fit_planted_features


@pytest.mark.parametrize("gate", ["sigmoid_topk", "sigmoid_topk(hard=True)"])
def test_a_soft_gradient_finds_the_planted_features(gate):
    found, loss = fit_planted_features(gate, seed=0)
    assert found == 5
    assert loss < 0.01


def test_a_hard_gate_keeps_what_it_started_with():
    assert (
        fit_planted_features("hard_topk", seed=0, steps=1)[0]
        == fit_planted_features("hard_topk", seed=0)[0]
        < 5
    )


@pytest.mark.parametrize("seeds", [1, pytest.param(10, marks=[pytest.mark.slow, pytest.mark.full])])
def test_main_prints_both_parts(seeds, capsys, monkeypatch):
    fit = functools.cache(lambda gate, seed: fit_planted_features(gate, seed))
    monkeypatch.setattr("khot.cli.demo.fit_planted_features", lambda gate, seed: fit(gate, seed % seeds))
    demo()
    printed = capsys.readouterr().out
    assert "sums to 3" in printed
    assert "5.0 of 5" in printed
