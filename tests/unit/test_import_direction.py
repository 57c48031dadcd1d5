"""Imports inside khot point one way, and importing khot is cheap and silent."""

import ast
import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

import khot

SOURCE = Path(khot.__file__).parent
LABORATORY = Path(__file__).parents[2] / "benchmarks" / "khot_bench"

# Lowest first. Each may import what is below it, itself, and its neighbours if they do not import it.
ORDER = [
    {"_native"},
    {"kernels"},
    {"relaxations"},
    {"estimators", "designs", "losses"},
    {"nn"},
    {"apps", "interop", "parallel", "vision"},
    {"khot"},  # khot/__init__.py
    {"compare", "explore"},
    {"cli", "__main__"},
    {"khot_bench"},  # the laboratory, a package of its own
]
RANK = {name: rank for rank, names in enumerate(ORDER) for name in names}
# Beside the relaxations, which do not import them.
BESIDE = {
    "_interpreter",
    "calibration",
    "constraints",
    "files",
    "metrics",
    "schedules",
}
MAY_IMPORT_BESIDE = {name for name, rank in RANK.items() if rank > RANK["relaxations"]}


def executed(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes below this one, but for what only type checkers read."""
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return
    yield node
    for child in ast.iter_child_nodes(node):
        yield from executed(child)


def imported(source: str, module: str, is_package: bool = False) -> Iterator[str]:
    """The dotted names that ``source`` imports, wherever it does, by importlib too."""
    package = module if is_package else module.rpartition(".")[0]
    for node in executed(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            yield from (f"{base}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            yield from (
                a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)
            )


def part(dotted: str) -> str | None:
    """The part of khot that a dotted name belongs to; ``khot`` for the package itself, None if outside."""
    root, _, rest = dotted.partition(".")
    name = rest.partition(".")[0]
    if root == "khot_bench":
        return root
    if root != "khot":
        return None
    return name if name in RANK or name in BESIDE or name == "testing" else "khot"


def allowed(importer: str, target: str) -> bool:
    if target == "khot_bench":
        return importer == target
    if importer in (target, "testing"):
        return True
    if target == "testing":
        return importer == "khot_bench"
    if importer in BESIDE:
        return target in ("relaxations", "kernels") or (importer, target) == ("calibration", "metrics")
    if target in BESIDE:
        return importer in MAY_IMPORT_BESIDE
    if target == "_native":
        return importer == "kernels"
    return RANK[importer] >= RANK[target]


def edges(files: dict[str, tuple[str, bool]]) -> set[tuple[str, str, str]]:
    """(file's module, its part, imported part), for modules given as {dotted name: (source, is_package)}."""
    return {
        (module, importer, target)
        for module, (source, is_package) in files.items()
        for name in imported(source, module, is_package)
        if (importer := part(module)) and (target := part(name)) and importer != target
    }


def violations(files: dict[str, tuple[str, bool]]) -> list[str]:
    found = edges(files)
    arrows = {(importer, target) for _, importer, target in found}
    wrong = {f"{module} imports {target}" for module, a, target in found if not allowed(a, target)}
    wrong |= {
        f"{module} imports {b}, which imports {a}"
        for module, a, b in found
        if (b, a) in arrows and RANK.get(a) == RANK.get(b)
    }
    return sorted(wrong)


def all_files() -> dict[str, tuple[str, bool]]:
    files = {}
    for source in (SOURCE, LABORATORY):
        for path in sorted(source.rglob("*.py")):
            parts = path.relative_to(source.parent).with_suffix("").parts
            is_package = parts[-1] == "__init__"
            files[".".join(parts[:-1] if is_package else parts)] = (path.read_text("utf-8"), is_package)
    return files


def test_imports_point_one_way():
    files = all_files()
    assert len(files) > 20
    assert violations(files) == []


def test_every_part_has_a_place_in_the_order():
    parts = {part(module) for module in all_files()}
    own = {module.split(".")[1] for module in all_files() if module.startswith("khot.")}
    assert own - parts == set()
    # And every place is taken: a name that is not there any more guards nothing.
    assert {*RANK, *BESIDE, "testing"} - parts == {"_native"}


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("khot.relaxations.x", "from khot.nn import SigmoidTopK"),
        ("khot.relaxations.x", "def f():\n    from khot import nn"),
        ("khot.relaxations.x", "from ..estimators import straight_through"),
        ("khot.relaxations.x", "import khot"),
        ("khot.relaxations.x", "from khot import sigmoid_topk"),
        ("khot.relaxations.x", "from khot.constraints import k_hot"),
        ("khot.kernels.x", "import khot.relaxations.threshold.sigmoid as s"),
        ("khot.relaxations.x", "import importlib\nimportlib.import_module('khot.compare.run')"),
        ("khot.relaxations.x", "import khot._native"),
        ("khot.constraints", "from khot.estimators import straight_through"),
        ("khot.metrics", "from khot.constraints import k_hot"),
        ("khot.nn.x", "from khot.vision import tokens"),
        ("khot.nn.x", "from khot.parallel import sigmoid_topk"),
        ("khot.nn.x", "from khot.apps.moe import TopKRouter"),
        ("khot.nn.x", "from khot.apps.sae import SparseAutoencoder"),
        ("khot.compare.x", "from khot.testing import truth"),
        ("khot.compare.x", "import khot.cli"),
        ("khot.compare.x", "from khot_bench import suites"),
        ("khot.cli.x", "def f():\n    import khot_bench.runner"),
        ("khot.cli.x", "import importlib\nimportlib.import_module('khot_bench.runner')"),
        ("khot.testing.x", "import khot_bench"),
        ("khot", "from khot import compare"),
        ("khot", "from khot import testing"),
    ],
)
def test_a_wrong_import_is_found(module, source):
    assert len(violations({module: (source, module == "khot")})) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("khot.relaxations.x", "import torch\nfrom khot.kernels import cpu\nfrom . import registry"),
        ("khot.estimators.x", "from khot.constraints import k_hot\nfrom khot.designs import pivotal"),
        ("khot.constraints", "from khot.relaxations import registry"),
        ("khot.nn.x", "from ..relaxations import sigmoid_topk"),
        ("khot.testing.x", "import khot.cli\nfrom khot import compare, testing"),
        ("khot.compare.x", "import khot\nfrom khot import sigmoid_topk, constraints"),
        ("khot.cli.x", "from khot.cli import doctor\nfrom khot.compare import run"),
        (
            "khot_bench.x",
            "from khot_bench import runner\nfrom khot.testing import truth\nimport khot.cli.progress",
        ),
        ("khot", "if TYPE_CHECKING:\n    from khot import testing"),
        ("khot.kernels.x", "import importlib\nimportlib.import_module('khot._native')"),
        ("khot", "from khot import constraints, nn\nfrom khot.relaxations import hard_topk"),
    ],
)
def test_a_right_import_is_not(module, source):
    assert violations({module: (source, module == "khot")}) == []


