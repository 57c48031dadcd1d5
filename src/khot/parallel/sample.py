"""Samples of exactly k of the n entries of rows that several processes hold.

Every decision uses integer arithmetic, or the same operations on the same numbers. So, given π and the seed,
the sample depends neither on the number of processes nor on where the row is cut. Cost: two or three messages
(from scores, also those of :func:`khot.parallel.sigmoid_topk`), and O(shard) work per draw.
"""

from __future__ import annotations

import math
from typing import Any, cast

import torch
from torch import Tensor

from khot.constraints import SUM_TOLERANCE
from khot.designs._arguments import check_one_of, check_size
from khot.parallel._agreement import agreed_sizes
from khot.parallel._dtensors import is_dtensor, on_dtensor
from khot.parallel._functions import gated_shards
from khot.parallel._group import Group, ProcessGroup, joined
from khot.parallel._outside import outside_graphs
from khot.parallel._shards import Shards
from khot.parallel._systematic import draw_systematic
from khot.parallel._tree import draw_tree
from khot.parallel._uniforms import stream_seed
from khot.relaxations._arguments import Number, allowed_scores, check_mask, compute_dtype, directed, position
from khot.relaxations._plain_arguments import check_choice, check_generator, check_sample_shape, check_switch
from khot.relaxations.threshold._gates import LOGISTIC

__all__ = ["sample"]

_DESIGNS = ("systematic", "tree_pivotal")


@outside_graphs
def sample(
    scores: Tensor | None = None,
    k: float | None = None,
    *,
    probs: Tensor | None = None,
    design: str = "tree_pivotal",
    sample_shape: tuple[int, ...] = (),
    generator: torch.Generator | None = None,
    dim: int = -1,
    mask: Tensor | None = None,
    largest: bool = True,
    group: ProcessGroup | None = None,
) -> Tensor:
    r"""Draw exactly ``k`` of the n entries of rows that several processes hold.

    .. math:: x \in \{0, 1\}^n, \quad \textstyle\sum_i x_i = k, \quad P(x_i = 1) = \pi_i

    This is :func:`khot.sample` for shards, without a gradient. The same seed gives the same sample for any
    number of processes: bit for bit from ``probs``, and up to the rounding of float64 sums from scores.
    ``"systematic"`` draws what :func:`khot.sample` draws with that seed. ``"tree_pivotal"`` has the same law
    as in :func:`khot.sample`, but other draws, because each process makes only the random numbers it needs.

    Args:
        scores: this process's shard, or a ``DTensor`` of which only ``dim`` is sharded; π is
            :func:`khot.parallel.sigmoid_topk` of them.
        k: how many of the whole row to draw; if it is not an integer, ⌊k⌋ or ⌈k⌉ are drawn.
        probs: inclusion probabilities instead of scores; they sum to k over all shards.
        design: ``"tree_pivotal"`` or ``"systematic"``.
        sample_shape: the number of draws, as a shape.
        generator: a generator with the same state in all processes; by default the first process takes a
            seed from torch's default generator and sends it to all.
        dim: the dimension of the n entries, along which the rows are split.
        mask: boolean, broadcastable to this shard; False is never drawn.
        largest: False makes small scores likely to be drawn, instead of large ones.
        group: the processes; by default all, or this one alone if there is no process group.

    Returns:
        Zeros and ones of shape ``sample_shape`` + the shape of this shard, in its dtype.

    Example:
        >>> x = sample(probs=torch.full((8,), 0.25), k=2, sample_shape=(100,))
        >>> x.shape, x.sum(-1).unique()
        (torch.Size([100, 8]), tensor([2.]))
    """
    given = probs if scores is None else scores
    argument = "probs" if scores is None else "scores"

    def on_shards(
        local: Tensor, k: Any, temperature: Number | Tensor, mask: Tensor | None, members: Group
    ) -> Tensor:
        del temperature
        with torch.no_grad():
            return _drawn(
                {"scores": scores, "probs": probs}, argument, local, k, design, sample_shape,
                generator, dim, mask, largest, members,
            )  # fmt: skip

    if is_dtensor(given):
        return on_dtensor(
            "sample",
            given,
            cast("Any", k),
            1.0,
            dim,
            mask,
            group,
            on_shards,
            more=len(sample_shape) if hasattr(sample_shape, "__len__") else 0,  # then it is refused
            whole=True,
        )
    return on_shards(cast("Any", given), k, 1.0, mask, joined(group))


