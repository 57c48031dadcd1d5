"""Masks of a model: the budget at every step, one selection in a step, and what users do with the model."""

import copy
import pickle

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize, prune

import khot
import khot.apps.sparse.sparsification as machinery
from khot.apps.sparse import (
    DropAndGrow,
    TopKSparse,
    cubic,
    layer_budgets,
    make_permanent,
    sparsification_of,
    sparsify,
)
from khot.schedules import TemperatureScheduler, exponential
from strategies.quick_run import costly
from strategies.small_networks import every_kind, perceptron, train_step

SHAPES = [(20, 12), (8, 20), (3, 8)]
TOTAL = sum(a * b for a, b in SHAPES)


def masks(model):
    return [sparse.mask.clone() for sparse in model.modules() if isinstance(sparse, TopKSparse)]


def nonzeros(model):
    return [int((layer.weight != 0).sum()) for layer in model.modules() if isinstance(layer, nn.Linear)]


WAYS = {
    "uniform": {"density": 0.3},
    "erk": {"density": 0.3, "distribution": "erk"},
    "global": {"density": 0.3, "scope": "global"},
    "schedule": {"density": cubic(1.0, 0.1, steps=8, warmup=2), "every": 2},
    "global schedule": {"density": cubic(1.0, 0.1, steps=8), "scope": "global", "backward_density": 0.5},
    "Top-KAST": {"density": 0.2, "backward_density": 0.5},
    "kept alone": {"density": 0.2, "backward_density": 0.0},
    "relaxed": {"density": 0.3, "method": "sigmoid", "temperature": 0.2},
    "pattern": {"pattern": "2:4", "layers": ["0", "2"]},
    "drop and grow": {"density": 0.3, "every": 2, "update": DropAndGrow(0.5, until=8)},
}


@pytest.mark.parametrize("way", WAYS)
def test_the_budget_holds_at_every_step(way):
    """Of the weights that layers compute with, before and after each step and each selection."""
    model, settings = perceptron(), WAYS[way]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.9)
    sparse = sparsify(model, **settings)
    density, every = settings.get("density"), settings.get("every", 1)
    changed = False
    before = masks(model)
    for step in range(12):
        last = step - step % every
        counts = nonzeros(model)
        if density is None:
            assert counts == [120, 80, 24]
        elif settings.get("scope") == "global":
            wanted = density(last) if callable(density) else density
            assert sum(counts) == round(wanted * TOTAL)
        else:
            wanted = density(last) if callable(density) else density
            budgets = layer_budgets(SHAPES, wanted, settings.get("distribution", "uniform"))
            got = [mask.sum() for mask in masks(model)]
            assert got == budgets
            if way != "drop and grow":  # grown weights start from 0
                assert counts == budgets
        train_step(model, optimizer, step)
        assert sparse.step() == ((step + 1) % every == 0 and not (way == "drop and grow" and step + 1 >= 8))
        changed = changed or any((a != b).any() for a, b in zip(before, masks(model), strict=True))
    assert changed


@pytest.mark.parametrize("scope", ["layer", "global"])
def test_the_largest_are_kept(scope):
    model = perceptron()
    weights = [layer.weight.detach().clone() for layer in model if isinstance(layer, nn.Linear)]
    sparsify(model, 0.25, scope=scope)
    everything = torch.cat([weight.abs().flatten() for weight in weights])
    for weight, layer in zip(weights, (model[0], model[2], model[4]), strict=True):
        among = weight.abs().flatten() if scope == "layer" else everything
        cut = among.sort(descending=True).values[round(0.25 * len(among)) - 1]
        assert torch.equal(layer.weight, torch.where(weight.abs() >= cut, weight, 0))


def test_one_selection_in_a_step_for_all_layers(monkeypatch):
    """However often weights are read."""
    calls = []
    plain = machinery.hard_topk
    monkeypatch.setattr(machinery, "hard_topk", lambda *a, **o: calls.append(a[0].numel()) or plain(*a, **o))
    model = perceptron()
    sparse = sparsify(model, 0.3, scope="global")
    assert calls == [TOTAL]
    for _ in range(3):
        model(torch.randn(2, 12))
    assert calls == [TOTAL]
    sparse.step()
    assert calls == [TOTAL, TOTAL]


