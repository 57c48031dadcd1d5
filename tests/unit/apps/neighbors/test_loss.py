"""NeighborLoss against a loop in plain Python, in blocks, with pairs and triplets, at its edges."""

import pytest
import torch

import khot
from khot.apps.neighbors import NeighborLoss
from khot.schedules import TemperatureScheduler, exponential
from strategies.neighbor_oracle import neighbor_losses


def problem(n=18, d=3, classes=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    points = torch.randn(n, d, generator=generator, dtype=torch.float64)
    return points, torch.randint(classes, (n,), generator=generator)


def plain(k=3, **options):
    return NeighborLoss(k, **{"temperature": 0.75, "normalize": False, **options})


@pytest.mark.parametrize("kind", ["log", "share"])
@pytest.mark.parametrize("block_size", [None, 1, 5])
def test_the_loss_by_hand(kind, block_size):
    x, y = problem()
    wanted = neighbor_losses(
        x.tolist(), x.tolist(), lambda i, j: i != j, lambda i, j: bool(y[i] == y[j]), 3, 0.75, kind
    )
    found = plain(loss=kind, reduction="none", block_size=block_size)(x, y)
    assert found.tolist() == pytest.approx(wanted, rel=1e-9)
    assert plain(loss=kind, block_size=block_size)(x, y).item() == pytest.approx(sum(wanted) / 18)
    assert plain(loss=kind, reduction="sum")(x, y).item() == pytest.approx(sum(wanted))


def test_other_references_are_all_met():
    x, y = problem()
    r, ry = problem(n=7, seed=1)
    wanted = neighbor_losses(
        x.tolist(), r.tolist(), lambda i, j: True, lambda i, j: bool(y[i] == ry[j]), 3, 0.75
    )
    found = plain(reduction="none")(x, y, None, r, ry)
    assert found.tolist() == pytest.approx([w or 0.0 for w in wanted], rel=1e-9)
    # The embeddings themselves, given as references: nothing is its own neighbour.
    assert torch.equal(plain()(x, y, None, x, y), plain()(x, y))


@pytest.mark.parametrize("triplets", [False, True])
def test_only_mined_pairs_compete(triplets):
    x, y = problem()
    same = (y.unsqueeze(1) == y) & ~torch.eye(18, dtype=torch.bool)
    a, p = same.nonzero()[::2].T
    b, n = (y.unsqueeze(1) != y).nonzero()[::3].T
    if triplets:  # a positive and a negative for each anchor that has both
        a, p, n = torch.tensor(
            [
                (i, j, m)
                for i, j in zip(a.tolist(), p.tolist(), strict=True)
                for q, m in zip(b, n, strict=True)
                if q == i
            ]
        ).T
        b = a
    pairs = {
        "+": set(zip(a.tolist(), p.tolist(), strict=True)),
        "-": set(zip(b.tolist(), n.tolist(), strict=True)),
    }
    wanted = neighbor_losses(
        x.tolist(),
        x.tolist(),
        lambda i, j: (i, j) in pairs["+"] | pairs["-"],
        lambda i, j: (i, j) in pairs["+"],
        3,
        0.75,
    )
    mined = (a, p, n) if triplets else (a, p, b, n)
    for block_size in (None, 4):
        found = plain(reduction="none", block_size=block_size)(x, None, mined)
        assert found.tolist() == pytest.approx([w or 0.0 for w in wanted], rel=1e-9)
    mean = plain()(x, y, mined)
    counted = [w for w in wanted if w is not None]
    assert mean.item() == pytest.approx(sum(counted) / len(counted))


@pytest.mark.parametrize("kind", ["log", "share"])
@pytest.mark.parametrize("metric", ["sqeuclidean", "euclidean", "cosine"])
def test_gradients_whole_and_in_blocks(kind, metric):
    x, y = problem(n=9)
    x.requires_grad_()
    loss = plain(loss=kind, metric=metric)
    assert torch.autograd.gradcheck(lambda e: loss(e, y), (x,))
    (whole,) = torch.autograd.grad(loss(x, y), x)
    (parts,) = torch.autograd.grad(plain(loss=kind, metric=metric, block_size=2)(x, y), x)
    torch.testing.assert_close(parts, whole)


def test_metrics_and_norms():
    x, y = problem()
    unit = torch.nn.functional.normalize(x, dim=-1)
    torch.testing.assert_close(plain(normalize=True)(x, y), plain()(unit, y))
    torch.testing.assert_close(plain(metric="cosine")(x, y), plain(temperature=1.5)(unit, y))
    assert not torch.isclose(plain(metric="euclidean")(x, y), plain()(x, y))


def test_neuralsort_is_the_published_loss():
    """One minus the mean over k rows of the permutation matrix of what they give the right label."""
    x, y = problem(n=8)
    found = plain(method="neuralsort", loss="share", reduction="none")(x, y)
    for i in range(8):
        others = [j for j in range(8) if j != i]
        right = y[others] == y[i]
        k = min(3, int(right.sum()))
        if k:
            scores = -(x[others] - x[i]).square().sum(-1)
            rows = khot.topk_matrix(scores, k, "neuralsort", temperature=0.75)
            assert found[i].item() == pytest.approx(1 - (rows.sum(0) * right).sum().item() / k)


def test_queries_without_a_positive_and_batches_of_them():
    x, _ = problem(n=4)
    x.requires_grad_()
    for kind in ("log", "share"):
        for block_size in (None, 1):
            value = plain(loss=kind, block_size=block_size)(x, torch.arange(4))
            value.backward()
            assert value.item() == 0.0
            assert not x.grad.any()
    some = plain(reduction="none")(x, torch.tensor([0, 0, 1, 2]))
    assert (some > 0).tolist() == [True, True, False, False]
    assert plain()(x[:0], torch.zeros(0, dtype=torch.long)).item() == 0.0
    assert plain()(x[:1], torch.zeros(1, dtype=torch.long)).item() == 0.0


def test_a_query_is_asked_for_no_more_than_it_can_have():
    x, y = problem(n=6, classes=2)
    counts = [(y == y[i]).sum().item() - 1 for i in range(6)]
    found = plain(k=50, reduction="none")(x, y)
    for i, count in enumerate(counts):
        wanted = plain(k=count, reduction="none")(x, y)[i] if count else torch.zeros(())
        assert found[i] == wanted
    apart = torch.tensor([[0.0], [0.1], [0.2], [9.0], [9.1]])
    assert plain(k=4, temperature=0.01)(apart, torch.tensor([0, 0, 0, 1, 1])).item() < 1e-6
    alone = plain(k=2)(
        x, torch.zeros(6, dtype=torch.long), (torch.tensor([0]), torch.tensor([1]), torch.tensor([2]))
    )
    assert alone > 0  # one positive, one negative: which is nearer still matters


def test_far_points_keep_a_finite_loss_and_a_gradient():
    x = torch.tensor([[0.0], [1e3], [1.0], [1e3 + 1]], requires_grad=True)
    value = NeighborLoss(1, temperature=0.01, normalize=False)(x, torch.tensor([0, 0, 1, 1]))
    value.backward()
    assert value.isfinite()
    assert x.grad.isfinite().all()
    assert (x.grad != 0).all()
    equal = torch.ones(5, 3, requires_grad=True)
    for metric in ("sqeuclidean", "euclidean", "cosine"):
        plain(metric=metric)(equal, torch.tensor([0, 0, 1, 1, 1])).backward()
        assert equal.grad.isfinite().all()
    far = torch.randn(6, 3) + 1e4  # differences keep their digits
    near = (far - far.mean(0)).double()
    y = torch.tensor([0, 1, 0, 1, 0, 1])
    torch.testing.assert_close(plain()(far, y).double(), plain()(near, y), rtol=1e-2, atol=0)


@pytest.mark.parametrize("metric", ["sqeuclidean", "euclidean", "cosine"])
@pytest.mark.parametrize("kind", ["log", "share"])
def test_squares_that_overflow(kind, metric):
    """Finite embeddings give a finite loss and gradient, and what is far is still told from what is near."""
    x, y = problem(classes=2)
    for scale in (1e19, 1e30, 1e38):
        large = (x.float().clamp(-3, 3) * scale).requires_grad_()
        for normalize in (False, True):
            value = plain(loss=kind, metric=metric, normalize=normalize, block_size=5)(large, y)
            value.backward()
            assert value.isfinite()
            assert large.grad.isfinite().all()
    points = torch.tensor([[1e38, 0.0], [2e38, 1e37], [-2e38, 1e37], [-3e38, 0.0]])
    right, wrong = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 0, 1])
    for normalize in (False, True):
        loss = plain(k=1, loss=kind, metric=metric, normalize=normalize)
        assert loss(points, right) < loss(points, wrong)


