"""Twenty steps of khot.vision.training in float64, alone or under torchrun.

python -m strategies.training_loop OUTPUT [sharded]
"""

import sys

import torch

from khot.vision.data import ImageTensors
from khot.vision.training import train
from strategies.small_runs import bright_halves, small_run

STEPS, BATCH = 20, 16


def main(output, sharded):
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    data = [bright_halves(count, seed) for count, seed in ((STEPS * BATCH, 0), (35, 1))]
    train_data, test_data = (ImageTensors(each.images.double(), each.labels, each.classes) for each in data)
    config = small_run({"depth": 2}, epochs=1, batch_size=BATCH, augment=False, learning_rate=1e-2)
    train(config, output, data=(train_data, test_data), device="cpu", sharded=sharded)


if __name__ == "__main__":
    main(sys.argv[1], len(sys.argv) > 2)