@pytest.mark.parametrize(
    ("options", "learning"),
    [({}, 240), ({"backward_density": 0.5}, 120), ({"backward_density": 0.0}, 24)],
)
def test_what_gets_a_gradient(options, learning):
    """All weights, the set B of the largest, or the kept ones: the gradient of the dense layer there."""
    layer = nn.Linear(12, 20)
    weight = layer.weight.detach().clone()
    sparsify(layer, 0.1, **options)
    x = torch.randn(5, 12)
    layer(x).square().sum().backward()
    effective = layer.weight.detach().clone().requires_grad_()
    nn.functional.linear(x, effective, layer.bias.detach()).square().sum().backward()
    order = weight.abs().flatten().argsort(descending=True)[:learning]
    chosen = torch.zeros(240).index_fill_(0, order, 1).view(20, 12)
    torch.testing.assert_close(layer.parametrizations.weight.original.grad, effective.grad * chosen)


@pytest.mark.parametrize("hard", [True, False])
def test_the_gradient_of_a_relaxation(hard):
    """Soft: that of w · y(|w|) by torch's own; hard: the same product rule with the exact mask."""
    weight = torch.randn(4, 6, dtype=torch.float64)
    layer = nn.Linear(6, 4, bias=False, dtype=torch.float64)
    layer.weight.data.copy_(weight)
    sparsify(layer, 0.5, method="sigmoid", temperature=0.3, hard=hard)
    leaf = weight.clone().requires_grad_()
    rms = weight.square().mean().sqrt()
    soft = khot.sigmoid_topk((leaf.abs() / rms).flatten(), 12, temperature=0.3).view(4, 6)
    mask = khot.hard_topk(weight.abs().flatten(), 12).view(4, 6)
    expected = leaf * (khot.estimators.straight_through(soft, mask) if hard else soft)
    torch.testing.assert_close(layer.weight, expected, atol=1e-6, rtol=1e-6)
    up = torch.randn(4, 6, dtype=torch.float64)
    (ours,) = torch.autograd.grad((layer.weight * up).sum(), layer.parametrizations.weight.original)
    (theirs,) = torch.autograd.grad((expected * up).sum(), leaf)
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-6)
    assert int((layer.weight != 0).sum()) == (12 if hard else 24)
    make_permanent(layer)
    assert int((layer.weight != 0).sum()) == 12


def test_a_temperature_can_be_annealed():
    model = perceptron()
    sparsify(model, 0.3, method="laplace", hard=False)
    soft = model[0].weight.detach().clone()
    scheduler = TemperatureScheduler(model, exponential(1.0, 1e-4, steps=1))
    scheduler.step()
    assert not torch.allclose(model[0].weight, soft)
    mask = model[0].parametrizations.weight[0].mask
    torch.testing.assert_close(model[0].weight, model[0].parametrizations.weight.original * mask)


def test_frozen_masks_stay():
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    sparse = sparsify(model, pattern=(1, 4), layers=["0", "2"])
    sparse.freeze()
    before = masks(model)
    handle = sparse.follow(optimizer)
    for step in range(3):
        train_step(model, optimizer, step)
    assert sparse.steps == 3
    model[0].weight = torch.randn(20, 12)
    assert all(map(torch.equal, before, masks(model)))
    sparse.unfreeze()
    train_step(model, optimizer, 4)
    assert not all(map(torch.equal, before, masks(model)))
    handle.remove()
    train_step(model, optimizer, 5)
    assert sparse.steps == 4


def test_an_assigned_weight_is_chosen_from():
    layer = nn.Linear(6, 4)
    sparsify(layer, 0.25)
    layer.weight = torch.arange(24.0).view(4, 6)
    assert layer.weight.flatten().nonzero().flatten().tolist() == [18, 19, 20, 21, 22, 23]


@pytest.mark.parametrize("way", ["global", "schedule", "pattern"])
def test_an_assigned_weight_keeps_the_budget(way):
    model = perceptron()
    sparse = sparsify(model, **WAYS[way])
    for _ in range(6):
        sparse.step()
    before = nonzeros(model)
    model[0].weight = torch.randn(20, 12)
    assert nonzeros(model) == before
    assert before[0] < 240