def test_half_types_are_computed_in_float32():
    x, y = problem()
    low = x.bfloat16()
    found = plain()(low, y)
    assert found.dtype == torch.bfloat16
    assert found == plain()(low.float(), y).bfloat16()


def test_the_temperature_is_saved_annealed_and_learned():
    x, y = problem()
    loss = NeighborLoss(3)
    TemperatureScheduler(loss, exponential(1.0, 0.1, 1)).step()
    other = NeighborLoss(3)
    other.load_state_dict(loss.state_dict())
    assert other.temperature.item() == pytest.approx(0.1)
    learned = NeighborLoss(3, learn_temperature=True)
    learned(x.float(), y).backward()
    assert learned.log_temperature.grad.abs() > 0


def test_training_separates_classes():
    x, y = problem(n=60, d=2)
    points = x.float().requires_grad_()
    optimizer = torch.optim.Adam([points], lr=0.1)
    loss = NeighborLoss(5, temperature=0.5, normalize=False)
    for _ in range(60):
        value = loss(points, y)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
    distances = torch.cdist(points, points).fill_diagonal_(torch.inf)
    nearest = distances.topk(5, largest=False).indices
    assert (y[nearest] == y.unsqueeze(1)).float().mean() > 0.95


def test_random_methods_draw_once_for_value_and_gradient():
    x, y = problem()
    x.requires_grad_()
    found = []
    for _ in range(2):
        torch.manual_seed(0)
        found.append(torch.autograd.grad(plain(method="gumbel", block_size=4)(x, y), x)[0])
    assert torch.equal(*found)


