"""The loss over neighbours, one query after another in plain Python, its threshold by bisection."""

import math

__all__ = ["neighbor_losses", "sigmoid_weights"]


def sigmoid_weights(scores, k, temperature):
    """The weights of sigmoid top-k of a list."""
    if len(scores) <= k:
        return [1.0] * len(scores)

    def weights(c):
        return [1 / (1 + math.exp(min(700, -(s + c) / temperature))) for s in scores]

    low, high = -max(scores) - 800 * temperature, -min(scores) + 800 * temperature
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(weights(middle)) < k else (low, middle)
    return weights(low)


def neighbor_losses(queries, references, competing, positive, k, temperature, kind="log"):
    """A loss for each query, or None if it has no positive: squared distances, points as lists."""
    losses = []
    for i, query in enumerate(queries):
        others = [j for j in range(len(references)) if competing(i, j)]
        asked = min(k, sum(positive(i, j) for j in others))
        if not asked:
            losses.append(None)
            continue
        scores = [-sum((a - b) ** 2 for a, b in zip(query, references[j], strict=True)) for j in others]
        weights = sigmoid_weights(scores, asked, temperature)
        share = sum(w for w, j in zip(weights, others, strict=True) if positive(i, j)) / asked
        losses.append(-math.log(share) if kind == "log" else 1 - share)
    return losses
