"""The examples of the documentation run as they stand, and print what the pages say, to three decimals.

The blocks of a page share their names and start with none: what a page uses, it imports. A block that cannot
run here begins with ``# not run:`` and the reason, which readers see too.
"""

import contextlib
import doctest
import io
import re
import sys
import textwrap
from pathlib import Path
from types import ModuleType

import pytest
import torch

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^( *)```(pycon|python)\n(.*?)^\1```", re.DOTALL | re.MULTILINE)
PROMISED = re.compile(r"^print\(.*\)  # ((?:tensor\(|[\d(\[]).*)$", re.MULTILINE)
NOT_RUN = "# not run:"
COSTLY = {"docs/contract.md", "docs/extending.md", "docs/networks.md", "docs/recipes/compile_amp_ddp.md"}
PAGES = [page for page in sorted((ROOT / "docs").rglob("*.md")) if "_build" not in page.parts]
EXAMPLES = {
    str(page.relative_to(ROOT)): [
        (kind, textwrap.dedent(code)) for _, kind, code in BLOCK.findall(page.read_text("utf-8"))
    ]
    for page in (*PAGES, ROOT / "README.md")
}


@pytest.fixture
def three_decimals():
    torch.set_printoptions(precision=3, sci_mode=False, linewidth=120)
    yield
    torch.set_printoptions(profile="default")


@pytest.mark.usefixtures("three_decimals")
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.full] if page in COSTLY else [])
        for page, blocks in EXAMPLES.items()
        if blocks
    ],
)
def test_examples(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    module = ModuleType("the_page")  # a module, for that is where torch.compile looks for names
    monkeypatch.setitem(sys.modules, module.__name__, module)
    names = module.__dict__
    parser = doctest.DocTestParser()
    report = []
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    torch.manual_seed(0)
    for number, (kind, code) in enumerate(EXAMPLES[page], 1):
        name = f"{page}, block {number}"
        if code.startswith(NOT_RUN):
            continue
        if kind == "python":
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(code, name, "exec"), names)
            missing = [text for text in PROMISED.findall(code) if text not in printed.getvalue()]
            assert missing == [], f"{name} printed {printed.getvalue()}"
        else:
            block = parser.get_doctest(code, names, name, page, 0)
            runner.run(block, out=report.append, clear_globs=False)
            names.update(block.globs)
    assert not runner.failures, "".join(report)


def test_the_pages_have_examples():
    assert sum(map(bool, EXAMPLES.values())) >= 20
    left_out = [page for page, blocks in EXAMPLES.items() for _, code in blocks if code.startswith(NOT_RUN)]
    assert len(left_out) <= 3, left_out
