"""Ctrl-C (SIGINT): long loops stop with KeyboardInterrupt, what they changed for a while is put back, and
their files are whole. A single call of a kernel is not interrupted: the signal is seen when it returns."""

from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

# Each loop would take hours. A child that does not stop is ended by SIGALRM, and has another exit code.
STOPPED = """
import os, signal, sys, threading, time
sys.path.insert(0, {tests!r})
signal.alarm(100)
signal.signal(signal.SIGINT, signal.default_int_handler)
import torch, khot
folder = {folder!r}

def press_when_it_runs():
    while not os.path.exists(os.path.join(folder, {file!r})):
        time.sleep(0.01)
    time.sleep(0.2)
    os.kill(os.getpid(), signal.SIGINT)

{begin}
random_state = torch.get_rng_state()
try:
    threading.Thread(target=press_when_it_runs).start()
    {loop}
    print("not stopped")
except KeyboardInterrupt:
    print("stopped", torch.full((), 1e-38).mul(0.1).item() > 0, random_state.equal(torch.get_rng_state()))
{afterwards}
"""

SAMPLING = {
    "begin": "x = torch.randn(8, 2000); noise = torch.Generator()",
    "loop": "while True: khot.sample(x, 50, generator=noise)",
}
OPTIMISING = {
    "begin": "x = torch.randn(8, 2000, requires_grad=True)",
    "loop": "while True: khot.sigmoid_topk(x, 50).square().sum().backward()",
}
LONG_ROWS = {
    "begin": "x = torch.randn(4, 1_000_000)",
    "loop": "while True: khot.hard_topk(x, 1000)",
}
DIAGNOSING = {
    "begin": "f = lambda x: x[..., 0] * x[..., 1]; noise = torch.Generator()",
    "loop": "while True: khot.estimators.diagnose(f, torch.zeros(6), 2, repeats=50, generator=noise)",
}
SELECTING = {
    "begin": "from khot.apps.features import TopKSelector; x = torch.randn(500, 20).numpy()",
    "loop": "TopKSelector(3, max_iter=10**6, random_state=0).fit(x, x[:, 0] + x[:, 3])",
}
COLLECTING = {
    "begin": """
from khot.apps.sae import collect_activations
network = torch.nn.Sequential(torch.nn.Linear(8, 8)).train()
class Endless:
    def __iter__(self):
        while True: yield torch.ones(16, 8)
""",
    "file": "store.json",
    "loop": "collect_activations(network, '0', Endless(), folder, batches_per_shard=20)",
    "afterwards": """
from khot.apps.sae import ActivationStore
assert network.training
assert len(ActivationStore(folder)) % 320 == 0
""",
}
ENCODING = {
    "begin": """
from khot.apps.sae import TrainSettings, collect_activations, train
data = torch.randn(20, 100, 10, generator=torch.Generator().manual_seed(0))
store = collect_activations(torch.nn.Sequential(torch.nn.Identity()), "0", data, folder + "/store")
settings = TrainSettings(num_latents=24, k=3, steps=10**6, batch_size=64, checkpoint_steps=5)
""",
    "file": "state.safetensors",
    "loop": "train(store, settings, folder)",
    "afterwards": "train(store, settings, folder, stop_after=1)",
}
TRAINING = {
    "begin": """
from khot.vision import load_network
from khot.vision.training import train
from strategies.small_runs import bright_halves, small_run
data, run = (bright_halves(), bright_halves(20, seed=1)), small_run(epochs=10**6)
""",
    "file": "state.safetensors",
    "loop": "train(run, folder, data=data)",
    "afterwards": """
load_network(folder)
def one_more(message, share): raise EOFError
try:
    train(run, folder, data=data, report=one_more)
except EOFError:
    pass
""",
}


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param(SAMPLING, id="sampling"),
        pytest.param(OPTIMISING, id="optimising", marks=pytest.mark.full),
        pytest.param(LONG_ROWS, id="long rows", marks=pytest.mark.full),
        pytest.param(DIAGNOSING, id="diagnosing", marks=pytest.mark.full),
        pytest.param(SELECTING, id="selecting", marks=pytest.mark.full),
        pytest.param(COLLECTING, id="collecting", marks=pytest.mark.full),
        pytest.param(ENCODING, id="encoding", marks=pytest.mark.full),
        pytest.param(TRAINING, id="training"),
    ],
)
def test_long_loops_stop_and_leave_everything_as_it_should_be(parts, run_python, tmp_path):
    """Subnormal numbers are not flushed, torch's random numbers are as before, files can be used again."""
    code = STOPPED.format(
        **{"tests": str(TESTS), "folder": str(tmp_path), "file": "", "afterwards": "", **parts}
    )
    assert run_python(code) == "stopped True True"
    left = [path.name for path in tmp_path.rglob("*") if path.name.startswith(".")]
    assert left == [], "temporary files are removed"


COMMAND = """
import os, signal, sys, threading, time
signal.alarm(100)
signal.signal(signal.SIGINT, signal.default_int_handler)
from khot.cli import main
def press():
    while not os.path.exists({folder!r} + "/state.safetensors"):
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=press, daemon=True).start()
sys.exit(main(["train", "digits", "--epochs", "1000000", "--checkpoint-steps", "1", "--output", {folder!r}]))
"""


@pytest.mark.full
def test_a_command_ends_without_a_traceback_and_its_run_can_be_resumed(fresh_python, tmp_path):
    done = fresh_python.run(COMMAND.format(folder=str(tmp_path)))
    assert done.code not in (0, -14), done
    assert "Traceback" not in done.err
    from khot.files.tensors import read_tensors

    assert read_tensors(tmp_path / "state.safetensors")[1]["position"]["step"] >= 0