@pytest.mark.parametrize("way", WAYS)
def test_saved_and_resumed(way):
    """A run that is saved in the middle goes on as the one that was not."""

    def run(model, optimizer, sparse, steps):
        for step in steps:
            train_step(model, optimizer, step)
            sparse.step()

    def made():
        model = perceptron()
        sparse = sparsify(model, **WAYS[way])
        return model, torch.optim.SGD(model.parameters(), lr=0.5), sparse

    whole = made()
    run(*whole, range(7))
    stopped = made()
    run(*stopped, range(3))
    fresh = made()
    fresh[0].load_state_dict(copy.deepcopy(stopped[0].state_dict()))
    assert fresh[2].steps == 3
    run(*fresh, range(3, 7))
    for key, value in whole[0].state_dict().items():
        assert torch.equal(fresh[0].state_dict()[key], value), key


def test_a_copy_has_a_sparsification_of_its_own():
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    sparse = sparsify(model, 0.3, scope="global")
    twin = copy.deepcopy(model)
    copied = sparsification_of(twin)
    assert copied is not sparse
    assert [m.layer for m in copied.members] == [twin[0], twin[2], twin[4]]
    before = masks(twin)
    train_step(model, optimizer)
    sparse.step()
    assert all(map(torch.equal, before, masks(twin)))
    assert (copied.steps, sparse.steps) == (0, 1)


def test_pickle_is_refused_by_torch():
    model = perceptron()
    sparsify(model, 0.3)
    with pytest.raises(RuntimeError, match="only supported through state_dict"):
        pickle.dumps(model)
    make_permanent(model)
    pickle.loads(pickle.dumps(model))


def test_made_permanent():
    model = perceptron()
    parameters = list(model.parameters())
    sparsify(model, 0.3)
    x = torch.randn(4, 12)
    before = model(x)
    assert make_permanent(model) == ("0", "2", "4")
    assert torch.equal(model(x), before)
    assert not any(isinstance(module, TopKSparse) for module in model.modules())
    assert {id(p) for p in model.parameters()} == {id(p) for p in parameters}
    assert nonzeros(model) == layer_budgets(SHAPES, 0.3)
    with pytest.raises(ValueError, match="make_permanent: Sequential has no sparse layer"):
        make_permanent(model)
    with pytest.raises(ValueError, match="sparsification_of: Sequential has no layer"):
        sparsification_of(model)


def test_every_kind_of_layer():
    model = every_kind()
    sparse = sparsify(model, 0.3, scope="global")
    assert [m.name for m in sparse.members] == ["embed", "conv", "plane", "back", "head"]
    model(torch.randint(10, (3, 9))).square().sum().backward()
    assert all(m.original.grad is not None for m in sparse.members)
    sparse.step()
    assert round(sparse.report().density * sum(m.original.numel() for m in sparse.members)) == round(
        0.3 * sum(m.original.numel() for m in sparse.members)
    )


@pytest.mark.parametrize("pattern", ["2:4", "1:4", (0, 2), (2, 2)])
def test_patterns_along_the_input_dimension(pattern):
    model = every_kind()
    weights = {name: layer.weight.detach().clone() for name, layer in model.named_children()}
    sparse = sparsify(model, pattern=pattern)
    kept, of = (int(part) for part in (pattern.split(":") if isinstance(pattern, str) else pattern))
    for member in sparse.members:
        dim = 0 if member.name == "back" else 1
        rows = weights[member.name].movedim(dim, -1).reshape(-1, of)
        cut = rows.abs().sort(-1, descending=True).values[:, kept - 1 : kept]
        expected = torch.where(rows.abs() >= cut, rows, 0) if kept else torch.zeros_like(rows)
        assert torch.equal(member.layer.weight.movedim(dim, -1).reshape(-1, of), expected)


def test_a_pattern_is_that_of_torch():
    """Its own sparsifier, which reads a linear layer alone."""
    from torch.ao.pruning import WeightNormSparsifier

    layer = nn.Linear(16, 6)
    theirs = copy.deepcopy(nn.Sequential(layer))
    sparsifier = WeightNormSparsifier(sparsity_level=1.0, sparse_block_shape=(1, 4), zeros_per_block=2)
    sparsifier.prepare(theirs, config=[{"tensor_fqn": "0.weight"}])
    sparsifier.step()
    sparsify(layer, pattern="2:4")
    assert torch.equal(layer.weight, theirs[0].weight)


