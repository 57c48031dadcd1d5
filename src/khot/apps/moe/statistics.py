"""Statistics of a router over time: use of experts, dropped tokens, and how stable its choices are."""

from __future__ import annotations

import math
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from khot.apps.moe._choice import check_range
from khot.apps.moe._masks import real_of
from khot.apps.moe.correction import CountsExperts, computes_again
from khot.apps.moe.layer import MoE
from khot.apps.moe.replay import routers_of
from khot.apps.moe.router import Routed
from khot.parallel._agreement import agreed_sizes
from khot.parallel._group import Group, ProcessGroup
from khot.relaxations._plain_arguments import check_choice, check_integer, check_tensor

__all__ = ["RoutingStatistics", "RoutingStep", "watch_routing"]


@dataclass(frozen=True)
class RoutingStep:
    """The statistics of one step of a router.

    Args:
        tokens: the number of real tokens.
        usage: the share of each expert among all chosen pairs; the shares sum to 1.
        entropy: the entropy of the usage divided by log E: 1 for even use, 0 if only one expert is used.
        idle: the number of experts with less than a tenth of the even share.
        dropped: the share of pairs that were dropped because a capacity was full.
        overlap: the mean share of a token's experts that were the same in the previous step; None in the
            first step, or if the number of tokens differs.

    Example:
        >>> step = RoutingStatistics(2).update(torch.tensor([[0], [0], [1], [0]]))
        >>> step.tokens, step.usage, step.idle
        (4, (0.75, 0.25), 0)
    """

    tokens: int
    usage: tuple[float, ...]
    entropy: float
    idle: int
    dropped: float
    overlap: float | None


class RoutingStatistics:
    """Record the use of experts step by step, as a table and as a plot.

    Cost: O(T·k) per step.

    Args:
        num_experts: the number of experts.
        name: the name of the router, for captions.
        kind: ``"local"``, or ``"global"`` for the tokens of all processes, which must then record together.
        group: the processes, for ``"global"``; by default all.

    Example:
        >>> statistics = RoutingStatistics(4)
        >>> statistics.update(torch.tensor([[0, 1], [0, 2]])).usage
        (0.5, 0.25, 0.25, 0.0)
        >>> step = statistics.update(torch.tensor([[1, 0], [0, 3]]))
        >>> step.overlap, round(step.entropy, 2)
        (0.75, 0.75)
        >>> print(statistics.table())
        | step | tokens | entropy | largest share | idle experts | dropped | overlap |
        | ---: | ---: | ---: | ---: | ---: | ---: | ---: |
        | 0 | 2 | 0.750 | 0.500 | 1 | 0.000 | – |
        | 1 | 2 | 0.750 | 0.500 | 1 | 0.000 | 0.750 |
    """

    def __init__(
        self,
        num_experts: int,
        name: str = "router",
        kind: Literal["local", "global"] = "local",
        group: ProcessGroup | None = None,
    ) -> None:
        check_integer("RoutingStatistics", "num_experts", num_experts)
        check_choice("RoutingStatistics", "kind", kind, ("local", "global"))
        self.num_experts, self.name = num_experts, name
        self._processes = Group(group) if kind == "global" else None
        self.steps: list[RoutingStep] = []
        self._before: Tensor | None = None

    @torch.no_grad()
    def update(self, indices: Tensor, mask: Tensor | None = None, kept: Tensor | None = None) -> RoutingStep:
        """Add a step.

        Args:
            indices: the experts (T, k) of each token.
            mask: True (or 1) for a real token.
            kept: (T, k), False for dropped pairs; see :func:`apply_capacity`.

        Returns:
            The :class:`RoutingStep`.
        """
        name = type(self).__name__

        def checked() -> tuple[int, dict[str, Any]]:
            check_tensor(name, "indices", indices)
            if indices.dim() != 2:
                raise ValueError(
                    f"{name}: indices must have the shape (tokens, k), got {tuple(indices.shape)}"
                )
            check_range(name, indices, self.num_experts)
            if kept is not None:
                check_tensor(name, "kept", kept)
            if kept is not None and (kept.shape != indices.shape or kept.dtype != torch.bool):
                raise ValueError(
                    f"{name}: kept must be boolean of the shape of indices, {tuple(indices.shape)}, "
                    f"got {kept.dtype} of {tuple(kept.shape)}"
                )
            real_of(name, mask, len(indices))
            return len(indices), {"num_experts": self.num_experts, "k": indices.shape[1]}

        if self._processes is None:
            checked()
        else:  # a mistake in one process is an error in all
            device = indices.device if isinstance(indices, Tensor) else torch.device("cpu")  # pyright: ignore[reportUnnecessaryIsInstance]
            agreed_sizes(name, self._processes, device, checked)
        device, indices = indices.device, indices.detach().cpu()
        tokens = len(indices)
        real = real_of(name, mask, tokens)
        real = torch.ones(tokens, dtype=torch.bool) if real is None else real.cpu()
        chosen = indices[real]
        stays = torch.ones_like(chosen, dtype=torch.bool) if kept is None else kept.detach().cpu()[real]
        k_hot = torch.zeros(tokens, self.num_experts, dtype=torch.bool).scatter_(1, indices, True)
        k_hot &= real.unsqueeze(-1)
        before, self._before = self._before, k_hot
        known = before is not None and before.shape == k_hot.shape and len(chosen) > 0
        again = (before & k_hot).sum().item() if before is not None and known else 0
        found = torch.bincount(chosen[stays], minlength=self.num_experts)
        others = [len(chosen), int(stays.sum()), chosen.numel(), again, chosen.numel() * known]
        numbers = torch.cat([found.double(), torch.tensor(others, dtype=torch.float64)])
        if self._processes is not None:
            numbers = self._processes.total(numbers.to(device)).cpu()
        counts = numbers[:-5]
        real_tokens, kept_places, places, again, compared = (float(each) for each in numbers[-5:])
        usage = counts / counts.sum().clamp_min(1)
        entropy = -(usage * usage.clamp_min(1e-300).log()).sum().item()
        step = RoutingStep(
            tokens=int(real_tokens),
            usage=tuple(float(share) for share in usage),
            entropy=entropy / math.log(self.num_experts) if self.num_experts > 1 else 1.0,
            idle=int((usage < 0.1 / self.num_experts).sum()),
            dropped=1 - kept_places / places if places else 0.0,
            overlap=again / compared if compared else None,
        )
        self.steps.append(step)
        return step

    @property
    def usage(self) -> Tensor:
        """The shares (experts,) of the experts over all steps, weighted by the number of tokens."""
        total = torch.zeros(self.num_experts, dtype=torch.float64)
        for step in self.steps:
            total += step.tokens * torch.tensor(step.usage, dtype=torch.float64)
        return total / total.sum().clamp_min(1e-300)

    def table(self, last: int | None = None) -> str:
        """The steps, or the ``last`` ones, as a Markdown table."""
        header = ("step", "tokens", "entropy", "largest share", "idle experts", "dropped", "overlap")
        first = 0 if last is None else max(0, len(self.steps) - last)
        rows = [
            (
                f"{number}",
                f"{step.tokens}",
                f"{step.entropy:.3f}",
                f"{max(step.usage):.3f}",
                f"{step.idle}",
                f"{step.dropped:.3f}",
                "–" if step.overlap is None else f"{step.overlap:.3f}",
            )
            for number, step in enumerate(self.steps[first:], first)
        ]
        lines = [header, ("---:",) * len(header), *rows]
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)

    def plot(self, axes: Any = None) -> Any:
        """Plot the shares of the experts over the steps, stacked; returns the axes. Needs matplotlib."""
        if axes is None:
            try:
                import matplotlib.pyplot as plt
            except ModuleNotFoundError as error:
                raise ModuleNotFoundError(
                    "RoutingStatistics.plot needs matplotlib: pip install matplotlib"
                ) from error
            axes = plt.subplots()[1]
        shares = torch.tensor([step.usage for step in self.steps]).view(-1, self.num_experts).T
        axes.stackplot(range(len(self.steps)), shares.numpy())
        axes.set(xlabel="step", ylabel="share of each expert", title=self.name, ylim=(0, 1))
        return axes

    def __repr__(self) -> str:
        return f"RoutingStatistics({self.num_experts} experts, {len(self.steps)} steps)"


