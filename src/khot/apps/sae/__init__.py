"""Sparse autoencoders: trained on a CPU in reasonable time, saved in files that other tools open.

* :class:`SparseAutoencoder` encodes and decodes; its results are :class:`Reconstruction` and
  :class:`Latents`;
* :func:`collect_activations` writes the activations of a network to disk, :class:`ActivationStore` reads
  them, :class:`ShuffledActivations` yields them in batches, and :func:`train` trains with
  :class:`TrainSettings`;
* :func:`core_metrics` and :func:`language_model_metrics` measure; :func:`latent_density`,
  :func:`top_examples` and :func:`write_report` help to interpret latents.
"""

from khot.apps.sae.activations import ActivationStore
from khot.apps.sae.autoencoder import SparseAutoencoder
from khot.apps.sae.batches import ShuffledActivations
from khot.apps.sae.collecting import collect_activations
from khot.apps.sae.examples import LatentExamples, latent_density, top_examples
from khot.apps.sae.metrics import core_metrics, language_model_metrics
from khot.apps.sae.report import write_report
from khot.apps.sae.result import Latents, Reconstruction
from khot.apps.sae.settings import TrainSettings
from khot.apps.sae.training import train

__all__ = [
    "ActivationStore",
    "LatentExamples",
    "Latents",
    "Reconstruction",
    "ShuffledActivations",
    "SparseAutoencoder",
    "TrainSettings",
    "collect_activations",
    "core_metrics",
    "language_model_metrics",
    "latent_density",
    "top_examples",
    "train",
    "write_report",
]
