"""How often the tokens of all processes chose each expert: balance losses and biases need it."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from khot.parallel._agreement import agreed_sizes
from khot.parallel._dtensors import is_dtensor
from khot.parallel._group import ProcessGroup, joined
from khot.parallel._outside import outside_graphs
from khot.relaxations._plain_arguments import check_integer, check_tensor
from khot.relaxations._special import xlogy

__all__ = ["ExpertLoads", "expert_loads"]


class ExpertLoads(NamedTuple):
    """How the tokens of all processes are spread over the experts, as :func:`expert_loads` returns it.

    Args:
        counts: how often each expert was chosen, int64 (experts,).
        tokens: the number of tokens, without masked ones.
        entropy: entropy of the experts' shares, divided by log E: 1 if all are used equally, 0 if one is.

    Example:
        >>> counts, tokens, entropy = expert_loads(torch.tensor([[0], [1], [0], [1]]), 2)
        >>> counts.tolist(), tokens, round(entropy, 6)
        ([2, 2], 4, 1.0)
    """

    counts: Tensor
    tokens: int
    entropy: float


@outside_graphs
def expert_loads(
    indices: Tensor, num_experts: int, *, mask: Tensor | None = None, group: ProcessGroup | None = None
) -> ExpertLoads:
    r"""Count how often the tokens of all processes chose each expert.

    .. math:: f_e = \sum_{\text{processes}} \sum_t [e \in \text{indices}_t]

    :func:`khot.apps.moe.load_balance_loss` with ``kind="global"`` and
    ``khot.apps.moe.RoutingStatistics(kind="global")`` count in the same way. Cost: one message of E + 1
    numbers.

    Args:
        indices: the experts (T, k) that the T tokens of this process chose; T may differ between processes.
        num_experts: E, the same in all processes.
        mask: boolean (T,); False leaves a token out, for example padding.
        group: the processes; by default all, or this one alone if there is no process group.

    Returns:
        The same :class:`ExpertLoads` in every process.

    Example:
        >>> loads = expert_loads(torch.tensor([[0, 1], [0, 2]]), 4)
        >>> loads.counts, loads.tokens, round(loads.entropy, 3)
        (tensor([2, 1, 1, 0]), 2, 0.75)
    """
    name, members = "expert_loads", joined(group)

    def describe() -> tuple[int, dict[str, Any]]:
        check_integer(name, "num_experts", num_experts)
        if not isinstance(indices, Tensor) or is_dtensor(indices):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"{name}: indices must be a plain tensor, got {type(indices).__name__}")
        if indices.dim() != 2 or indices.dtype not in (torch.int64, torch.int32):
            raise ValueError(
                f"{name}: indices must be integers of the shape (tokens, k), "
                f"got {indices.dtype} of {tuple(indices.shape)}"
            )
        low, high = (int(indices.min()), int(indices.max())) if indices.numel() else (0, 0)
        if low < 0 or high >= num_experts:
            raise ValueError(f"{name}: indices must be in 0 … {num_experts - 1}, got {low} … {high}")
        if mask is not None:
            check_tensor(name, "mask", mask)
        if mask is not None and (mask.dtype != torch.bool or mask.shape != indices.shape[:1]):
            raise ValueError(
                f"{name}: mask must be boolean of shape ({len(indices)},), "
                f"got {mask.dtype} of {tuple(mask.shape)}"
            )
        return len(indices), {"num_experts": num_experts, "k": indices.shape[1]}

    device = indices.device if isinstance(indices, Tensor) else torch.device("cpu")  # pyright: ignore[reportUnnecessaryIsInstance]
    agreed_sizes(name, members, device, describe)
    real = indices if mask is None else indices[mask]
    counts = torch.bincount(real.reshape(-1), minlength=num_experts)
    both = members.total(torch.cat([counts, torch.tensor([len(real)], device=device)]))
    counts, tokens = both[:-1], int(both[-1])
    shares = counts.double() / counts.sum().clamp_min(1)
    entropy = float(-xlogy(shares, shares).sum())
    most = torch.tensor(float(num_experts)).log().item()
    return ExpertLoads(counts, tokens, entropy / most if num_experts > 1 else 1.0)