@pytest.mark.full
def test_compiled():
    x, y = problem()
    loss = plain()
    compiled = torch.compile(loss, backend="eager")
    torch.testing.assert_close(compiled(x, y), loss(x, y))


def test_repr_shows_the_settings():
    assert repr(NeighborLoss(3)) == (
        "NeighborLoss(k=3, method='sigmoid', temperature=0.1, metric='sqeuclidean', normalize=True, "
        "loss='log', "
        "reduction='mean')"
    )


@pytest.mark.full
def test_a_hundred_thousand_references_in_two_gigabytes(run_python):
    code = (
        "import resource, torch; from khot.apps.neighbors import NeighborLoss; torch.manual_seed(0)\n"
        "r = torch.randn(100_000, 128); l = torch.randint(10, (100_000,))\n"
        "q = torch.randn(512, 128, requires_grad=True)\n"
        "NeighborLoss(10)(q, l[:512], None, r, l).backward()\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)"
    )
    assert float(run_python(code)) < 2.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"k": 0}, "NeighborLoss: k must be at least 1, got 0"),
        ({"k": 2.5}, r"NeighborLoss: k must be an integer, got 2\.5"),
        (
            {"k": 2, "metric": "manhattan"},
            "metric must be 'sqeuclidean', 'euclidean' or 'cosine', got 'manhattan'",
        ),
        ({"k": 2, "loss": "hinge"}, "loss must be 'log' or 'share', got 'hinge'"),
        ({"k": 2, "reduction": "max"}, "reduction must be 'none', 'mean' or 'sum', got 'max'"),
        ({"k": 2, "block_size": 0}, "block_size must be an integer of at least 1, got 0"),
        ({"k": 2, "block_size": 1.5}, r"block_size must be an integer of at least 1, got 1\.5"),
        ({"k": 2, "temperature": 0.0}, "temperature must be"),
    ],
)
def test_bad_settings(arguments, message):
    with pytest.raises(ValueError, match=message):
        NeighborLoss(**arguments)


def test_bad_calls():
    x, y = problem()
    loss = plain()
    with pytest.raises(ValueError, match="labels are needed where there is no indices_tuple, got None"):
        loss(x)
    with pytest.raises(
        ValueError, match=r"labels must have a label for each of 18 embeddings, got the shape \(4,\)"
    ):
        loss(x, y[:4])
    with pytest.raises(ValueError, match=r"embeddings must be \(n, d\), got the shape \(18,\)"):
        loss(x[:, 0], y)
    with pytest.raises(ValueError, match="ref_emb needs ref_labels, got None"):
        loss(x, y, None, x[:3])
    with pytest.raises(ValueError, match="ref_labels need ref_emb, got None"):
        loss(x, y, None, None, y)
    with pytest.raises(ValueError, match=r"ref_emb must be \(m, 3\), got the shape \(18, 2\)"):
        loss(x, y, None, x[:, :2], y)
    with pytest.raises(ValueError, match=r"ref_labels must have a label for each of 18 references"):
        loss(x, y, None, x.clone(), y[:2])
    with pytest.raises(TypeError, match=r"embeddings must have a floating-point dtype, got torch.int64"):
        loss(y.unsqueeze(1), y)
    with pytest.raises(TypeError, match="labels must be a tensor, got list"):
        loss(x, y.tolist())
    one = torch.tensor([0])
    with pytest.raises(ValueError, match="indices_tuple must have 3 tensors"):
        loss(x, y, (one, one))
    for wrong, shown in ((one + 18, "18 to 18"), (one - 1, "-1 to -1")):
        with pytest.raises(ValueError, match=f"0 to 17 among references, got 0 to 0 and {shown}"):
            loss(x, y, (one, one, wrong))
    with pytest.raises(TypeError, match=r"indices_tuple must have integers, got torch\.float32"):
        loss(x, y, (one, one, one.float()))
    with pytest.raises(TypeError, match="indices_tuple must have tensors, got list"):
        loss(x, y, ([0], [1], [2]))
    with pytest.raises(TypeError, match="embeddings must be a tensor, got list"):
        loss(x.tolist(), y)
    with pytest.raises(TypeError, match="ref_emb must be a tensor, got list"):
        loss(x, y, None, x.tolist(), y)
    with pytest.raises(ValueError, match="vectors of equal length"):
        loss(x, y, (one, y, one))


def test_there_is_always_a_temperature():
    with pytest.raises(TypeError, match=r"^NeighborLoss: temperature must be a number or a tensor, got None"):
        NeighborLoss(1, temperature=None)
