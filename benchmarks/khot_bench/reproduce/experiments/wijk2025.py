"""The claims of Wijk, Vinuesa & Azizpour (2025), Differentiable Top-k: From One-Hot to k-Hot.

Scalability: time, memory and how far the weights are from summing to k, for n = 10 … 10⁷ and k = n/100, of
every operator and every peer; each call in a process of its own, so that one which does not fit is a finding.

How exact must the root be? The threshold is found by bisection that stops early, and the gradient error set
against the error of the sum.

The operator is differentiable in k too: scores and a budget are learned from labels of which exactly k* are
set, and the budget must arrive at k*.
"""

# pyright: basic
from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

import khot
from khot.compare.cost import memory
from khot.compare.cost.case import Case
from khot.compare.cost.side import Side, load_side
from khot.compare.report.grid import Grid, seconds_text
from khot.relaxations import registry
from khot_bench.peers import PeerAbsent, all_peers
from khot_bench.reproduce.ledger import Ledger, Settings
from khot_bench.reproduce.run import Reproduction

__all__ = ["REPRODUCTION"]

SIZES = [10**power for power in range(1, 8)]
QUICK_SIZES = SIZES[:3]
PLANTED = (3, 10, 40)
LABELS, BUDGET_AT_FIRST = 50, 25.0


def _runs(quick: bool) -> Sequence[Settings]:
    sizes = QUICK_SIZES if quick else SIZES
    steps, seeds = (100, 1) if quick else (400, 3)
    ours = [f"khot.compare.cost.side:relaxation:{name}" for name in registry.names()]
    sources = [*ours, *all_peers().values()]
    runs = [{"part": "scaling", "source": source, "sizes": sizes} for source in sources]
    runs += [{"part": "root", "n": n, "k": k} for n, k in [(1000, 10), (1000, 500)]]
    return runs + [
        {"part": "budget", "planted": planted, "seed": seed, "steps": steps}
        for planted in PLANTED
        for seed in range(seeds)
    ]


def _run(settings: Settings) -> dict[str, float]:
    part = {"scaling": _scaling, "root": _root, "budget": _budget}[settings["part"]]
    return part(settings)


