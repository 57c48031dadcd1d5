"""A suite made of sides whose behaviour is known, and a small fixed document."""

from khot.compare.cost.case import Case
from khot.compare.machine import Commit, Machine
from khot_bench.peers import PeerAbsent
from khot_bench.results import (
    AbsentSide,
    CheckRecord,
    Document,
    FailureRecord,
    Measurement,
    MemoryRecord,
    SideRecord,
)
from khot_bench.suite import Suite
from strategies.known_sides import CASE

WRONG = "value error 1e+00 exceeds 1e-05"


def absent():
    raise PeerAbsent("absent.topk", "absent==9.9", "not installed", "--some-option")


def suite(*sides, peers=()):
    return Suite(
        name="example",
        title="An example",
        baseline="khot_bench.sides.baselines:softmax",
        sides=tuple(f"strategies.known_sides:{name}" for name in sides),
        peers=tuple(f"strategies.bench_examples:{name}" for name in peers),
        cases=(CASE,),
        quick_cases=(CASE,),
        map="sigmoid",
    )


def measurement(case, side, mode, ratio, *, threads=1, baseline=1e-3, disturbed=0.0):
    seconds = ratio * baseline
    return Measurement(
        case,
        side,
        threads,
        mode,
        ratio=ratio,
        ratio_low=0.9 * ratio,
        ratio_high=1.1 * ratio,
        ratio_min=ratio,
        seconds=seconds,
        seconds_min=seconds,
        baseline_seconds=baseline,
        rounds=5,
        disturbed=disturbed,
    )


def document():
    large, tiny = Case("1×1e6", (1, 1_000_000), 1000), Case("1×16", (1, 16), 4)
    measured = [
        (large.name, "torch.softmax", "forward", 1.0, 1, 1e-3),
        (large.name, "torch.softmax", "forward+backward", 1.0, 1, 2e-3),
        (large.name, "khot.sigmoid_topk", "forward", 1.234, 1, 1e-3),
        (large.name, "khot.sigmoid_topk", "forward+backward", 1.5, 1, 2e-3),
        (large.name, "slow", "forward", 12345.6, 1, 1e-3),
        (large.name, "khot.sigmoid_topk", "forward", 0.65, 2, 1e-3),
        (tiny.name, "torch.softmax", "forward", 1.0, 1, 2e-6),
        (tiny.name, "khot.sigmoid_topk", "forward", 4.0, 1, 2e-6),
    ]
    return Document(
        suite="example",
        title="An example",
        created="2025-01-02T03:04:05+00:00",
        command="khot bench example",
        quick=False,
        threads=(1, 2),
        baseline="torch.softmax",
        time_limit_seconds=5.0,
        memory_limit_bytes=8 * 2**30,
        machine=Machine("A CPU", 2, 16.0, "Linux 6"),
        versions={"python": "3.11.0", "torch": "2.13.0"},
        commit=Commit("0123456789abcdef", dirty=True),
        kernels="avx2",
        others=0.0,
        cases=(large, tiny),
        sides=(
            SideRecord("torch.softmax", "torch", "2.13.0", "torch", "distribution", same_map=False),
            SideRecord("khot.sigmoid_topk", "khot", "0.1", "khot", "weights", same_map=True),
            SideRecord("slow", "slow", "3", "peer", "weights", same_map=False, note="a|b"),
            SideRecord("bad", "bad", "4", "peer", "ranks", same_map=False),
        ),
        absent=(AbsentSide("absent.topk", "absent==9.9", "not installed", "pip install absent==9.9"),),
        measurements=tuple(
            measurement(case, side, mode, ratio, threads=threads, baseline=base)
            for case, side, mode, ratio, threads, base in measured
        ),
        checks=(
            CheckRecord(large.name, "khot.sigmoid_topk", 1, True, "", 1e-7, 2e-7, None),
            CheckRecord(large.name, "slow", 1, True, "", 0.534),
            CheckRecord(large.name, "bad", 1, False, WRONG),
        ),
        failures=(
            FailureRecord(large.name, "slow", "forward+backward", "memory", "no room"),
            FailureRecord(large.name, "bad", "forward", "wrong", WRONG, 1),
            FailureRecord(large.name, "bad", "forward+backward", "wrong", WRONG, 1),
            FailureRecord(tiny.name, "slow", "forward", "time", "longer than 5 s"),
        ),
        memory=(MemoryRecord(large.name, "khot.sigmoid_topk", "forward", 8_000_000, 4_000_000),),
    )
