"""Top-k of rows and batches that several processes hold, with ``torch.distributed``.

    sigmoid_topk, laplace_topk, sparse_topk, topk
                    weights of rows that are split along the selected dimension, with gradients
    hard_topk       the exact indicator; ties as in one process
    sample          a sample of exactly k, the same for any number of processes
    batch_topk      the k·B largest entries of a batch of B rows
    expert_loads    how often each expert was chosen

Each process passes its part of the rows, its *shard*: a plain tensor with ``group=``, or a DTensor with
``Shard(dim)``. Every process of the group must make the call, with the same k, temperature and options. A
mistake in one process is an error in all of them.
"""

from khot.parallel.batch import batch_topk
from khot.parallel.facade import topk
from khot.parallel.hard import hard_topk
from khot.parallel.loads import ExpertLoads, expert_loads
from khot.parallel.sample import sample
from khot.parallel.threshold import laplace_topk, sigmoid_topk, sparse_topk

__all__ = [
    "ExpertLoads",
    "batch_topk",
    "expert_loads",
    "hard_topk",
    "laplace_topk",
    "sample",
    "sigmoid_topk",
    "sparse_topk",
    "topk",
]
