"""Mixture of experts (MoE): trainable routers, their losses and statistics, and the layer.

* :class:`TopKRouter` and :class:`ExpertChoiceRouter` choose experts; :class:`MoE` computes with
  :class:`Experts`;
* :func:`load_balance_loss`, :func:`z_loss` and :func:`balance_experts` keep all experts in use,
  :func:`apply_capacity` limits their loads, :class:`RoutingStatistics` shows them;
* :func:`record_routing` and :func:`replay_routing` repeat the choices of one pass in another;
* :func:`replace_router` changes the routing of a transformers model, :func:`restore_router` undoes it.
"""

from khot.apps.moe.capacity import Capped, apply_capacity
from khot.apps.moe.correction import balance_experts, update_correction_biases
from khot.apps.moe.expert_choice import ExpertChoice, ExpertChoiceRouter
from khot.apps.moe.experts import Experts
from khot.apps.moe.layer import MoE
from khot.apps.moe.losses import load_balance_loss, z_loss
from khot.apps.moe.replace import replace_router, restore_router
from khot.apps.moe.replay import mask_padding, record_routing, replay_routing
from khot.apps.moe.router import Routed, TopKRouter
from khot.apps.moe.statistics import RoutingStatistics, RoutingStep, watch_routing

__all__ = [
    "Capped",
    "ExpertChoice",
    "ExpertChoiceRouter",
    "Experts",
    "MoE",
    "Routed",
    "RoutingStatistics",
    "RoutingStep",
    "TopKRouter",
    "apply_capacity",
    "balance_experts",
    "load_balance_loss",
    "mask_padding",
    "record_routing",
    "replace_router",
    "replay_routing",
    "restore_router",
    "update_correction_biases",
    "watch_routing",
    "z_loss",
]
