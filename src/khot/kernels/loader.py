"""Find the compiled library ``khot._native``, once, and tell why if there is none.

Environment variables, read at the first use:

* ``KHOT_NO_NATIVE=1``: do not load it; every operator takes its portable path.
* ``KHOT_REQUIRE_NATIVE=1``: if it is missing, raise an ImportError instead of taking the slower path.
* ``KHOT_ISA=base|avx2|avx512``: the highest instruction set to use (read by the library itself).
"""

from __future__ import annotations

import functools
import importlib
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, cast

# Before the library, never after: the OpenMP runtime that torch brings is then the one both use. With two
# runtimes, the threads of one spin while the other works, and everything is many times slower.
import torch  # noqa: F401  # pyright: ignore[reportUnusedImport]

__all__ = ["ABI", "Native", "NativeStatus", "native", "status", "switched_on"]

#: The library's signatures as this version calls them; csrc/module.cpp has the same number.
ABI = 12


class Native(Protocol):
    """The functions of the compiled module; csrc/kernels.h names the arguments of the kernels."""

    ABI: int
    gate_jacobian_f32: Callable[..., None]
    gate_jacobian_f64: Callable[..., None]
    gate_sums_f32: Callable[..., None]
    gate_sums_f64: Callable[..., None]
    gate_weights_f32: Callable[..., None]
    gate_weights_f64: Callable[..., None]
    slope_sums_f32: Callable[..., None]
    slope_sums_f64: Callable[..., None]
    slope_product_f32: Callable[..., None]
    slope_product_f64: Callable[..., None]
    sigmoid_topk_f32: Callable[..., None]
    sigmoid_topk_f64: Callable[..., None]
    sigmoid_topk_half: Callable[..., None]
    sigmoid_jacobian_half: Callable[..., None]
    laplace_topk_f32: Callable[..., None]
    laplace_topk_f64: Callable[..., None]
    sparse_topk_f32: Callable[..., None]
    sparse_topk_f64: Callable[..., None]
    normal_topk_f32: Callable[..., None]
    normal_topk_f64: Callable[..., None]
    hard_topk_f32: Callable[..., None]
    hard_topk_f64: Callable[..., None]
    count_between_f32: Callable[..., None]
    count_between_f64: Callable[..., None]
    collect_between_f32: Callable[..., None]
    collect_between_f64: Callable[..., None]
    topk_entries_f32: Callable[..., None]
    topk_entries_f64: Callable[..., None]
    entries_jacobian_f32: Callable[..., None]
    entries_jacobian_f64: Callable[..., None]
    router_topk_f32: Callable[..., None]
    router_topk_f64: Callable[..., None]
    router_gradient_f32: Callable[..., None]
    router_gradient_f64: Callable[..., None]
    argsort_f32: Callable[..., None]
    argsort_f64: Callable[..., None]
    isotonic_f32: Callable[..., None]
    isotonic_f64: Callable[..., None]
    block_sums_f32: Callable[..., None]
    block_sums_f64: Callable[..., None]
    soft_rank_f32: Callable[..., None]
    soft_rank_f64: Callable[..., None]
    soft_rank_jacobian_f32: Callable[..., None]
    soft_rank_jacobian_f64: Callable[..., None]
    systematic_f32: Callable[..., None]
    systematic_f64: Callable[..., None]
    pivotal_f32: Callable[..., None]
    pivotal_f64: Callable[..., None]
    subsets: Callable[..., None]
    weighted_subsets: Callable[..., None]
    shuffled_systematic_f32: Callable[..., None]
    shuffled_systematic_f64: Callable[..., None]
    brewer: Callable[..., None]
    eliminate: Callable[..., None]
    cube: Callable[..., None]
    poisson_inclusion_f32: Callable[..., None]
    poisson_inclusion_f64: Callable[..., None]
    poisson_covariance_f32: Callable[..., None]
    poisson_covariance_f64: Callable[..., None]
    poisson_weights: Callable[..., None]
    small_rows_f32: Callable[..., bool]
    small_rows_f64: Callable[..., bool]
    isa: Callable[[], str]
    isa_supported: Callable[[], tuple[str, ...]]
    openmp: Callable[[], bool]


@dataclass(frozen=True)
class NativeStatus:
    """Whether the compiled library is in use, and why (not).

    Attributes:
        available: The library is loaded and will be used.
        reason: One readable line, such as ``'loaded'`` or ``'switched off by KHOT_NO_NATIVE'``.
        path: The file of the library, None if there is none.
        isa: The instruction set in use, None without the library.
        isa_supported: The instruction sets this CPU could use, fewest features first.
        openmp: The library can use several threads.
        broken: There is a library, but it cannot be used.
    """

    available: bool
    reason: str
    path: str | None = None
    isa: str | None = None
    isa_supported: tuple[str, ...] = ()
    openmp: bool = False
    broken: bool = False


def switched_on(name: str) -> bool:
    """Whether an environment variable is set, and neither empty nor 0."""
    return os.environ.get(name, "") not in ("", "0")


@functools.cache
def _decision() -> tuple[Native | None, NativeStatus, bool]:
    """The library, its status, and whether being without it is an error."""
    library, found = _find()
    if library is None and found.broken:
        warnings.warn(
            f"khot's compiled library is {found.reason}; operators take their portable path, which is slower",
            RuntimeWarning,
            stacklevel=2,
        )
    return library, found, switched_on("KHOT_REQUIRE_NATIVE")


def _find() -> tuple[Native | None, NativeStatus]:
    if switched_on("KHOT_NO_NATIVE"):
        return None, NativeStatus(False, "switched off by KHOT_NO_NATIVE")
    try:
        module = importlib.import_module("khot._native")
    except ModuleNotFoundError:
        return None, NativeStatus(
            False, "not built: there was no working C++ compiler when khot was installed"
        )
    except ImportError as error:
        return None, NativeStatus(False, f"cannot be loaded: {error}", broken=True)
    library = cast("Native", module)
    built_for = getattr(library, "ABI", None)
    if built_for != ABI:
        reason = (
            f"left over from another version (ABI {built_for}, this version needs {ABI}): install khot again"
        )
        return None, NativeStatus(False, reason, module.__file__, broken=True)
    return library, NativeStatus(
        available=True,
        reason="loaded",
        path=module.__file__,
        isa=library.isa(),
        isa_supported=library.isa_supported(),
        openmp=library.openmp(),
    )


def native() -> Native | None:
    """The compiled library, or None if operators must take their portable path.

    Raises:
        ImportError: if there is no library and ``KHOT_REQUIRE_NATIVE=1`` requires one.
    """
    library, found, required = _decision()
    if library is None and required:
        raise ImportError(f"KHOT_REQUIRE_NATIVE is set, but the compiled library is {found.reason}")
    return library


def status() -> NativeStatus:
    """The status of the library; it never raises, so that ``khot doctor`` can always report it."""
    return _decision()[1]
