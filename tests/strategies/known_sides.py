"""Sides whose behaviour is known: right, wrong, failing, greedy, slow, fatal."""

import os
import sys
import time

import torch

from khot.compare.cost.case import Case
from khot.compare.cost.side import Side
from khot.testing import truth

CASE = Case("4×32", (4, 32), 5)
MEBIBYTE = 2**20


def side(name, function, **options):
    return Side(name, "example", "1.0", function, "peer", **options)


def right():
    return side("right", _right, map="sigmoid")


class _Right(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k):
        y = torch.from_numpy(truth.sigmoid(x.double().numpy(), k)).to(x.dtype)
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad):
        (y,) = ctx.saved_tensors
        return torch.from_numpy(truth.GRADIENTS["sigmoid"](y.numpy(), grad.numpy())), None


def _right(x, k):
    return _Right.apply(x, k)


def wrong():
    """Sums to k, as the map does, but is another map."""
    return side("wrong", lambda x, k: k * torch.softmax(x, -1), map="sigmoid")


def failing():
    def function(x, k):
        raise RuntimeError("cannot do this\nand more that nobody wants in a table")

    return side("failing", function)


def allocating():
    """Holds 64 MiB for a moment, at any input but the tiny one of the warm-up; prints when it is loaded."""

    def function(x, k):
        if x.shape[-1] > 16:
            torch.ones(64 * MEBIBYTE // 4)
        return x * 1.0

    sys.stdout.write("a package that talks when it is loaded\n")
    return side("allocating", function)


def greedy():
    def function(x, k):
        if x.shape[-1] > 16:
            torch.ones(4096 * MEBIBYTE // 4)
        return x * 1.0

    return side("greedy", function)


def sleeping():
    def function(x, k):
        if x.shape[-1] > 16:
            time.sleep(60)
        return x * 1.0

    return side("sleeping", function)


def hard():
    return side("hard", lambda x, k: (x.detach() > 0).to(x.dtype))


def aborting():
    """Ends its process at three dimensions."""

    def function(x, k):
        if x.dim() == 3:
            os.abort()
        return x * 1.0

    return side("aborting", function)
