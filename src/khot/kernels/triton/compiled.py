"""Registers, spills and shared memory of the kernels on each architecture, without a GPU.

``python -m khot.kernels.triton.compiled [TARGET…]`` prints a table, and exits with 1 if a kernel spills.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from khot.kernels.triton import digits, draws, duels, gates, long_gates, order, rounds
from khot.kernels.triton.long_gates import GATES, steps_of
from khot.kernels.triton.rows import LARGEST_BLOCK, warps_of

__all__ = ["KERNELS", "TARGETS", "Resources", "compile_kernel"]

TARGETS: dict[str, Any] = {
    "cuda 80": GPUTarget("cuda", 80, 32),
    "cuda 90": GPUTarget("cuda", 90, 32),
    "cuda 100": GPUTarget("cuda", 100, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}


class Resources(NamedTuple):
    """What a compiled kernel needs.

    Attributes:
        registers: 32-bit registers of a thread.
        spilled: registers that had to be kept in memory; for CUDA, the bytes of the stack frame.
        shared: bytes of shared memory of a program.
    """

    registers: int
    spilled: int
    shared: int


# Pointers are to float32 and numbers are int32, unless a name says something else.
_TYPES = {"mask_ptr": "*u8", "lengths_ptr": "*i64"}
_TYPES |= {f"{name}_ptr": "*fp64" for name in ("u", "norms", "heap")}
_TYPES |= {f"{name}_ptr": "*i32" for name in ("levels", "ties", "floor", "before", "found")}
_TYPES |= {f"{name}_ptr": "*i32" for name in ("counts", "old_counts", "picks", "old_picks")}
_HARD = {"k_ptr": "*i32", "HAS_MASK": True, "num_warps": order.WARPS}
_SHAPE = {"HAS_MASK": True, "BLOCK": LARGEST_BLOCK}


def _kernels() -> Iterator[tuple[str, Any, dict[str, Any]]]:
    """Titles and kernels, with their constants and special types by name."""
    for name, gate in GATES.items():
        steps = {"GATE": gate, "STEPS": steps_of(name), "HAS_MASK": True}
        for score in ("fp32", "bf16"):
            scores = {"x_ptr": f"*{score}", "y_ptr": f"*{score}", "BLOCK": LARGEST_BLOCK}
            yield f"{name}, {score}", gates.gated_kernel, {**steps, **scores}
        yield f"{name}, Jacobian", gates.jacobian_kernel, {"GATE": gate, "BLOCK": LARGEST_BLOCK}
        split_over = {"GATE": gate, "PARTS": 128, **_SHAPE}
        yield f"{name}, long: step", long_gates.step_kernel, {**split_over, "FIRST": False}
        yield f"{name}, long: weights", long_gates.write_kernel, split_over
        yield f"{name}, long: slopes", long_gates.slopes_kernel, {"GATE": gate, "BLOCK": LARGEST_BLOCK}
        product = {"GATE": gate, "PARTS": 128, "BLOCK": LARGEST_BLOCK}
        yield f"{name}, long: Jacobian", long_gates.product_kernel, product
    # What else may differ is compiled once.
    steps, halves = {"GATE": 0, "STEPS": 8, "HAS_MASK": True}, {"x_ptr": "*fp16", "y_ptr": "*fp16"}
    yield "logistic, fp16", gates.gated_kernel, {**steps, **halves, "BLOCK": LARGEST_BLOCK}
    yield "logistic, short rows", gates.gated_kernel, {**steps, "BLOCK": 1024}
    yield "logistic, one entry", gates.gated_kernel, {**steps, "BLOCK": 16, "n": 1}
    first = {"GATE": 0, "PARTS": 128, "FIRST": True, **_SHAPE}
    yield "logistic, long: first step", long_gates.step_kernel, first
    yield "long: first digit", digits.digit_kernel, {**_SHAPE, "SHIFT": 24}
    yield "long: digit", digits.digit_kernel, {**_SHAPE, "SHIFT": 8}
    yield "long: anchor", long_gates.survey_kernel, _SHAPE
    for score in ("fp32", "bf16"):
        scores = {"x_ptr": f"*{score}", "out_ptr": f"*{score}", "BLOCK": LARGEST_BLOCK}
        yield f"hard, {score}", order.hard_kernel, {**_HARD, **scores}
    yield "hard, one entry", order.hard_kernel, {**_HARD, "BLOCK": 16, "n": 1}
    yield "hard, long: ties", order.ties_kernel, {**_HARD, "BLOCK": LARGEST_BLOCK}
    yield "hard, long: ones", order.mark_kernel, {**_HARD, "PARTS": 128, "BLOCK": LARGEST_BLOCK}
    ranks = {"m_ptr": "*i32", "t_ptr": "*i32", "BLOCK": LARGEST_BLOCK}
    yield "tournament round", rounds.round_kernel, ranks
    yield "tournament round, gradient", rounds.round_gradient_kernel, ranks
    for score in ("fp32", "fp64"):
        probs = {"probs_ptr": f"*{score}", "out_ptr": f"*{score}", "PARTS": 128, "BLOCK": 1024}
        yield f"systematic, {score}: sums", draws.norm_kernel, probs
        yield f"systematic, {score}: arcs", draws.arcs_kernel, probs
        yield f"systematic, {score}", draws.systematic_kernel, probs
        yield f"tree pivotal, {score}: leaves", duels.leaves_kernel, probs
        yield f"tree pivotal, {score}", duels.pivotal_kernel, probs
    yield "tree pivotal: duels", duels.duel_kernel, {"BLOCK": 1024}
    yield "systematic, k = 1", draws.systematic_kernel, {"k": 1, "PARTS": 1, "BLOCK": 1024}


def _arguments(kernel: Any, given: dict[str, Any]) -> tuple[dict[str, str], dict[str, Any]]:
    """The types of a kernel's arguments, and the values of those that are constants."""
    names = set(kernel.arg_names)
    constants = {name: value for name, value in given.items() if name in names and not isinstance(value, str)}
    defaults = {name: "*fp32" if name.endswith("_ptr") else "i32" for name in kernel.arg_names}
    types = {name: given.get(name) or _TYPES.get(name) or default for name, default in defaults.items()}
    return {**types, **dict.fromkeys(constants, "constexpr")}, constants