@pytest.mark.parametrize("scope", ["layer", "global"])
def test_at_the_start_it_is_magnitude_pruning(scope):
    ours, theirs = perceptron(), perceptron()
    sparsify(ours, 0.25, scope=scope)
    layers = [(theirs[i], "weight") for i in (0, 2, 4)]
    if scope == "global":
        prune.global_unstructured(layers, prune.L1Unstructured, amount=0.75)
    else:
        for layer, name in layers:
            prune.l1_unstructured(layer, name, amount=0.75)
    for i in (0, 2, 4):
        assert torch.equal(ours[i].weight, theirs[i].weight)


def test_the_report():
    model = perceptron()
    optimizer = torch.optim.SGD(model.parameters(), lr=2.0)
    sparse = sparsify(model, 0.3)
    assert [layer.churn for layer in sparse.report().layers] == [None] * 3
    before = masks(model)
    train_step(model, optimizer)
    sparse.step()
    report = sparse.report()
    for layer, old, new in zip(report.layers, before, masks(model), strict=True):
        assert layer.churn == pytest.approx((new & ~old).sum().item() / new.sum().item())
        assert layer.density == pytest.approx(new.float().mean().item())
    assert any(layer.churn for layer in report.layers)
    assert [step.step for step in report.history] == [0, 1]
    assert "| all |  | 424 | 127 | 0.2995 |  |" in report.table()
    matplotlib = pytest.importorskip("matplotlib")
    matplotlib.use("Agg")
    assert len(report.plot().lines) >= 3
    assert repr(sparse) == "Sparsification(3 layers, density 0.2995, layer)"


def test_the_exploration_penalty():
    layer = nn.Linear(4, 5)
    sparse = sparsify(layer, 0.2, backward_density=0.5)
    weight = layer.parametrizations.weight.original.detach()
    order = weight.abs().flatten().sort(descending=True).values
    expected = order[:4].square().sum() / 2 + order[4:10].square().sum() / 2 / 0.2
    torch.testing.assert_close(sparse.exploration_penalty().detach(), expected)


@pytest.mark.parametrize("density", [0.0, 1.0])
def test_nothing_and_everything(density):
    model = perceptron()
    dense = copy.deepcopy(model)
    sparsify(model, density, scope="global", method="sigmoid")
    x = torch.randn(3, 12)
    model(x).sum().backward()
    if density:
        assert torch.equal(model(x), dense(x))
    else:
        assert torch.equal(model(x), model[4].bias.expand(3, 3))
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


def test_equal_and_zero_weights_have_finite_gradients():
    layer = nn.Linear(6, 4)
    nn.init.zeros_(layer.weight)
    sparsify(layer, 0.5, method="sigmoid")
    assert layer.parametrizations.weight[0].mask.flatten().tolist() == [True] * 12 + [False] * 12
    layer(torch.randn(2, 6)).sum().backward()
    assert layer.parametrizations.weight.original.grad.isfinite().all()


@pytest.mark.parametrize("scope", ["layer", "global"])
@pytest.mark.parametrize("options", [{}, {"backward_density": 0.5}, {"method": "sigmoid"}])
def test_bfloat16_and_eval(options, scope):
    model = perceptron().bfloat16()
    sparse = sparsify(model, 0.3, scope=scope, **options)
    x = torch.randn(3, 12, dtype=torch.bfloat16)
    trained = model(x)
    trained.sum().backward()
    sparse.step()
    if scope == "layer":
        assert nonzeros(model) == layer_budgets(SHAPES, 0.3)
    assert sum(nonzeros(model)) == round(0.3 * TOTAL)
    assert model[0].weight.dtype == torch.bfloat16
    again = model(x)
    assert torch.equal(model.eval()(x), again)
    assert model.float()(x.float()).dtype == torch.float32
    assert model[0].parametrizations.weight[0].mask.dtype == torch.bool


