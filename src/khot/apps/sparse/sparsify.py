"""Make the layers of a model sparse, find their sparsification, and make them plain again."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast, get_args

from torch import Tensor, nn
from torch.nn.utils import parametrize

from khot.apps.sparse._pattern import TRANSPOSED, input_dimension
from khot.apps.sparse.budgets import Distribution, check_density, check_distribution
from khot.apps.sparse.drop_and_grow import DropAndGrow
from khot.apps.sparse.parametrization import TopKSparse
from khot.apps.sparse.sparsification import Member, Scope, Sparsification
from khot.relaxations._plain_arguments import check_choice, check_integer
from khot.relaxations.registry import Relaxation

__all__ = ["make_permanent", "sparsification_of", "sparsify"]

LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d, *TRANSPOSED, nn.Embedding)
Layers = Iterable[str] | Callable[[str, nn.Module], bool]


def sparsify(
    model: nn.Module,
    density: float | Callable[[int], float] | None = None,
    *,
    scope: Scope = "layer",
    distribution: Distribution = "uniform",
    pattern: str | tuple[int, int] | None = None,
    every: int = 1,
    update: DropAndGrow | None = None,
    backward_density: float = 1.0,
    method: str | Relaxation | None = None,
    temperature: float = 1.0,
    hard: bool = True,
    layers: Layers | None = None,
) -> Sparsification:
    """Make the weights of a model's linear, convolutional and embedding layers sparse, in place.

    Each weight gets the parametrization :class:`TopKSparse`: the dense weight is trained, and the layer
    computes with its largest entries. ``state_dict``, ``deepcopy``, ``to`` and ``torch.compile`` still work.
    torch cannot pickle a parametrized module, so save the ``state_dict``, or call :func:`make_permanent`
    first. Cost: an elementwise product per access of a weight, and one :func:`khot.hard_topk` per selection.

    Args:
        model: the model, changed in place. An existing optimiser keeps working with the same parameters. But
            torch lists the parameters in another order afterwards, and the state of an optimiser refers to
            them by position. So load a saved state only into an optimiser that was made at the same point:
            both before, or both after ``sparsify``.
        density: the share of weights to keep, in [0, 1], or a function of the step, such as
            :func:`khot.apps.sparse.cubic`. Biases and other parameters stay dense.
        scope: ``"layer"``: each layer has its own budget; ``"global"``: one budget for all layers, and one
            selection among all their weights.
        distribution: of the budgets over layers, for the scope ``"layer"``; see :func:`layer_budgets`.
        pattern: instead of density: ``"2:4"``, or another N:M, along the input dimension.
        every: choose new masks every this many steps.
        update: by default the largest weights are kept; :class:`DropAndGrow` exchanges some as RigL does.
        backward_density: the share of weights that get a gradient; see :class:`TopKSparse`.
        method: a relaxation whose gradient is used; see :class:`TopKSparse`.
        temperature: the temperature of the method.
        hard: with a method: True computes with the exact mask, False with soft weights.
        layers: names of layers, or a function ``f(name, layer)`` that returns True for the layers to make
            sparse; by default all. Use it to leave out the first or the last layer.

    Returns:
        The :class:`Sparsification`; call its ``step()`` after each ``optimizer.step()``, or ``follow`` one.

    Example:
        >>> import torch
        >>> model = nn.Sequential(nn.Linear(784, 300), nn.ReLU(), nn.Linear(300, 10))
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> sparse = sparsify(model, 0.05, scope="global", every=10)
        >>> handle = sparse.follow(optimizer)
        >>> model(torch.randn(8, 784)).sum().backward()
        >>> optimizer.step()
        >>> sum(int((model[i].weight != 0).sum()) for i in (0, 2)) == round(0.05 * 238200)
        True
        >>> make_permanent(model)
        ('0', '2')

    Reference: Jayakumar et al. (2020), Top-KAST, arXiv:2106.03517; Zhou et al. (2021), arXiv:2102.04010, for
    N:M patterns.
    """
    name = "sparsify"
    if not isinstance(model, nn.Module):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{name}: model must be a torch module, got {model!r}")
    _check(name, density, scope, distribution, pattern, every, update, backward_density, method)
    found = _chosen_layers(name, model, layers)
    for layer_name, layer in found.items():
        _check_layer(name, layer_name, layer, pattern)
    _check_tied(name, model, found)
    start = density(0) if callable(density) else density
    if start is not None:
        check_density(name, "density", start)
    # All are made before any is put in place: a wrong argument leaves the model as it was.
    made: dict[str, TopKSparse] = {
        layer_name: TopKSparse(
            start,
            pattern=pattern,
            dim=input_dimension(layer),
            backward_density=0.0 if update is not None else backward_density,
            method=method,
            temperature=temperature,
            hard=hard,
        ).to(cast("Tensor", layer.weight).device)
        for layer_name, layer in found.items()
    }
    for layer_name, layer in found.items():
        parametrize.register_parametrization(layer, "weight", made[layer_name])
    members = [Member(layer_name, layer, made[layer_name]) for layer_name, layer in found.items()]
    group = Sparsification(members, density, scope, distribution, every, update)
    for member in members:
        member.sparse.group = group
        member.sparse.forget_()
    group.select_() if update is None else group.start_at_random()
    group.listen()
    return group


def sparsification_of(model: nn.Module) -> Sparsification:
    """The sparsification of a model that was made sparse, or of a copy of such a model.

    Args:
        model: a model with at least one sparse layer.

    Returns:
        Its :class:`Sparsification`.

    Example:
        >>> model = nn.Sequential(nn.Linear(8, 4))
        >>> sparse = sparsify(model, density=0.25)
        >>> sparsification_of(model) is sparse
        True
    """
    for sparse in _parametrizations(model).values():
        if sparse.group is not None:
            return sparse.group
    raise ValueError(f"sparsification_of: {type(model).__name__} has no layer that sparsify made sparse")


def make_permanent(model: nn.Module) -> tuple[str, ...]:
    """Replace sparse parametrizations by plain weights with exact zeros.

    The parameters are the same objects as before, so an existing optimiser keeps working; but without masks,
    further training fills the zeros again.

    Args:
        model: a model with sparse layers, changed in place.

    Returns:
        The names of these layers.

    Example:
        >>> model = nn.Sequential(nn.Linear(8, 4))
        >>> sparse = sparsify(model, density=0.25)
        >>> make_permanent(model), int((model[0].weight != 0).sum())
        (('0',), 8)
    """
    found = _parametrizations(model)
    if not found:
        raise ValueError(f"make_permanent: {type(model).__name__} has no sparse layer")
    layers = dict(cast("Iterable[tuple[str, nn.Module]]", model.named_modules()))
    for name, sparse in found.items():
        sparse.hard = True  # the mask, where soft weights were computed with
        parametrize.remove_parametrizations(layers[name], "weight", leave_parametrized=True)
    return tuple(found)


def _parametrizations(model: nn.Module) -> dict[str, TopKSparse]:
    """By the name of their layer."""
    modules = cast("Iterable[tuple[str, nn.Module]]", model.named_modules())
    suffix = "parametrizations.weight.0"
    return {
        name.removesuffix(suffix).removesuffix("."): module
        for name, module in modules
        if isinstance(module, TopKSparse) and name.endswith(suffix)
    }


def _chosen_layers(name: str, model: nn.Module, layers: Layers | None) -> dict[str, nn.Module]:
    modules = cast("Iterable[tuple[str, nn.Module]]", model.named_modules())
    there: dict[str, nn.Module] = {
        layer_name: layer for layer_name, layer in modules if isinstance(layer, LAYERS)
    }
    if layers is None:
        chosen = there
    elif callable(layers):
        chosen = {layer_name: layer for layer_name, layer in there.items() if layers(layer_name, layer)}
    else:
        wanted = [layers] if isinstance(layers, str) else list(layers)
        unknown = [layer_name for layer_name in wanted if layer_name not in there]
        if unknown:
            known = ", ".join(map(repr, there)) or "none"
            raise ValueError(f"{name}: layers has {unknown[0]!r}; the model's sparse-able layers: {known}")
        chosen = {layer_name: there[layer_name] for layer_name in wanted}
    if not chosen:
        raise ValueError(
            f"{name}: {type(model).__name__} has no linear, convolutional or embedding layer to take"
        )
    return chosen


def _check_layer(name: str, layer_name: str, layer: nn.Module, pattern: object) -> None:
    shown = f"layer {layer_name!r}" if layer_name else "the model"
    if parametrize.is_parametrized(layer, "weight"):
        raise ValueError(f"{name}: the weight of {shown} is parametrized already; make_permanent it first")
    weight = cast("Any", layer)._parameters.get("weight")
    if weight is None:
        raise ValueError(
            f"{name}: the weight of {shown} is no parameter (torch.nn.utils.prune replaces it by one "
            "called weight_orig; prune.remove it first)"
        )
    if isinstance(weight, nn.parameter.UninitializedParameter):
        raise ValueError(
            f"{name}: the weight of {shown} has no shape yet; run a batch through the model first"
        )
    if not weight.is_floating_point():
        raise ValueError(f"{name}: the weight of {shown} must be floating, got {weight.dtype}")
    if isinstance(layer, nn.Embedding) and layer.sparse:
        raise ValueError(f"{name}: {shown} is an embedding with sparse gradients; make it with sparse=False")
    if pattern is not None:
        _, of = TopKSparse(pattern=cast("Any", pattern)).pattern or (0, 1)
        size = weight.shape[input_dimension(layer)]
        if size % of:
            raise ValueError(
                f"{name}: pattern {pattern!r} needs an input dimension divisible by {of}, "
                f"that of {shown} is {size}; leave it out with layers="
            )


def _check_tied(name: str, model: nn.Module, found: dict[str, nn.Module]) -> None:
    names: dict[int, list[str]] = {}
    for parameter_name, parameter in model.named_parameters(remove_duplicate=False):
        names.setdefault(id(parameter), []).append(parameter_name.rpartition(".")[0])
    for layer in found.values():
        tied = names.get(id(layer.weight), [])
        if len(tied) > 1:
            raise ValueError(
                f"{name}: layers {tied[0]!r} and {tied[1]!r} share their weight, which would become two; "
                "leave both out with layers="
            )


def _check(
    name: str,
    density: float | Callable[[int], float] | None,
    scope: Scope,
    distribution: Distribution,
    pattern: object,
    every: int,
    update: DropAndGrow | None,
    backward_density: float,
    method: object,
) -> None:
    check_choice(name, "scope", scope, get_args(Scope))
    check_distribution(name, distribution)
    if (density is None) == (pattern is None):
        raise ValueError(f"{name}: give density or pattern, got {density} and {pattern}")
    if scope == "global" and distribution != "uniform":
        raise ValueError(f"{name}: distribution={distribution!r} has no effect with scope='global'")
    if pattern is not None and (scope != "layer" or distribution != "uniform"):
        raise ValueError(f"{name}: pattern={pattern!r} is its own budget; leave out scope and distribution")
    check_integer(name, "every", every)
    if update is None:
        return
    if not isinstance(update, DropAndGrow):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{name}: update must be a DropAndGrow or None, got {update!r}")
    if callable(density) or scope != "layer" or pattern is not None or method is not None:
        raise ValueError(
            f"{name}: update=DropAndGrow needs a number as density, scope='layer', no pattern and no method"
        )
    if backward_density != 1:
        raise ValueError(f"{name}: with DropAndGrow only kept weights learn, got {backward_density=}")
