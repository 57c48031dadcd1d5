"""What the kernels become on each architecture, without a GPU: registers, spills, shared memory.

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

from khot.kernels.triton import draws, gates, order
from khot.kernels.triton.rows import warps_of

__all__ = ["KERNELS", "TARGETS", "Resources", "compile_kernel"]

TARGETS: dict[str, Any] = {
    "cuda 80": GPUTarget("cuda", 80, 32),
    "cuda 90": GPUTarget("cuda", 90, 32),
    "cuda 100": GPUTarget("cuda", 100, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}


class Resources(NamedTuple):
    """What a thread and a program need.

    Attributes:
        registers: 32-bit registers of a thread.
        spilled: of those that had to be kept in memory; of a CUDA kernel the bytes of its stack frame.
        shared: bytes of shared memory of a program.
    """

    registers: int
    spilled: int
    shared: int


def _kernels() -> Iterator[tuple[str, Any, dict[str, str], dict[str, Any], int]]:
    for score in ("fp32", "fp16", "bf16"):
        for name, gate in gates.GATES.items():
            for block in (1024, 4096) if score == "fp32" else (4096,):
                signature = {"x_ptr": f"*{score}", "mask_ptr": "*u8", "k_ptr": "*fp32", "t_ptr": "*fp32"}
                signature |= {"y_ptr": f"*{score}", "state_ptr": "*fp32", "n": "i32"}
                options = {"GATE": gate, "HAS_MASK": True, "STEPS": 24 if name == "sparse" else 8}
                title = f"{name}, {score}, blocks of {block}"
                yield title, gates.gated_kernel, signature, {**options, "BLOCK": block}, block
    for name, gate in gates.GATES.items():
        pointers = {f"{p}_ptr": "*fp32" for p in ("state", "grad", "t", "out", "mean")}
        options = {"GATE": gate, "BLOCK": 4096}
        yield f"{name}, Jacobian", gates.jacobian_kernel, {**pointers, "n": "i32"}, options, 4096
    for score in ("fp32", "bf16"):
        signature = {
            "x_ptr": f"*{score}",
            "mask_ptr": "*u8",
            "k_ptr": "*i32",
            "out_ptr": f"*{score}",
            "n": "i32",
        }
        yield f"hard, {score}", order.hard_kernel, signature, {"HAS_MASK": True, "BLOCK": 4096}, 4096
    ints = {"m": "i32", "left": "i32"}
    pointers = {f"{p}_ptr": "*fp32" for p in ("v", "blended", "share")}
    yield "tournament round", order.round_kernel, {**pointers, **ints}, {"BLOCK": 1024}, 1024
    pointers = {f"{p}_ptr": "*fp32" for p in ("v", "share", "grad", "grad_share", "out")}
    yield "its gradient", order.round_gradient_kernel, {**pointers, **ints}, {"BLOCK": 1024}, 1024
    signature = {
        "probs_ptr": "*fp32",
        "u_ptr": "*fp64",
        "out_ptr": "*fp32",
        "rows": "i32",
        "n": "i32",
        "k": "i32",
    }
    yield "systematic", draws.systematic_kernel, signature, {"BLOCK": 1024}, 1024
    signature = {"probs_ptr": "*fp32", "u_ptr": "*fp64", "over_ptr": "*u8", "left_ptr": "*fp64"}
    signature |= {"out_ptr": "*fp32", "rows": "i32", "n": "i32", "inner": "i32", "k": "i32"}
    yield "tree pivotal", draws.pivotal_kernel, signature, {"LEVELS": 20, "BLOCK": 256}, 256


KERNELS: dict[str, Any] = {title: tuple(rest) for title, *rest in _kernels()}
"""Each kernel with the arguments and the block with which it is compiled here."""


def compile_kernel(title: str, target: str) -> Resources:
    """Compile one of ``KERNELS`` for one of ``TARGETS``."""
    kernel, signature, constants, block = KERNELS[title]
    signature = {**signature, **dict.fromkeys(constants, "constexpr")}
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants)
    made = triton.compile(source, target=TARGETS[target], options={"num_warps": warps_of(block)})
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
    """Print what each kernel needs."""
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
