"""The laboratory: measures khot beside PyTorch and its peers, and repeats published experiments.

A speed is a ratio taken in one process, alternating the two sides, and only after the side's result has
proved right. Each run is one JSON document (`results`), from which the tables of the documentation are made
(`tables`, `markers`).

The way of one run: a suite (`suites/`) names cases and sides; the `runner` probes each side in a process of
its own (`khot.compare.cost.memory`), checks it (`correctness`), times it (`khot.compare.cost.timing`) and
writes what it found. A new suite is one file in `suites/`, a new peer one file in `peers/`, a new experiment
one file in `reproduce/experiments/`.
"""
