"""A router in plain Python, one token and one expert at a time, in float64: slow and obviously right."""

import math


def scores(logits, score):
    if score == "softmax":
        top = max(logits)
        exps = [math.exp(v - top) for v in logits]
        return [e / sum(exps) for e in exps]
    if score == "sigmoid":
        return [1 / (1 + math.exp(-v)) for v in logits]
    return [math.sqrt(math.log1p(math.exp(v))) for v in logits]


def best(values, k, allowed=None):
    """The k largest, best first, ties by index."""
    places = [i for i in range(len(values)) if allowed is None or allowed[i]]
    return sorted(places, key=lambda i: (-values[i], i))[:k]


def kept_experts(choice, num_groups, kept_groups, group_score):
    size = len(choice) // num_groups
    worth = []
    for g in range(num_groups):
        members = sorted(choice[g * size : (g + 1) * size], reverse=True)
        worth.append(members[0] if group_score == "max" else members[0] + members[1])
    groups = best(worth, kept_groups)
    return [i // size in groups for i in range(len(choice))]


def route(
    logits,
    k,
    score="softmax",
    renormalise=False,
    scaling_factor=1.0,
    bias=None,
    num_groups=1,
    kept_groups=1,
    group_score="top2",
):
    """Weights and indices of one token, by plain top-k."""
    values = scores(logits, score)
    choice = values if bias is None else [v + b for v, b in zip(values, bias, strict=True)]
    allowed = None
    if kept_groups < num_groups:
        allowed = kept_experts(choice, num_groups, kept_groups, group_score)
    chosen = best(choice, k, allowed)
    weights = [values[i] for i in chosen]
    if renormalise:
        weights = [w / sum(weights) for w in weights]
    return [scaling_factor * w for w in weights], chosen
