"""Balance without a loss: a bias in the choice of experts, adjusted by how often each expert was chosen:

    b_e ← b_e + u · sign(mean load − load of e)

after each step of the optimiser. Loads are counted in float32 over all micro-batches of a step. Recomputation
in a backward pass and calls in evaluation are not counted. (A compiled layer inside a checkpoint cannot tell
that it is recomputed: its loads count twice, with the same signs.)

Reference: Wang, Gao, Zhao, Sun & Dai (2024), Auxiliary-Loss-Free Load Balancing Strategy for
Mixture-of-Experts, arXiv:2408.15664; DeepSeek-AI (2024), DeepSeek-V3 Technical Report, arXiv:2412.19437.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import torch
import torch.distributed
from torch import Tensor, nn

from khot.apps.moe._masks import KnowsPadding
from khot.relaxations._plain_arguments import is_number

__all__ = ["CountsExperts", "balance_experts", "computes_again", "update_correction_biases"]

_BIAS = "e_score_correction_bias"


def computes_again() -> bool:
    """Whether a backward pass is running, in which checkpointed layers are recomputed."""
    return torch._C._current_graph_task_id() != -1  # pyright: ignore


class CountsExperts(KnowsPadding):
    """A router that counts how often its experts were chosen since the last step of the optimiser.

    ``expert_counts`` is float32 and not a buffer: it is not saved, and ``DistributedDataParallel`` does not
    overwrite it. It and ``e_score_correction_bias`` stay float32 whatever the model is cast to: in bfloat16
    counts stop growing at 256, and the sign of the update would be wrong.
    """

    replayed_indices: Tensor | None = None
    """Experts (T, k) to be taken in the place of a choice; see :func:`replay_routing`."""

    expert_counts: Tensor
    e_score_correction_bias: Tensor | None

    def count_experts(self, indices: Tensor, mask: Tensor | None) -> None:
        """Count the chosen experts (T, k) of real tokens, except in a recomputation."""
        if not torch.compiler.is_compiling() and computes_again():
            return
        if self.expert_counts.is_meta:  # parameters were assigned to a module without memory
            self.expert_counts = torch.zeros_like(self.expert_counts, device=indices.device)
        with torch.no_grad():
            if mask is None:
                ones = torch.ones(indices.numel(), device=indices.device)
            else:
                ones = mask.to(torch.float32).repeat_interleave(indices.shape[-1])
            self.expert_counts.scatter_add_(0, indices.reshape(-1), ones)

    @torch.no_grad()
    def update_correction_bias(
        self, rate: float = 1e-3, group: torch.distributed.ProcessGroup | None = None
    ) -> None:
        """Move the bias by ``rate`` towards even loads, and reset the counts.

        Args:
            rate: u, the size of the step.
            group: the processes whose counts are summed; by default all.
        """
        _check_rate("update_correction_bias", rate)
        bias = self.e_score_correction_bias
        if bias is None:
            raise ValueError(
                f"update_correction_bias: {type(self).__name__} has no correction bias; "
                "make it with correction_bias=True"
            )
        counts = self.expert_counts
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            torch.distributed.all_reduce(counts, group=group)  # pyright: ignore[reportUnknownMemberType]
        bias.add_(rate * (counts.mean() - counts).sign())
        counts.zero_()

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Any:
        """Move our own state, but do not cast it."""
        bias = self._buffers.get(_BIAS)
        result = super()._apply(fn, recurse)  # pyright: ignore[reportUnknownMemberType]
        moved = self._buffers.get(_BIAS)
        if bias is not None and moved is not None and moved.dtype != bias.dtype:
            self._buffers[_BIAS] = bias.to(moved.device)
        counted = fn(self.expert_counts)
        if self.expert_counts.is_meta:  # which has no values: nothing was counted
            counted = torch.zeros_like(self.expert_counts, device=counted.device)
        elif counted.dtype != torch.float32:
            counted = self.expert_counts.to(counted.device)
        self.expert_counts = counted
        return result


def update_correction_biases(
    model: nn.Module, rate: float = 1e-3, group: torch.distributed.ProcessGroup | None = None
) -> int:
    """Update the correction bias of every router in the model that has one.

    Use it in your own training loop; :func:`balance_experts` does it after each step of an optimiser.

    Args:
        model: a router, or a model with routers.
        rate: the size of the step of each bias.
        group: the processes whose loads are summed; by default all.

    Returns:
        The number of routers that were updated.

    Example:
        >>> from khot.apps.moe import TopKRouter
        >>> router = TopKRouter(4, 3, 1, score="sigmoid", correction_bias=True)
        >>> _ = router(torch.randn(8, 4))
        >>> update_correction_biases(router, rate=0.01)
        1

    Reference: Wang, Gao, Zhao, Sun & Dai (2024), Auxiliary-Loss-Free Load Balancing Strategy for
    Mixture-of-Experts, arXiv:2408.15664.
    """
    routers = _with_bias(model)
    for router in routers:
        router.update_correction_bias(rate, group)
    return len(routers)


def balance_experts(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    rate: float = 1e-3,
    group: torch.distributed.ProcessGroup | None = None,
) -> Any:
    """Update the correction biases after each step of the optimiser, once per step for all its micro-batches.

    Args:
        model: a model with routers made with ``correction_bias=True``, or with replaced routers whose gate
            has such a bias.
        optimizer: the optimiser whose steps trigger the update.
        rate: u, the size of the step of each bias.
        group: the processes whose counts are summed; by default all.

    Returns:
        A handle; its ``remove()`` stops the updates.

    Example:
        >>> from khot.apps.moe import TopKRouter
        >>> router = TopKRouter(4, 8, 2, score="sigmoid", correction_bias=True)
        >>> optimizer = torch.optim.SGD(router.parameters(), lr=0.1)
        >>> handle = balance_experts(router, optimizer)
        >>> router(torch.randn(16, 4)).weights.sum().backward()
        >>> optimizer.step()
        >>> router.e_score_correction_bias.abs().max()
        tensor(0.0010)

    Reference: Wang, Gao, Zhao, Sun & Dai (2024), Auxiliary-Loss-Free Load Balancing Strategy for
    Mixture-of-Experts, arXiv:2408.15664.
    """
    _check_rate("balance_experts", rate)
    if not _with_bias(model):
        raise ValueError(
            "balance_experts: model must have a router with a correction bias, got none; "
            "make it with TopKRouter(…, correction_bias=True)"
        )

    def after_step(*_: Any) -> None:
        update_correction_biases(model, rate, group)

    return cast("Any", optimizer).register_step_post_hook(after_step)


def _with_bias(model: nn.Module) -> list[CountsExperts]:
    return [
        m for m in model.modules() if isinstance(m, CountsExperts) and getattr(m, _BIAS, None) is not None
    ]


def _check_rate(name: str, rate: float) -> None:
    if not (is_number(rate) and math.isfinite(rate) and rate >= 0):
        raise ValueError(f"{name}: rate must be a number of at least 0, got {rate!r}")
