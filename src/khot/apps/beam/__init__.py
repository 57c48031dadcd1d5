"""Beam search with a gradient, for training models through their search.

* :func:`soft_beam_search` searches with your model; :func:`soft_beam_step` is one step of it;
* :class:`BeamResult` has sequences, scores and soft tokens; :func:`soft_hamming_loss` is a loss for them.
"""

from khot.apps.beam.choice import BeamChoice
from khot.apps.beam.loss import soft_hamming_loss
from khot.apps.beam.search import BeamResult, soft_beam_search
from khot.apps.beam.step import BeamState, Ended, soft_beam_step

__all__ = [
    "BeamChoice",
    "BeamResult",
    "BeamState",
    "Ended",
    "soft_beam_search",
    "soft_beam_step",
    "soft_hamming_loss",
]
