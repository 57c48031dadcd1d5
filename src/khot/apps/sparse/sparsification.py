"""The masks of a model, chosen together: one selection per step, however often ``.weight`` is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, cast

import torch
from torch import Tensor, nn

from khot.apps.sparse.budgets import Distribution, check_density, layer_budgets
from khot.apps.sparse.drop_and_grow import DropAndGrow
from khot.apps.sparse.parametrization import TopKSparse
from khot.apps.sparse.report import SparseLayer, SparseReport, SparseStep
from khot.parallel._group import Group
from khot.relaxations.hard import hard_topk

__all__ = ["Member", "Scope", "Sparsification"]

Scope = Literal["layer", "global"]


class Member(NamedTuple):
    """A layer, its name in the model, and the parametrization of its weight."""

    name: str
    layer: nn.Module
    sparse: TopKSparse

    @property
    def original(self) -> Tensor:
        """The dense weight, which is trained."""
        return cast("Any", self.layer).parametrizations.weight.original

    @property
    def whole(self) -> Tensor:
        """The same by which masks are chosen: all of it, where each process has a part (FSDP2)."""
        weight = cast("Any", self.original.detach())
        return weight.full_tensor() if hasattr(weight, "full_tensor") else weight

    def clear_(self, where: Tensor) -> None:
        """Set entries of the dense weight to 0; ``where`` is all of a mask."""
        weight = cast("Any", self.original)
        if hasattr(weight, "full_tensor"):
            from torch.distributed.tensor import distribute_tensor

            where = distribute_tensor(where, weight.device_mesh, weight.placements)
        weight.masked_fill_(where, 0)


class Sparsification:
    """The result of :func:`khot.apps.sparse.sparsify`: it chooses the masks of a model and reports on them.

    Call :meth:`step` after each ``optimizer.step()``, or let it :meth:`follow` the optimizer. The model's
    ``state_dict`` holds the step count, the masks, and whether they are frozen, but not the history. Cost of
    a selection: one :func:`khot.hard_topk` over all weights.

    Args:
        members: the sparse layers; :func:`sparsify` makes them.
        density: the share of weights to keep, a number or a function of the step; None with a pattern.
        scope: ``"layer"`` or ``"global"``, see :func:`sparsify`.
        distribution: of the budgets over layers, see :func:`layer_budgets`.
        every: choose new masks every this many steps.
        update: a :class:`DropAndGrow` rule, or None to keep the largest weights.

    Example:
        >>> from torch import nn
        >>> from khot.apps.sparse import sparsify
        >>> model = nn.Sequential(nn.Linear(8, 4))
        >>> sparse = sparsify(model, density=0.25)
        >>> sparse.step()  # True if new masks were chosen
        True
        >>> sparse.steps, int((model[0].weight != 0).sum())
        (1, 8)
    """

    def __init__(
        self,
        members: list[Member],
        density: float | Callable[[int], float] | None,
        scope: Scope,
        distribution: Distribution,
        every: int,
        update: DropAndGrow | None,
    ) -> None:
        self.members, self.scope, self.every = members, scope, every
        self.distribution: Distribution = distribution
        self.update = update
        self._density = density
        self._sizes: Tensor | None = None
        self.history: list[SparseStep] = []

    @property
    def steps(self) -> int:
        """The number of steps taken."""
        return self.members[0].sparse.steps

    @property
    def frozen(self) -> bool:
        """Whether the masks are frozen."""
        return self.members[0].sparse.frozen

    def target(self, step: int | None = None) -> float | None:
        """The target density at a step, by default that of the next selection; None with a pattern."""
        step = self.steps if step is None else step
        if not callable(self._density):
            return self._density
        wanted = self._density(step)
        check_density("Sparsification", f"density({step})", wanted)
        return wanted

    def step(self) -> bool:
        """Count a step of the optimiser, and choose new masks if they are due; returns whether they were."""
        step = self.steps + 1
        for member in self.members:
            member.sparse.steps = step
        chosen = not self.frozen and step % self.every == 0
        if chosen and self.update is not None:
            chosen = step < self.update.until
        if chosen:
            self._exchange(self.update) if self.update is not None else self.select_()
        self.listen()
        return chosen

    def follow(self, optimizer: torch.optim.Optimizer) -> Any:
        """Call :meth:`step` after each optimiser step; returns a handle, whose ``remove()`` stops it."""
        return optimizer.register_step_post_hook(lambda *_: self.step() and None)  # pyright: ignore

    @torch.no_grad()
    def select_(self) -> None:
        """Choose new masks for all layers, by the current magnitudes."""
        wanted = self.target()
        if wanted is None:
            for member in self.members:
                member.sparse.select_(member.whole)
        elif self.scope == "layer":
            shapes = [tuple(member.original.shape) for member in self.members]
            budgets = layer_budgets(shapes, wanted, self.distribution)
            for member, budget in zip(self.members, budgets, strict=True):
                member.sparse.select_(member.whole, budget)
        else:
            self._select_among_all(wanted)
        self._remember()

    def _select_among_all(self, wanted: float) -> None:
        sizes = self._magnitudes()
        kept = round(wanted * sizes.numel())
        chosen = self._parts(hard_topk(sizes, kept))
        first = self.members[0].sparse
        learning = max(first.learning(sizes.numel()), kept)
        wider = None if first.learns is None else self._parts(hard_topk(sizes, learning))
        for place, member in enumerate(self.members):
            member.sparse.keep_(chosen[place], None if wider is None else wider[place])

    def _magnitudes(self) -> Tensor:
        """Of all weights, in memory that is kept: to ask for it anew takes longer than to fill it."""
        weights = [member.whole for member in self.members]
        count, first = sum(weight.numel() for weight in weights), weights[0]
        if self._sizes is None or self._sizes.device != first.device:
            dtype = torch.float64 if first.dtype == torch.float64 else torch.float32
            self._sizes = torch.empty(count, dtype=dtype, device=first.device)
        for weight, part in zip(weights, self._parts(self._sizes), strict=True):
            part.copy_(weight)
        return self._sizes.abs_()

    def _parts(self, whole: Tensor) -> list[Tensor]:
        weights = [member.original for member in self.members]
        parts = torch.split(whole, [weight.numel() for weight in weights])
        return [part.view(weight.shape) for part, weight in zip(parts, weights, strict=True)]

    @torch.no_grad()
    def start_at_random(self) -> None:
        """Draw random masks with the budgets of the layers; see :class:`DropAndGrow`."""
        wanted = self.target()
        assert wanted is not None
        shapes = [tuple(member.original.shape) for member in self.members]
        for member, budget in zip(
            self.members, layer_budgets(shapes, wanted, self.distribution), strict=True
        ):
            weight = member.original
            drawn = torch.rand(weight.shape, device=weight.device).flatten()
            member.sparse.keep_(hard_topk(drawn, budget).to(weight.dtype).view(weight.shape))
        self._remember()

    @torch.no_grad()
    def _exchange(self, rule: DropAndGrow) -> None:
        for member in self.members:
            gradient = member.sparse.take_gradient()
            if gradient is None:  # the layer took no part
                continue
            gradient = Group().total(gradient.contiguous())  # of all processes: masks stay the same in each
            mask, new = rule.exchanged(member.whole, gradient, member.sparse.mask, self.steps)
            member.clear_(new)
            member.sparse.keep_(mask.to(member.original.dtype))
        self._remember()

    def listen(self) -> None:
        """Record dense gradients if the next step needs them."""
        due = self.update is not None and not self.frozen and (self.steps + 1) % self.every == 0
        for member in self.members:
            member.sparse.records_gradient = due
            member.sparse.recorded = None

    def freeze(self) -> None:
        """Freeze the masks, even if a new weight is assigned."""
        self._set_frozen(True)

    def unfreeze(self) -> None:
        """Let the masks change again."""
        self._set_frozen(False)

    def _set_frozen(self, frozen: bool) -> None:
        for member in self.members:
            member.sparse.frozen = frozen
        self.listen()

    def exploration_penalty(self) -> Tensor:
        r"""Half the squares of the kept weights, plus 1/density times those of the other trained weights.

        Top-KAST adds it, times a weight decay, to the loss, so that weights that are not kept are penalised
        more.
        """
        total = torch.zeros((), device=self.members[0].original.device)
        for member in self.members:
            sparse, squares = member.sparse, member.original.square()
            learns = 1.0 if sparse.learns is None else sparse.learns
            share = max(sparse.kept, 1) / sparse.mask.numel()
            total = total + (squares * torch.where(sparse.mask, 1.0, learns / share)).sum() / 2
        return total

    def report(self) -> SparseReport:
        """The current density and churn of each layer, and the history."""
        layers = tuple(
            SparseLayer(m.name, tuple(m.original.shape), m.sparse.mask.numel(), m.sparse.kept, m.sparse.churn)
            for m in self.members
        )
        return SparseReport(layers, tuple(self.history))

    def _remember(self) -> None:
        kept = {member.name: member.sparse.kept for member in self.members}
        churn = {member.name: member.sparse.churn for member in self.members}
        self.history.append(SparseStep(self.steps, kept, churn))

    def __repr__(self) -> str:
        report = self.report()
        return f"Sparsification({len(self.members)} layers, density {report.density:.4g}, {self.scope})"