KERNELS: dict[str, Any] = {title: (kernel, given) for title, kernel, given in _kernels()}
"""Each kernel with the constants and types with which it is compiled here."""


def compile_kernel(title: str, target: str) -> Resources:
    """Compile one of ``KERNELS`` for one of ``TARGETS``."""
    kernel, given = KERNELS[title]
    signature, constants = _arguments(kernel, given)
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants)
    made = triton.compile(source, target=TARGETS[target], options={"num_warps": _warps(given)})
    if TARGETS[target].backend == "hip":
        text = made.asm["amdgcn"]
        registers, spilled = (
            _number(r"\.vgpr_count:\s*(\d+)", text),
            _number(r"\.vgpr_spill_count:\s*(\d+)", text),
        )
        return Resources(
            registers, spilled + _number(r"\.sgpr_spill_count:\s*(\d+)", text), made.metadata.shared
        )
    said = _usage(made.asm["cubin"])
    # What does not fit into registers lies in the stack frame of a thread.
    return Resources(_number(r"REG:(\d+)", said), _number(r"STACK:(\d+)", said), made.metadata.shared)


def _warps(given: dict[str, Any]) -> int:
    return min(warps_of(given["BLOCK"]), given.get("num_warps", 32))


def _number(pattern: str, text: str) -> int:
    found = re.search(pattern, text)
    if found is None:
        raise RuntimeError(f"the compiler does not say {pattern!r}")
    return int(found[1])


def _usage(cubin: bytes) -> str:
    """What cuobjdump, which comes with Triton, reads from the compiled kernel."""
    tool = Path(str(triton.__file__)).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.TemporaryDirectory() as place:
        kernel = Path(place) / "kernel.cubin"
        kernel.write_bytes(cubin)
        command = [tool, "--dump-resource-usage", kernel]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def main(targets: list[str]) -> int:
    """Print what each kernel needs; 1 if one spills."""
    unknown = set(targets) - set(TARGETS)
    if unknown:
        sys.stderr.write(f"targets are {', '.join(TARGETS)}, got {', '.join(sorted(unknown))}\n")
        return 2
    spills = 0
    for target in targets or TARGETS:
        for title in KERNELS:
            resources = compile_kernel(title, target)
            spills += resources.spilled > 0
            sys.stdout.write(
                f"{target:<9} {title:<32} {resources.registers:>4} registers {resources.spilled:>4} spilled "
                f"{resources.shared:>6} bytes shared\n"
            )
    return int(spills > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
