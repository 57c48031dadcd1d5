"""The README's example does what the README says."""

import contextlib
import io
import re
from pathlib import Path

import torch

README = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")


def test_the_example_trains_and_prints_what_it_says():
    (code,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    promised = re.search(r"# (tensor\(.*\))", code)
    assert promised is not None
    torch.manual_seed(0)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "README.md", "exec"), {})
    assert printed.getvalue().strip() == promised[1]


def test_every_link_leads_to_a_file():
    root = Path(__file__).parents[2]
    targets = re.findall(r"\]\(([^)#]+)\)", README)
    assert targets
    assert [target for target in targets if not (root / target).exists()] == []
