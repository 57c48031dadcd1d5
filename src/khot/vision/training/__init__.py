"""Train the networks: resumable with identical bits, distributed over processes, without pickle."""

from khot.vision.training.evaluation import evaluate
from khot.vision.training.loop import train
from khot.vision.training.run_config import RunConfig, run_preset
from khot.vision.training.settings import TrainSettings

__all__ = ["RunConfig", "TrainSettings", "evaluate", "run_preset", "train"]
