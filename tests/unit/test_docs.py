"""The interactive examples of the documentation print what the pages say, to three decimals."""

import doctest
import math
import re
import textwrap
from pathlib import Path

import pytest
import torch

import khot

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^( *)```pycon\n(.*?)^\1```", re.DOTALL | re.MULTILINE)
EXAMPLES = {
    str(page.relative_to(DOCS)): [textwrap.dedent(code) for _, code in BLOCK.findall(page.read_text("utf-8"))]
    for page in sorted(DOCS.rglob("*.md"))
    if "_build" not in page.parts
}


@pytest.fixture
def three_decimals():
    torch.set_printoptions(precision=3, sci_mode=False, linewidth=120)
    yield
    torch.set_printoptions(profile="default")


@pytest.mark.usefixtures("three_decimals")
@pytest.mark.parametrize("page", [page for page, blocks in EXAMPLES.items() if blocks])
def test_examples(page):
    names = {"torch": torch, "khot": khot, "math": math}
    parser = doctest.DocTestParser()
    report = []
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    torch.manual_seed(0)
    for number, code in enumerate(EXAMPLES[page], 1):
        block = parser.get_doctest(code, names, f"{page}, block {number}", page, 0)
        runner.run(block, out=report.append, clear_globs=False)
        names = block.globs
    assert runner.tries > 0
    assert not runner.failures, "".join(report)


def test_the_pages_have_examples():
    assert sum(map(bool, EXAMPLES.values())) >= 4
