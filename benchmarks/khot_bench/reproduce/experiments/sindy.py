"""Governing equations with exactly k terms, beside the optimizers of pysindy.

Lorenz's system at four levels of noise; every autonomous polynomial system of `dysts`; a library of 286
terms; and how often each start of the exchange ends in the best subset that enumeration finds. All methods
see the same smoothed states and derivatives. Those of pysindy have their default settings but for what their
names say.
"""

# pyright: basic
from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np
import torch

from khot_bench.reproduce.equation_methods import METHODS, available, library_and_slopes, score
from khot_bench.reproduce.experiments._sindy_tables import (
    LEVELS,
    NOISY_SYSTEMS,
    ON_LARGE,
    ON_SYSTEMS,
    PROBLEMS,
    STARTS,
    draw,
    tables,
)
from khot_bench.reproduce.known_equations import (
    has_dysts,
    lorenz,
    polynomial_system,
    polynomial_systems,
)
from khot_bench.reproduce.ledger import Numbers, Settings
from khot_bench.reproduce.run import Reproduction

__all__ = ["REPRODUCTION"]


def _runs(quick: bool) -> Sequence[Settings]:
    seeds = range(2 if quick else 10)
    runs: list[Settings] = [
        {"part": "lorenz", "noise": noise, "seed": seed, "method": method}
        for seed in seeds
        for noise in LEVELS
        for method in METHODS
        if available(method)
    ]
    for problem in PROBLEMS:
        levels = (1.0,) if problem == "synthetic" else LEVELS
        count = 3 * len(seeds) if problem == "synthetic" else len(seeds)
        runs += [
            {"part": "search", "problem": problem, "noise": n, "seed": s}
            for n in levels
            for s in range(count)
        ]
    runs += [
        {"part": "large", "noise": noise, "seed": seed, "method": method}
        for noise in (0.0, 0.01)
        for seed in range(1 if quick else 3)
        for method in ON_LARGE
        if available(method)
    ]
    systems = polynomial_systems() if has_dysts() else ()
    runs += [
        {"part": "systems", "system": system, "noise": noise, "seed": 0, "method": method}
        for system in (systems[:6] if quick else systems)
        for noise in NOISY_SYSTEMS
        for method in ON_SYSTEMS
        if available(method)
    ]
    return runs


def _run(settings: Settings) -> Numbers:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        if settings["part"] == "search":
            return _search(settings["problem"], settings["noise"], settings["seed"])
        if settings["part"] == "systems":
            known = polynomial_system(settings["system"], settings["noise"], settings["seed"])
            degree = max(3, *(sum(p) for terms in known.terms for p in terms))
            return score(settings["method"], known, degree, most=12)
        known = lorenz(settings["noise"], settings["seed"])
        return score(settings["method"], known, 10 if settings["part"] == "large" else 3, most=8)
    finally:
        torch.set_num_threads(threads)


def _search(problem: str, noise: float, seed: int) -> Numbers:
    """The share of equations in which each start leads to the best subset, and the seconds it takes."""
    from khot.apps.sindy._enumeration import best_by_enumeration
    from khot.apps.sindy._equations import reduce_equations
    from khot.apps.sindy._exchange import best_by_exchange, forward, random_starts
    from khot.apps.sindy._soft_start import soft_starts

    library, targets, ks = _problem(problem, noise, seed)
    equations = reduce_equations(library, targets)
    which = range(len(ks))
    best = [
        equations.error(e, best_by_enumeration(equations.columns, equations.targets[:, e], ks[e]))
        for e in which
    ]
    random = np.random.default_rng(seed)
    makers = {
        "greedy": lambda: [[forward(equations, e, ks[e])] for e in which],
        "soft": lambda: [[start] for start in soft_starts(equations, which, ks)],
        "20 random": lambda: [random_starts(equations.terms, ks[e], 20, random) for e in which],
    }
    made: dict[str, list[list[tuple[int, ...]]]] = {}
    spent: dict[str, float] = {}
    for name, make in makers.items():
        begin = time.process_time()
        made[name] = make()
        spent[name] = time.process_time() - begin
    numbers: Numbers = {}
    for name, parts in STARTS.items():
        begin = time.process_time()
        of = [[start for part in parts for start in made[part][e]] for e in which]
        found = [best_by_exchange(equations, e, of[e])[1] for e in which]
        seconds = time.process_time() - begin
        numbers[f"{name} seconds"] = seconds + sum(spent[part] for part in parts)
        numbers[name] = sum(a <= b * (1 + 1e-6) + 1e-25 for a, b in zip(found, best, strict=True)) / len(ks)
    return numbers


def _problem(problem: str, noise: float, seed: int) -> tuple[np.ndarray, np.ndarray, tuple[int, ...]]:
    if problem == "synthetic":  # correlated columns, and as much noise as signal
        random = np.random.default_rng(seed)
        library = random.normal(size=(100, 24)) @ (np.eye(24) + 0.4 * random.normal(size=(24, 24)))
        clean = (library / np.linalg.norm(library, axis=0))[:, random.permutation(24)[:5]].sum(axis=1)
        return library, (clean + noise * clean.std() * random.normal(size=100))[:, None], (5,)
    known = lorenz(noise, seed)
    library, slopes, monomials = library_and_slopes(known, 3)
    if problem == "Lorenz, not smoothed":
        half = (len(known.x) - len(library)) // 2
        states = known.x[half : len(known.x) - half]
        library = np.stack([np.prod(states ** np.array(p), axis=1) for p in monomials], axis=1)
    return library, slopes, tuple(len(terms) for terms in known.terms)


REPRODUCTION = Reproduction(
    name="sindy",
    title="governing equations with exactly k terms, beside the optimizers of pysindy",
    runs=_runs,
    run=_run,
    tables=tables,
    plot=draw,
    needs=("matplotlib", "pysindy"),
)