def _scaling(settings: Settings) -> dict[str, float]:
    """Seconds, bytes and |Σy − k|/k by n; a size that fails has the kind of failure, and is the last."""
    numbers: dict[str, float] = {}
    try:
        side = load_side(settings["source"])
    except PeerAbsent:
        return {"absent": 1.0}
    for n in settings["sizes"]:
        case = Case(f"1×{n}", (1, n), max(1, n // 100))
        found = memory.measure(settings["source"], case)
        for mode, outcome in found.items():
            if isinstance(outcome, memory.Failure):
                numbers[f"{mode}, {outcome.kind} at {n}"] = 1.0
            else:
                numbers[f"{mode}, seconds at {n}"] = outcome.seconds
                numbers[f"{mode}, bytes at {n}"] = float(outcome.bytes)
        if isinstance(found["forward"], memory.Failure):
            break
        if side.result == "weights":
            numbers[f"sum error at {n}"] = _sum_error(side, case)
    return numbers


def _sum_error(side: Side, case: Case) -> float:
    with torch.no_grad():
        y = side.function(case.make(), case.k)
    return abs(float(y.double().sum()) - case.k) / case.k


def _root(settings: Settings) -> dict[str, float]:
    """Relative errors of the sum and of a gradient, by the number of halvings of the bracket."""
    n, k = settings["n"], settings["k"]
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(64, n, generator=generator, dtype=torch.float64)
    g = torch.randn(64, n, generator=generator, dtype=torch.float64)
    low = math.log(k / (n - k)) - x.amax(-1, keepdim=True)
    high = math.log(k / (n - k)) - x.amin(-1, keepdim=True)
    exact = _jacobian_product(khot.sigmoid_topk(x, k), g)
    numbers: dict[str, float] = {}
    for halvings in range(41):
        y = torch.sigmoid(x + (low + high) / 2)
        off = _jacobian_product(y, g) - exact
        numbers[f"sum error after {halvings}"] = ((y.sum(-1) - k).abs() / k).mean().item()
        numbers[f"gradient error after {halvings}"] = (off.norm(dim=-1) / exact.norm(dim=-1)).mean().item()
        above = y.sum(-1, keepdim=True) > k
        high = torch.where(above, (low + high) / 2, high)
        low = torch.where(above, low, (low + high) / 2)
    single = khot.sigmoid_topk(x.float().requires_grad_(), k)
    numbers["sum error of khot, float32"] = ((single.double().sum(-1) - k).abs() / k).mean().item()
    return numbers


def _jacobian_product(y: Tensor, g: Tensor) -> Tensor:
    w = y * (1 - y)
    return w * (g - (w * g).sum(-1, keepdim=True) / w.sum(-1, keepdim=True))


def _budget(settings: Settings) -> dict[str, float]:
    """The learned budget by step."""
    planted, seed = settings["planted"], settings["seed"]
    generator = torch.Generator().manual_seed(seed)
    truth = torch.randn(20, LABELS, generator=generator)
    model = 0.1 * torch.randn(20, LABELS, generator=generator)
    model.requires_grad_()
    layer = khot.nn.SigmoidTopK(BUDGET_AT_FIRST, learn_k=True, k_max=LABELS)
    optimizer = torch.optim.Adam([model, *layer.parameters()], lr=0.03)
    numbers: dict[str, float] = {}
    for step in range(settings["steps"] + 1):
        if step % 20 == 0:
            numbers[f"k at {step}"] = torch.as_tensor(layer.k).item()
        x = torch.randn(128, 20, generator=generator)
        weights = layer(x @ model).clamp(1e-6, 1 - 1e-6)
        loss = torch.nn.functional.binary_cross_entropy(weights, khot.hard_topk(x @ truth, planted))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return numbers


def _name(source: str) -> str:
    try:
        return load_side(source).name
    except PeerAbsent as absent:
        return absent.name


def _tables(ledger: Ledger) -> tuple[Grid, ...]:
    scaling = [(done, found) for done, found in ledger.runs if done["part"] == "scaling"]
    sizes = sorted({n for done, _ in scaling for n in done["sizes"]})
    rows = tuple((_name(done["source"]), *(_cell(found, n) for n in sizes)) for done, found in scaling)
    return (
        Grid(
            caption="Forward time of one cold call, and |Σy − k|/k, for k = n/100",
            header=("operator", *(f"n = 10^{round(math.log10(n))}" for n in sizes)),
            rows=rows,
            notes=(
                f"Each in a fresh process, one thread; more than {memory.Limits().seconds:g} s or 8 GiB is a "
                "failure, and longer rows are not tried after one. Times below a millisecond are mostly the "
                "first call's.",
            ),
            origin=ledger.origin,
        ),
        *_budget_table(ledger),
        *_root_table(ledger),
    )


def _cell(found: dict[str, float], n: int) -> str:
    seconds = found.get(f"forward, seconds at {n}")
    if seconds is not None:
        error = found.get(f"sum error at {n}")
        return seconds_text(seconds) + ("" if error is None else f", {error:.0e}")
    if "absent" in found:
        return "absent"
    kinds = [key.removeprefix("forward, ").split(" at ")[0] for key in found if _is_failure(key, n)]
    return {"memory": "out of memory", "time": "too slow"}.get(kinds[0], kinds[0]) if kinds else ""


def _is_failure(key: str, n: int) -> bool:
    return (
        key.startswith("forward, ")
        and key.endswith(f" at {n}")
        and "seconds" not in key
        and "bytes" not in key
    )


def _budget_table(ledger: Ledger) -> tuple[Grid, ...]:
    rows: list[tuple[str, ...]] = []
    for planted in PLANTED:
        paths = [found for done, found in ledger.runs if done.get("planted") == planted]
        if paths:
            ends = [list(path.values())[-1] for path in paths]
            rows.append((str(planted), f"{min(ends):.4f} … {max(ends):.4f}", str(len(ends))))
    return (
        Grid(
            caption=f"A learned budget that started at {BUDGET_AT_FIRST:g} of {LABELS} labels",
            header=("k*", "learned k", "seeds"),
            rows=tuple(rows),
            notes=(),
            origin=ledger.origin,
        ),
    )


def _root_table(ledger: Ledger) -> tuple[Grid, ...]:
    runs = [(done, found) for done, found in ledger.runs if done["part"] == "root"]
    shown = (5, 10, 15, 20, 30, 40)
    return (
        Grid(
            caption="Gradient error by the error of the sum, when the bracket of the root is halved t times",
            header=("t", *(f"n = {done['n']}, k = {done['k']}" for done, _ in runs)),
            rows=tuple(
                (
                    str(t),
                    *(
                        f"{found[f'sum error after {t}']:.0e} → {found[f'gradient error after {t}']:.0e}"
                        for _, found in runs
                    ),
                )
                for t in shown
            ),
            notes=("Mean over 64 rows: |Σy − k|/k → ‖error of the gradient‖/‖gradient‖, in float64.",),
            origin=ledger.origin,
        ),
    )


def _plot(ledger: Ledger, path: Path) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(12, 10), layout="constrained")
    time, error, root, budget = axes.flat
    time.set_prop_cycle(color=[plt.get_cmap("tab20")(i) for i in range(20)])
    for done, found in ledger.runs:
        if done["part"] == "scaling" and "absent" not in found:
            _plot_scaling(time, error, done, found)
        elif done["part"] == "root":
            steps = range(41)
            root.loglog(
                [found[f"sum error after {t}"] for t in steps],
                [found[f"gradient error after {t}"] for t in steps],
                "o-",
                markersize=3,
                label=f"n = {done['n']}, k = {done['k']}",
            )
        elif done["part"] == "budget":
            steps = [int(key.split()[-1]) for key in found]
            colour = f"C{PLANTED.index(done['planted'])}"
            budget.axhline(done["planted"], color=colour, linestyle=":", linewidth=1)
            budget.plot(steps, list(found.values()), color=colour)
    time.set(
        xscale="log", yscale="log", xlabel="n", ylabel="seconds", title="forward, k = n/100 (× fails next)"
    )
    figure.legend(*time.get_legend_handles_labels(), loc="outside lower center", fontsize="small", ncols=5)
    error.set(xscale="log", yscale="log", xlabel="n", title="|Σy − k|/k, float32")
    root.set(xlabel="|Σy − k|/k", ylabel="gradient error", title="a root found less exactly")
    root.legend(fontsize="small")
    budget.set(xlabel="step", ylabel="k", title="learned budgets arrive at the planted ones (dotted)")
    figure.savefig(path)
    plt.close(figure)


def _plot_scaling(time, error, done: dict, found: dict[str, float]) -> None:
    reached = [n for n in done["sizes"] if f"forward, seconds at {n}" in found]
    if not reached:
        return
    ours = "relaxation" in done["source"]
    (line,) = time.plot(
        reached,
        [found[f"forward, seconds at {n}"] for n in reached],
        "-" if ours else "--",
        label=_name(done["source"]),
        linewidth=2.5 if done["source"].endswith(":sigmoid") else 1.1,
    )
    if reached[-1] != done["sizes"][-1]:
        time.plot(reached[-1], found[f"forward, seconds at {reached[-1]}"], "x", color=line.get_color())
    errors = [(n, max(found[f"sum error at {n}"], 1e-9)) for n in reached if f"sum error at {n}" in found]
    if errors:
        error.plot(*zip(*errors, strict=True), line.get_linestyle(), color=line.get_color(), linewidth=1.1)


REPRODUCTION = Reproduction(
    name="wijk2025",
    title="scalability of every operator and peer, exactness of the root, and a learned k",
    runs=_runs,
    run=_run,
    tables=_tables,
    plot=_plot,
    needs=("matplotlib",),
)