def _drawn(
    parameters: dict[str, Tensor | None],
    argument: str,
    local: Tensor,
    k: Any,
    design: str,
    sample_shape: tuple[int, ...],
    generator: torch.Generator | None,
    dim: int,
    mask: Tensor | None,
    largest: bool,
    group: Group,
) -> Tensor:
    name = "sample"

    def describe() -> tuple[int, dict[str, Any]]:
        if (scores := parameters["scores"]) is not None and parameters["probs"] is not None:
            check_one_of(name, {"scores": scores, "probs": parameters["probs"]})
        if local is None:  # pyright: ignore[reportUnnecessaryComparison]
            check_one_of(name, parameters)
        last = position(name, local, dim, argument)
        check_choice(name, "design", design, _DESIGNS)
        check_sample_shape(name, sample_shape)
        check_generator(name, generator)
        if k is None:
            raise TypeError(f"{name}: give k, how many are drawn")
        if mask is not None:
            check_mask(name, local, mask)
        check_switch(name, "largest", largest)
        if argument == "probs" and not largest:
            raise ValueError(f"{name}: largest=False is for scores, got probs")
        return local.shape[last], {
            "scores or probs": argument,
            "their dtype": local.dtype,
            "their shape without dim": tuple(local.shape[:last] + local.shape[last + 1 :]),
            "dim": last,
            "k": k,
            "design": design,
            "sample_shape": tuple(sample_shape),
            "largest": largest,
            "the state of generator": None if generator is None else generator.get_state(),
        }

    device = local.device if isinstance(local, Tensor) else torch.device("cpu")  # pyright: ignore[reportUnnecessaryIsInstance]
    sizes = agreed_sizes(name, group, device, describe)
    last, n = position(name, local, dim, argument), sum(sizes)
    if n == 0:
        raise ValueError(f"{name}: {argument} must have at least one unit, got none in any process")
    size = check_size(name, k, n, whole=False)
    if generator is None:
        seed = group.each(torch.tensor(stream_seed(None, torch.device("cpu")), device=device))[0]
        generator = torch.Generator(device).manual_seed(int(seed))

    rows = directed(name, local.detach(), largest).movedim(last, -1)
    shape = rows.shape
    allowed = (
        None
        if mask is None
        else mask.expand(local.shape).movedim(last, -1).reshape(shape[:-1].numel(), shape[-1])
    )
    flat = rows.reshape(shape[:-1].numel(), shape[-1])
    shards = Shards(flat, flat.new_empty(0), flat.new_empty(0), n, sum(sizes[: group.rank]), shape, last)
    inclusion, count = _inclusion(name, argument, shards, allowed, size, group)
    # A unit at the end of the row takes what is missing to a whole number.
    sizes[-1] += 1
    if group.rank == group.size - 1:
        inclusion = torch.cat([inclusion, count.ceil() - count], -1)
    whole, draws = count.ceil().long(), math.prod(sample_shape)
    if design == "systematic":
        u = torch.rand((draws, len(flat), 1), dtype=torch.float64, device=device, generator=generator)
        x = draw_systematic(inclusion, whole, u, group)
    else:
        x = draw_tree(inclusion, whole, sizes, draws, stream_seed(generator, device), group)
    x = x[..., : shape[-1]].to(local.dtype).reshape(*sample_shape, *shape)
    return x.movedim(-1, last - local.dim())


def _inclusion(
    name: str, argument: str, shards: Shards, allowed: Tensor | None, k: float, group: Group
) -> tuple[Tensor, Tensor]:
    """π of this shard in float64, with sum k; and k of each row (rows, 1), less if fewer may be drawn.

    The sums are sums of integers, so their order does not matter; see `khot.designs._arguments.normalised`.
    """
    given = shards.scores
    if argument == "scores":
        given = allowed_scores(name, given, allowed)
        wide = given.to(compute_dtype(given))
        budget = wide.new_full((len(wide), 1), k)
        pi = gated_shards(
            LOGISTIC, shards._replace(scores=wide, k=budget, temperature=torch.ones_like(budget)), group
        )
        wrong, possible = given.isnan(), given > -math.inf
    else:
        pi = given if allowed is None else torch.where(allowed, given, 0)
        wrong, possible = ~((pi >= 0) & (pi <= 1)), torch.ones_like(pi, dtype=torch.bool)
    pi = pi.double()
    one = float(1 << min(50, 61 - (math.ceil(k) + 1).bit_length()))
    room = pi * (1 - pi)
    numbers = [
        torch.where(wrong, 0, pi * one).round().long(),
        torch.where(wrong, 0, room * one).round().long(),
        possible.long(),
        wrong.long(),
    ]
    sums = group.total(torch.stack([each.sum(-1) for each in numbers], -1))
    total, of_room, n_possible, n_wrong = sums.unsqueeze(1).unbind(-1)
    if bool((n_wrong > 0).any()):
        rule = "must not be NaN" if argument == "scores" else "must lie in [0, 1]"
        raise ValueError(f"{name}: {argument} {rule}, got {int(n_wrong.sum())} that do not keep to it")
    count = torch.minimum(torch.full_like(total, k, dtype=torch.float64), n_possible.double())
    missing = count - total.double() / one
    if argument == "probs" and missing.numel():
        tolerance = min(SUM_TOLERANCE[given.dtype] * max(k, 1.0), 0.5)
        worst = missing.flatten()[missing.abs().argmax()].item()
        if not abs(worst) <= tolerance:
            raise ValueError(
                f"{name}: probs must sum to k = {k} over all processes to within {tolerance:.1g}, "
                f"got the sum {k - worst:.9g}"
            )
    share = torch.where(of_room > 0, missing / (of_room.double() / one).clamp_min(1e-300), 0.0)
    return pi + room * share.clamp(-1, 1), count