@pytest.mark.parametrize(
    "options",
    [{}, costly({"backward_density": 0.5}), costly({"backward_density": 0.0}), costly({"method": "sigmoid"})],
)
def test_compiled(options):
    """Without a graph break, and not anew when masks change."""
    from torch._dynamo.testing import CompileCounterWithBackend

    model = perceptron()
    sparse = sparsify(model, 0.3, **options)
    torch.compiler.reset()
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(model, fullgraph=True, backend=counter)
    x = torch.randn(3, 12)
    for step in range(3):
        results = []
        for call in (compiled, model):
            model.zero_grad()
            y = call(x)
            y.square().sum().backward()
            results.append([y.detach(), *(p.grad.clone() for p in model.parameters())])
        for ours, eager in zip(*results, strict=True):
            torch.testing.assert_close(ours, eager, atol=1e-5, rtol=1e-4)
        with torch.no_grad():
            sparse.members[0].original.add_(
                torch.randn(20, 12, generator=torch.Generator().manual_seed(step))
            )
        sparse.step()
    assert counter.frame_count == 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "give density or pattern, got None and None"),
        ({"density": 0.1, "pattern": "2:4"}, "give density or pattern, got 0.1 and 2:4"),
        ({"density": 1.2}, r"density must be in \[0, 1\], got 1.2"),
        ({"density": lambda step: 2.0}, r"density must be in \[0, 1\], got 2.0"),
        ({"density": 0.1, "scope": "model"}, "scope must be 'layer' or 'global', got 'model'"),
        ({"density": 0.1, "distribution": "er"}, "distribution must be 'uniform' or 'erk', got 'er'"),
        ({"density": 0.1, "scope": "global", "distribution": "erk"}, "no effect with scope='global'"),
        ({"pattern": "2:4", "scope": "global"}, "pattern='2:4' is its own budget"),
        ({"pattern": "2-4"}, r"pattern must read 'N:M' or \(N, M\), as '2:4', got '2-4'"),
        ({"pattern": "5:4"}, "pattern must have 0 <= N <= M"),
        ({"pattern": (2.7, 4)}, r"pattern must read 'N:M' or \(N, M\), as '2:4', got \(2.7, 4\)"),
        ({"density": 0.1, "temperature": torch.ones(7)}, "temperature and hard belong to a method"),
        ({"density": 0.1, "method": "sigmoid", "temperature": torch.ones(7)}, "must be one number"),
        ({"pattern": "2:5"}, "needs an input dimension divisible by 5, that of layer '0' is 12"),
        ({"density": 0.1, "every": 0}, "every must be at least 1, got 0"),
        ({"density": 0.1, "method": "softmax"}, "unknown method 'softmax'"),
        ({"density": 0.1, "method": "gumbel"}, "method must not be random, got 'gumbel'"),
        ({"density": 0.1, "method": "sigmoid", "temperature": 0.0}, "temperature must be positive"),
        ({"density": 0.1, "temperature": 0.5}, "temperature and hard belong to a method"),
        ({"density": 0.1, "hard": False}, "temperature and hard belong to a method"),
        ({"density": 0.1, "method": "sigmoid", "backward_density": 0.2}, "no effect with method 'sigmoid'"),
        ({"density": 0.1, "backward_density": 1.5}, r"backward_density must be in \[0, 1\], got 1.5"),
        ({"density": 0.1, "layers": ["1"]}, "layers has '1'; the model's sparse-able layers: '0', '2', '4'"),
        ({"density": 0.1, "layers": lambda name, layer: False}, "no linear, convolutional or embedding"),
        ({"density": 0.1, "scope": "global", "update": DropAndGrow()}, "scope='layer'"),
        ({"density": 0.1, "backward_density": 0.5, "update": DropAndGrow()}, "only kept weights learn"),
    ],
)
def test_wrong_arguments_leave_the_model_as_it_was(settings, message):
    model = perceptron()
    with pytest.raises(ValueError, match=message):
        sparsify(model, **settings)
    assert not any(parametrize.is_parametrized(module) for module in model.modules())


