"""RigL's rule, against a plain implementation by sorting."""

import pytest
import torch
from torch import nn

from khot.apps.sparse import DropAndGrow, sparsify
from strategies.small_networks import perceptron, train_step


def by_sorting(weight, gradient, mask, share):
    """Drop the smallest of the kept; grow the largest gradients among all that are not kept then."""
    flat = mask.flatten().clone()
    count = int(share * flat.sum())
    kept = flat.nonzero().flatten()
    dropped = kept[weight.abs().flatten()[kept].argsort()[:count]]
    flat[dropped] = False
    free = (~flat).nonzero().flatten()
    flat[free[gradient.abs().flatten()[free].argsort(descending=True)[:count]]] = True
    return flat.view(mask.shape)


@pytest.mark.parametrize("step", [0, 3, 5])
def test_the_rule(step):
    generator = torch.Generator().manual_seed(step)
    weight, gradient = torch.randn(2, 6, 7, generator=generator)
    mask = torch.rand(6, 7, generator=generator) < 0.4
    rule = DropAndGrow(0.5, until=10)
    grown, new = rule.exchanged(weight, gradient, mask, step)
    assert torch.equal(grown, by_sorting(weight, gradient, mask, rule.share(step)))
    assert grown.sum() == mask.sum()
    assert torch.equal(new, grown & ~mask)
    assert new.any()


def test_only_kept_weights_learn_and_new_ones_start_from_zero():
    model = perceptron()
    sparse = sparsify(model, 0.3, every=2, update=DropAndGrow(0.9, until=100))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    member = sparse.members[0]
    start, mask = member.original.detach().clone(), member.sparse.mask.clone()
    train_step(model, optimizer, 0)
    sparse.step()
    assert torch.equal(member.original[~mask], start[~mask])
    assert not torch.equal(member.original[mask], start[mask])
    train_step(model, optimizer, 1)
    sparse.step()
    new = member.sparse.mask & ~mask
    assert new.any()
    assert (member.original[new] == 0).all()


def test_the_dense_gradient_is_recorded_only_for_an_update():
    """Over all micro-batches of the step."""
    layer = nn.Linear(6, 4)
    sparse = sparsify(layer, 0.5, every=2, update=DropAndGrow(0.5, until=10))
    x = torch.randn(2, 3, 6)
    layer(x[0]).square().sum().backward()
    assert sparse.members[0].sparse.recorded is None
    sparse.step()
    for part in x:
        layer(part).square().sum().backward()
    effective = layer.weight.detach().requires_grad_()
    for part in x:
        nn.functional.linear(part, effective, layer.bias.detach()).square().sum().backward()
    torch.testing.assert_close(sparse.members[0].sparse.recorded, effective.grad)
    assert sparse.step()
    assert sparse.members[0].sparse.recorded is None


def test_masks_are_random_at_first():
    masks = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        layer = nn.Linear(30, 40)
        torch.manual_seed(seed)
        sparsify(layer, 0.3, update=DropAndGrow())
        masks.append(layer.parametrizations.weight[0].mask)
    assert torch.equal(masks[0], masks[1])
    assert not torch.equal(masks[0], masks[2])


def test_wrong_rules():
    with pytest.raises(ValueError, match=r"fraction must be in \[0, 1\], got 1.5"):
        DropAndGrow(1.5)
    with pytest.raises(ValueError, match="until must be at least 1, got 0"):
        DropAndGrow(until=0)