@contextmanager
def watch_routing(
    model: nn.Module, kind: Literal["local", "global"] = "local", group: ProcessGroup | None = None
) -> Generator[dict[str, RoutingStatistics]]:
    """Record every call of every router in a model while the context is active.

    Routers are :class:`TopKRouter` and those of :func:`replace_router`. Padding is left out if the router
    knows about it, from its caller or from :func:`mask_padding`. Pairs that a :class:`MoE` drops are recorded
    as dropped. Recomputation in a backward pass is not recorded.

    Args:
        model: a model with routers.
        kind: ``"local"``, or ``"global"`` for the tokens of all processes.
        group: the processes, for ``"global"``; by default all.

    Returns:
        A context manager; it yields a dictionary from the name of each router to its
        :class:`RoutingStatistics`.

    Example:
        >>> from khot.apps.moe import Experts, MoE, TopKRouter
        >>> layer = MoE(TopKRouter(16, 8, 2), Experts(8, hidden=16, width=32))
        >>> with watch_routing(layer) as statistics:
        ...     output = layer(torch.randn(10, 16))
        >>> statistics["router"].steps[0].tokens
        10
    """
    found: dict[str, RoutingStatistics] = {}
    handles: list[Any] = []
    layers = {id(module.router): module for module in model.modules() if isinstance(module, MoE)}
    for name, router in routers_of(model, "watch_routing").items():
        statistics = RoutingStatistics(len(router.expert_counts), name or type(router).__name__, kind, group)
        found[name] = statistics
        handles.append(
            router.register_forward_hook(_recorder(statistics, layers.get(id(router))), with_kwargs=True)
        )
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


def _recorder(statistics: RoutingStatistics, layer: MoE | None) -> Any:
    """A hook for a router, which may stand in a layer that drops places."""

    @torch.no_grad()
    def record(router: CountsExperts, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        if computes_again():
            return
        mask = kwargs.get("mask", args[1] if len(args) > 1 else None)
        real = real_of("watch_routing", router.token_mask if mask is None else mask, len(output[2]))
        kept = None if layer is None else layer.capped(Routed(*output), real)[1]
        statistics.update(output[2], real, kept)

    return record