def test_layers_that_cannot_be_taken():
    with pytest.raises(TypeError, match="update must be a DropAndGrow or None, got 'rigl'"):
        sparsify(perceptron(), 0.1, update="rigl")
    model = perceptron()
    sparsify(model, 0.1, layers="2")
    with pytest.raises(ValueError, match="the weight of layer '2' is parametrized already"):
        sparsify(model, 0.1)
    sparsify(model, 0.1, layers=lambda name, layer: name != "2")
    pruned = prune.l1_unstructured(nn.Linear(4, 4), "weight", amount=0.5)
    with pytest.raises(ValueError, match=r"the weight of the model is no parameter \(torch.nn.utils.prune"):
        sparsify(pruned, 0.1)
    with pytest.raises(ValueError, match="has no shape yet"):
        sparsify(nn.Sequential(nn.LazyLinear(4)), 0.1)
    with pytest.raises(ValueError, match="embedding with sparse gradients"):
        sparsify(nn.Embedding(4, 4, sparse=True), 0.1)
    tied = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    tied[1].weight = tied[0].weight
    with pytest.raises(ValueError, match="layers '0' and '1' share their weight"):
        sparsify(tied, 0.1)
    with pytest.raises(ValueError, match="layers '0' and '1' share their weight"):
        sparsify(tied, 0.1, layers=["1"])  # the other one would become sparse with it
    sparse = sparsify(perceptron(), lambda step: 0.5 if step == 0 else 3.0)
    with pytest.raises(ValueError, match=r"density\(1\) must be in \[0, 1\], got 3.0"):
        sparse.step()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sparsify(perceptron(), 0.1, temperature=True), "temperature must be a number .*, got True"),
        (lambda: sparsify(perceptron(), 0.1, every=True), "sparsify: every must be an integer, got True"),
        (lambda: sparsify("model", 0.1), "sparsify: model must be a torch module, got 'model'"),
        (lambda: TopKSparse(0.1, temperature=True), "temperature must be a number .*, got True"),
        (lambda: TopKSparse(0.1, dim="in"), "TopKSparse: dim must be an integer, got 'in'"),
        (lambda: TopKSparse(pattern="2:4", dim=None), "TopKSparse: dim must be an integer, got None"),
        (lambda: DropAndGrow(until=True), "DropAndGrow: until must be an integer, got True"),
    ],
)
def test_wrong_types_are_named(call, message):
    with pytest.raises(TypeError, match=message):
        call()


def test_the_dimension_of_a_pattern_is_one_of_the_weight():
    for pattern, dim, error, message in (
        ("2:4", 9, IndexError, r"TopKSparse: dim must be in \[-2, 1\], got 9"),
        ("2:5", 0, ValueError, "pattern 2:5 needs a size divisible by 5 in dimension 0, that .* is 4"),
    ):
        with pytest.raises(error, match=message):
            parametrize.register_parametrization(
                nn.Linear(8, 4), "weight", TopKSparse(pattern=pattern, dim=dim)
            )


def test_weights_whose_squares_overflow_have_the_gates_of_smaller_ones():
    """The temperature is in units of their root mean square."""
    weight = torch.randn(6, 8, generator=torch.Generator().manual_seed(0))
    for scale in (1e20, 1e37):
        gates = []
        for factor in (1.0, scale):
            sparse = TopKSparse(0.3, method="sigmoid", temperature=0.5, hard=False)
            sparse.select_(factor * weight)
            large = (factor * weight).requires_grad_()
            gates.append(sparse.gates(large))
            sparse(large).sum().backward()
            assert large.grad.isfinite().all()
        torch.testing.assert_close(gates[1], gates[0], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("dtype", "size"), [(torch.float32, 1e20), (torch.float64, 1e160), (torch.float64, 1e300)]
)
def test_gates_of_weights_whose_squares_overflow(dtype, size):
    """They are those of the same weights in another unit, also in compiled code."""
    torch.manual_seed(0)
    plain = nn.Sequential(nn.Linear(8, 8)).to(dtype)
    large = copy.deepcopy(plain)
    large[0].weight.data *= size
    for model in (plain, large):
        sparsify(model, density=0.5, method="sigmoid", hard=False, temperature=0.1)
    expected = plain[0].weight.detach()
    torch.testing.assert_close(large[0].weight.detach() / size, expected)
    compiled = torch.compile(lambda: large[0].weight, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(compiled().detach() / size, expected)