def test_neighbours_must_not_import_each_other():
    one = {"khot.designs.a": ("from khot.estimators import b", False)}
    assert violations(one) == []
    back = {"khot.estimators.b": ("import khot.designs.a", False)}
    assert len(violations(one | back)) == 2


def test_importing_khot_is_silent_and_loads_nothing_heavy(fresh_python):
    """Beyond what torch and numpy load themselves."""
    code = (
        "import sys, numpy, torch; before = set(sys.modules); import khot; print('|', end=''); "
        "print(*sys.modules.keys() - before)"
    )
    done = fresh_python.run(code)
    printed, _, listed = done.out.partition("|")
    assert (done.code, printed, done.err) == (0, "", "")
    loaded = {name.partition(".")[0] for name in listed.split()}
    assert "khot" in loaded
    heavy = {
        "matplotlib",
        "plotly",
        "typer",
        "rich",
        "scipy",
        "sklearn",
        "triton",
        "pandas",
        "jax",
        "starlette",
        "uvicorn",
        "onnx",
        "onnxruntime",
        "hypothesis",
        "pytest",
    }
    assert loaded & heavy == set()
    unwanted = (
        "khot.testing",
        "khot.apps",
        "khot.parallel",
        "khot.vision",
        "khot.interop",
        "khot.compare",
        "khot.explore",
        "khot.cli",
        "khot_bench",
        "torch._dynamo",
    )
    assert [name for name in listed.split() if name.startswith(unwanted)] == []


@pytest.mark.parametrize("name", khot._ON_DEMAND)
def test_the_rest_is_loaded_when_it_is_touched(name, run_python):
    code = f"import khot, sys; assert 'khot.{name}' not in sys.modules; assert '{name}' in dir(khot); "
    run_python(code + f"assert khot.{name} is sys.modules['khot.{name}']; from khot import {name}")


def test_an_attribute_that_is_not_there():
    with pytest.raises(AttributeError, match="module 'khot' has no attribute 'visions'"):
        khot.visions  # noqa: B018
