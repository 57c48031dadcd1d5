"""The same calls when a row does not fit one device, or the batch lives on many, on ``torch.distributed``.

    sigmoid_topk, laplace_topk, sparse_topk, topk
                    weights of rows that are sharded along the selected dimension, with gradients
    hard_topk       the exact indicator, ties as in one process
    sample          exactly k, the same for any number of processes
    batch_topk      the k·B largest of a batch that is spread over processes
    expert_loads    how often each expert was chosen, over all processes

Shards are plain tensors, with ``group=``, or DTensors with ``Shard(dim)``. Every process of the group must
make the call, with the same k, temperature and options; a mistake in one is an error in all.
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
