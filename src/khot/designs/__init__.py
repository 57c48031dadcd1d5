"""Sampling exactly k of n units with given inclusion probabilities.

A *design* is a distribution over subsets of k of n units. You give it the inclusion probabilities
πᵢ = P(unit i is drawn), which lie in [0, 1] and sum to k; the k-hot vector x of a draw has mean π. For k = 1
these determine everything, and every design is ``OneHotCategorical(probs=π)``. For larger k many designs have
the same π. They differ in which units occur together (``joint_inclusion``), in how many sets are possible
(``entropy``), and in cost.

==================  =======================  ===================================  ================
design              log_prob, entropy, π_ij  draws                                cost
==================  =======================  ===================================  ================
ConditionalPoisson  yes                      maximum entropy; exponential family  n·k, or n·log²k
TreePivotal         yes                      spread evenly over the unit order    n, or k·log n
RandomTreePivotal   given the order          near maximum entropy                 n and a shuffle
Systematic          yes                      at most n sets; units attract        one scan
RandomSystematic    given the order          systematic after a shuffle           n and a shuffle
Sampford            no entropy               near maximum entropy                 n·k, or n·log²k
Brewer              no                       one unit after the other             n·k
Pareto              no entropy               approximate π; also AdjustedPareto   n and a top-k
PlackettLuce        log_prob                 Gumbel top-k: not π                  n and a top-k
SequentialPivotal   yes                      spread along the list; units repel   one scan
RandomPivotal       given the order          near maximum entropy                 n and a shuffle
Tille               no entropy               eliminates one unit at a time        n − k steps
Midzuno             no entropy               what Tille for 1 − π eliminates      k steps
SimpleRandom        yes                      all sets equally likely              k, or a shuffle
Stratified          if its parts have them   one design per stratum               sum over its parts
Cube                no                       balanced on given variables          n steps
Poisson             yes                      a random number, not exactly k       n
==================  =======================  ===================================  ================

All follow ``torch.distributions``: ``event_shape`` is (n,), and the parameters are ``probs`` (π) or
``scores``, with π = ``khot.sigmoid_topk(scores, k)``. ``logits`` are natural parameters, as in
``OneHotCategorical``: ``ConditionalPoisson`` accepts them too; ``PlackettLuce``, which has no given π,
accepts only them. ``KHotCategorical`` is another name for ``ConditionalPoisson``;
``KHotCategoricalStraightThrough`` adds gradients through samples. ``khot.sample`` draws in one call.
``khot.sample``, the estimators and ``khot.nn.SampledTopK`` take designs by name: ``names()`` lists them,
``get(name)`` returns one, and ``register`` adds one.

``khot.designs.survey`` has inclusion probabilities proportional to size, estimates of totals, and variances.

``transform_to(capped_simplex(k))`` is sigmoid top-k; ``biject_to`` is the same with the last score fixed at
0.
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
