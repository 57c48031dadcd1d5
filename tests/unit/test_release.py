"""What a release states: one version, a citation that is valid, and no file that is loaded as code."""

import ast
import importlib.util
import re
import shutil
from pathlib import Path

import pytest
import yaml

import khot

ROOT = Path(__file__).parents[2]
STATES_VERSION = ("pyproject.toml", "benchmarks/pyproject.toml", "CITATION.cff", "CHANGELOG.md")


@pytest.fixture
def release(tmp_path, monkeypatch):
    """tools/check_release.py on a copy of the files that state a version."""
    spec = importlib.util.spec_from_file_location("check_release", ROOT / "tools" / "check_release.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name in STATES_VERSION:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    monkeypatch.setattr(module, "ROOT", tmp_path)
    return module


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text("utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), "utf-8")


def rewrite(path: Path, pattern: str, new: str) -> None:
    """The first line of this pattern, if there is one."""
    path.write_text(re.sub(pattern, new, path.read_text("utf-8"), count=1, flags=re.MULTILINE), "utf-8")


def test_one_version(release):
    assert release.problems() == []
    assert khot.__version__ in (release.version(), "0+unknown")


def test_no_other_file_states_it(release):
    """Those that do are read by check_release.py; results keep the version that they were measured with."""
    base = release.version().partition(".dev")[0]
    sources = [
        *(ROOT / "src").rglob("*.py"),
        *(ROOT / "tools").iterdir(),
        ROOT / "setup.py",
        ROOT / "docs/conf.py",
    ]
    stating = [
        path.name
        for path in sources
        if path.is_file() and path.name != "check_release.py" and f'"{base}' in path.read_text("utf-8")
    ]
    assert stating == []


@pytest.mark.parametrize("name", STATES_VERSION)
def test_another_version_is_found(release, name):
    version = release.version()
    stated = version.partition(".dev")[0] if name == "CHANGELOG.md" else version
    replace(release.ROOT / name, stated, "9.8.7.dev0" if name != "CHANGELOG.md" else "9.8.7")
    assert release.problems()


def test_a_release_has_a_date(release):
    """Whether this version is in development or released: first both are made to state 9.8.7 and no date."""
    rewrite(release.ROOT / "CITATION.cff", r"^date-released: .*\n", "")
    for name in STATES_VERSION[:3]:
        rewrite(release.ROOT / name, r'^version( = "|: )[^"\n]*', r"version\g<1>9.8.7")
    rewrite(release.ROOT / "CHANGELOG.md", r"^## \[.*$", "## [9.8.7] - 2030-01-02")
    assert release.problems() != []
    replace(release.ROOT / "CITATION.cff", "version: 9.8.7\n", "version: 9.8.7\ndate-released: 2030-01-02\n")
    assert release.problems() == []
    replace(release.ROOT / "CITATION.cff", "2030-01-02", "2030-01-03")
    assert len(release.problems()) == 1


def test_the_citation_is_valid():
    """The rules of cff-version 1.2.0 that concern the fields in use."""
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert {"cff-version", "message", "title", "authors", "version", "license", "abstract"} <= set(citation)
    assert citation["cff-version"] == "1.2.0"
    assert citation["type"] == "software"
    pyproject = (ROOT / "pyproject.toml").read_text("utf-8")
    assert f'license = "{citation["license"]}"' in pyproject
    assert [author["name"] for author in citation["authors"]] == re.findall(r'name = "(The .*?)"', pyproject)
    person = {"family-names", "given-names"}
    for reference in citation["references"]:
        assert {"type", "title", "authors"} <= set(reference)
        assert all(set(author) == person for author in reference["authors"])
        assert reference["type"] in ("article", "conference-paper")
        assert reference["url"].startswith("https://")


def loads_code(source: str) -> list[str]:
    """The calls in a source that may run what is in a file."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        options = {option.arg: ast.unparse(option.value) for option in node.keywords}
        forbidden = name in ("eval", "exec") or re.match(r"(pickle|cPickle|dill|joblib|marshal)\.", name)
        unsafe = (name == "torch.load" and options.get("weights_only") != "True") or (
            name in ("np.load", "numpy.load") and options.get("allow_pickle") != "False"
        )
        if forbidden or unsafe or name in ("yaml.load", "yaml.unsafe_load"):
            found.append(ast.unparse(node))
    return found


def test_no_file_is_loaded_as_code():
    """As SECURITY.md says."""
    sources = [*(ROOT / "src").rglob("*.py"), *(ROOT / "benchmarks" / "khot_bench").rglob("*.py")]
    found = {path.name: calls for path in sources if (calls := loads_code(path.read_text("utf-8")))}
    assert found == {}


@pytest.mark.parametrize(
    "source",
    ["torch.load(p)", "np.load(p)", "torch.load(p, weights_only=False)", "pickle.loads(b)", "eval(text)"],
)
def test_loading_code_is_found(source):
    assert loads_code(source) == [source]


def test_the_security_page_names_modules_that_are_there():
    page = (ROOT / "SECURITY.md").read_text("utf-8")
    for name in set(re.findall(r"`(khot\.[a-z_.]+)`", page)):
        assert importlib.util.find_spec(name), name
