"""Sampling exactly k of n units with given inclusion probabilities.

A *design* is a distribution over subsets of k of n units. What is asked of it are the inclusion probabilities
πᵢ = P(unit i is drawn), which sum to k and lie in [0, 1]: E[x] = π for the k-hot vector x of the draw. With
one unit to draw that is all there is, and every design is ``OneHotCategorical(probs=π)``. For more many
designs have the same π and differ in which units come together (``joint_inclusion``), in how many sets are
possible (``entropy``), and in what they cost.

==================  =======================  ===================================  ================
design              log_prob, entropy, π_ij  draws                                cost
==================  =======================  ===================================  ================
ConditionalPoisson  yes                      maximum entropy; exponential family  n·k, or n·log²k
TreePivotal         yes                      even over the order of the units     n, or k·log n
RandomTreePivotal   given the order          near the maximum of entropy          n and a shuffle
Systematic          yes                      at most n sets; units attract        one scan
RandomSystematic    given the order          systematic, shuffled before          n and a shuffle
Sampford            not the entropy          near the maximum of entropy          n·k, or n·log²k
Brewer              no                       one unit after the other             n·k
Pareto              not the entropy          π approximate; also AdjustedPareto   n and a top-k
PlackettLuce        log_prob                 Gumbel top-k: not π                  n and a top-k
SequentialPivotal   yes                      even along the list; units repel     one scan
RandomPivotal       given the order          near the maximum of entropy          n and a shuffle
Tille               no entropy               struck off one at a time             n − k steps
Midzuno             no entropy               what Tille for 1 − π strikes off     k steps
SimpleRandom        yes                      all sets equally likely              k, or a shuffle
Stratified          if its parts have them   a design for each stratum            those of its parts
Cube                no                       balanced on given variables          n steps
Poisson             yes                      a random number, not exactly k       n
==================  =======================  ===================================  ================

All follow ``torch.distributions``: ``event_shape`` is (n,), parameters are ``probs`` (π) or ``scores``, with
π = ``khot.sigmoid_topk(scores, k)``. ``logits`` are natural parameters, as in ``OneHotCategorical``:
``ConditionalPoisson`` takes them too, and ``PlackettLuce``, which has no given π, takes nothing else.
``KHotCategorical`` is another name of ``ConditionalPoisson``, and ``KHotCategoricalStraightThrough`` the one
with gradients through samples. ``khot.sample`` draws in one call; ``names()`` and ``get(name)`` are the
designs that it, the estimators and ``khot.nn.SampledTopK`` take by name, and ``register`` adds one.

``khot.designs.survey`` has inclusion probabilities proportional to size, estimates of totals, and variances.

``transform_to(capped_simplex(k))`` is sigmoid top-k, ``biject_to`` the same with the last score pinned to 0.
"""

from khot.designs import survey
from khot.designs._transforms import PinnedSigmoidTopKTransform, SigmoidTopKTransform
from khot.designs.base import KHotDistribution
from khot.designs.cube import Cube
from khot.designs.exponential.conditional_poisson import (
    ConditionalPoisson,
    KHotCategorical,
    KHotCategoricalStraightThrough,
)
from khot.designs.exponential.sampford import Sampford
from khot.designs.facade import sample
from khot.designs.order_sampling.pareto import AdjustedPareto, Pareto
from khot.designs.order_sampling.plackett_luce import PlackettLuce
from khot.designs.pivotal.random_pivotal import RandomPivotal
from khot.designs.pivotal.sequential_pivotal import SequentialPivotal
from khot.designs.pivotal.tree_pivotal import RandomTreePivotal, TreePivotal
from khot.designs.poisson import Poisson
from khot.designs.registry import get, name_of, names, register
from khot.designs.simple_random import SimpleRandom
from khot.designs.splitting.brewer import Brewer
from khot.designs.splitting.midzuno import Midzuno
from khot.designs.splitting.tille import Tille
from khot.designs.stratified import Stratified
from khot.designs.systematic.random_systematic import RandomSystematic
from khot.designs.systematic.systematic import Systematic

__all__ = [
    "AdjustedPareto",
    "Brewer",
    "ConditionalPoisson",
    "Cube",
    "KHotCategorical",
    "KHotCategoricalStraightThrough",
    "KHotDistribution",
    "Midzuno",
    "Pareto",
    "PinnedSigmoidTopKTransform",
    "PlackettLuce",
    "Poisson",
    "RandomPivotal",
    "RandomSystematic",
    "RandomTreePivotal",
    "Sampford",
    "SequentialPivotal",
    "SigmoidTopKTransform",
    "SimpleRandom",
    "Stratified",
    "Systematic",
    "Tille",
    "TreePivotal",
    "get",
    "name_of",
    "names",
    "register",
    "sample",
    "survey",
]
