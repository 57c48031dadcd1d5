"""Exact expectations over k-subsets, by itertools and autograd, for the tests of this folder."""

import itertools

import torch

import khot
from khot.designs import SequentialPivotal, Systematic, TreePivotal, get

N, K = 7, 3
IN_RANDOM_ORDER = {
    "random_systematic": Systematic,
    "random_tree_pivotal": TreePivotal,
    "random_pivotal": SequentialPivotal,
}
CLOSED = ["conditional_poisson", "tree_pivotal", "systematic"]


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def subsets(n=N, k=K):
    rows = [[float(i in chosen) for i in range(n)] for chosen in itertools.combinations(range(n), k)]
    return torch.tensor(rows, dtype=torch.float64)


def scores_of(n=N, seed=0):
    return torch.randn(n, dtype=torch.float64, generator=seeded(seed))


def nonlinear(n=N, seed=5):
    """Neither affine nor quadratic on zeros and ones."""
    a = torch.randn(n, n, dtype=torch.float64, generator=seeded(seed)).float()

    def f(x):
        mixed = x @ a.to(x.dtype)
        return torch.tanh(mixed).sum(-1) + 0.1 * (mixed**2).sum(-1)

    return f


def quadratic(n=N, seed=6):
    a = torch.randn(n, n, dtype=torch.float64, generator=seeded(seed)).float()
    return lambda x: ((x @ a.to(x.dtype)) * x).sum(-1)


def in_turn(theta, sets):
    """Plackett–Luce probabilities of sets, as the sum over the orders of their members."""
    k = int(sets[0].sum())
    orders = torch.tensor(list(itertools.permutations(range(k))))
    w = torch.softmax(theta, -1)
    members = w[sets.nonzero()[:, 1].view(-1, k)][:, orders]
    before = torch.cat([torch.zeros_like(members[..., :1]), members[..., :-1].cumsum(-1)], -1)
    return (members / (1 - before)).prod(-1).sum(-1)


def probabilities(law, theta, k):
    """Of all subsets, with a gradient in theta."""
    sets = subsets(len(theta), k)
    if law == "conditional_poisson":
        return torch.softmax(sets @ theta, 0)
    if law == "plackett_luce":
        return in_turn(theta, sets)
    pi = khot.sigmoid_topk(theta, k)
    if law not in IN_RANDOM_ORDER:
        return get(law)(k, probs=pi).log_prob(sets).exp()
    ordered = IN_RANDOM_ORDER[law]
    orders = torch.tensor(list(itertools.permutations(range(len(theta)))))
    return ordered(k, probs=pi[orders]).log_prob(sets[:, orders]).exp().mean(1)


def exact_gradient(law, f, theta, k):
    leaf = theta.detach().clone().requires_grad_()
    losses = f(subsets(len(theta), k)).detach()
    p = probabilities(law, leaf, k)
    p = torch.where(p > 0, p, 0.0)
    return torch.autograd.grad((p * losses).sum(), leaf)[0]
