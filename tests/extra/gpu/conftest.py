"""On a GPU alone: what was run, and how it ended, goes to khot-gpu-tests.json, a file to send in."""

import json
from pathlib import Path

import pytest
import torch

from khot.kernels import triton

OUTCOMES: dict[str, str] = {}


def pytest_collection_modifyitems(items):
    if not torch.cuda.is_available():
        for item in items:
            item.add_marker(pytest.mark.skip(reason="no CUDA device is here"))


def pytest_runtest_logreport(report):
    if report.when == "call":
        OUTCOMES[report.nodeid] = report.outcome if not report.failed else report.longreprtext


def pytest_sessionfinish():
    if torch.cuda.is_available():
        kernels = "triton" if triton.switched_on() else "portable"
        device = {"device": torch.cuda.get_device_name(), "torch": torch.__version__, "kernels": kernels}
        Path("khot-gpu-tests.json").write_text(json.dumps({**device, "outcomes": OUTCOMES}, indent=2))
