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
RUN_BY = re.compile(r"tests/[\w/]+")
COSTLY = {  # most of them train
    "docs/apps/features.md",
    "docs/apps/neighbors.md",
    "docs/apps/sae_recipes.md",
    "docs/apps/sparse.md",
    "docs/contract.md",
    "docs/extending.md",
    "docs/interop.md",
    "docs/networks.md",
    "docs/recipes/compile_amp_ddp.md",
    "docs/recipes/feature_selection.md",
    "docs/recipes/instance_wise.md",
    "docs/recipes/retrieval.md",
    "docs/recipes/router.md",
    "docs/recipes/sparse_autoencoder.md",
    "docs/recipes/token_pruning.md",
}
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
    left_out = [code.splitlines()[0] for blocks in EXAMPLES.values() for _, code in blocks if NOT_RUN in code]
    elsewhere = [RUN_BY.search(reason) for reason in left_out]  # other tests run them
    assert all((ROOT / found[0]).exists() for found in elsewhere if found)
    assert elsewhere.count(None) <= 2, left_out


# What people type into the search of the documentation, and the page that must answer.
SEARCHED = {
    "mixture of experts": "recipes/router.md",
    "MoE": "recipes.md",
    "feature selection": "recipes/feature_selection.md",
    "learned k": "recipes/learned_k.md",
    "L2X": "recipes/instance_wise.md",
    "interpretability": "recipes/instance_wise.md",
    "learning to rank": "recipes/recommender.md",
    "NDCG": "recipes/recommender.md",
    "retrieval": "recipes/retrieval.md",
    "nearest neighbours": "apps/neighbors.md",
    "metric learning": "applications.md",
    "token pruning": "recipes/token_pruning.md",
    "survey sampling": "recipes/survey.md",
    "without replacement": "recipes.md",
    "REINFORCE": "recipes/reinforce.md",
    "policy gradient": "recipes/reinforce.md",
    "sparse autoencoder": "recipes/sparse_autoencoder.md",
    "beam search": "apps/beam.md",
    "dictionary learning": "applications.md",
    "pruning": "applications.md",
    "SINDy": "applications.md",
    "torch.compile": "recipes/compile_amp_ddp.md",
    "mixed precision": "recipes/compile_amp_ddp.md",
    "DistributedDataParallel": "recipes/compile_amp_ddp.md",
    "straight-through": "gradients.md",
    "Gumbel": "faq.md",
    "temperature": "temperature.md",
    "annealing": "temperature.md",
    "GPU": "faq.md",
    "NaN": "faq.md",
    "sparsemax": "migrating/entmax.md",
    "torchsort": "migrating/torchsort.md",
    "optimal transport": "migrating/pot.md",
    "differentiable": "faq.md",
    "top-5": "losses.md",
    "attention": "extending.md",
    "Windows": "support.md",
    "macOS": "support.md",
    "aarch64": "support.md",
    "deprecated": "stability.md",
}


def test_search_finds_what_people_type():
    missing = [
        (words, page)
        for words, page in SEARCHED.items()
        if words.lower() not in " ".join((ROOT / "docs" / page).read_text("utf-8").lower().split())
    ]
    assert missing == []


def test_tasks_stand_in_the_titles_of_their_pages():
    """A search shows titles first."""
    for words, page in SEARCHED.items():
        if page.startswith("recipes/") and words in (
            "mixture of experts",
            "feature selection",
            "learned k",
            "REINFORCE",
        ):
            title = (ROOT / "docs" / page).read_text("utf-8").partition("\n")[0]
            assert words.lower() in title.lower()


def test_every_page_has_a_place():
    """From the home page every page can be reached through the tables of contents."""
    docs = ROOT / "docs"
    found, waiting = set(), ["index"]
    while waiting:
        page = waiting.pop()
        if page in found or page.startswith("gallery/"):
            continue
        found.add(page)
        text = (docs / f"{page}.md").read_text("utf-8")
        for listed in re.findall(r"```{toctree}\n(.*?)```", text, re.DOTALL):
            lines = [
                line.strip() for line in listed.splitlines() if line.strip() and not line.startswith(":")
            ]
            below = [re.sub(r".*<(.*)>", r"\1", line) for line in lines]
            waiting += [str(Path(page).parent / name) for name in below]
    pages = {str(page.relative_to(docs).with_suffix("")) for page in PAGES if "gallery" not in page.parts}
    assert pages - found == set()
