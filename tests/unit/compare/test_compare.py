"""What `khot compare` measures, on operators whose answers are known; its options; its page."""

import dataclasses
import json
import math
import re
from html.parser import HTMLParser
from types import SimpleNamespace

import pytest
import torch
from typer.testing import CliRunner

import khot
from khot.cli.compare import app
from khot.compare import run as run_file
from khot.compare.comparison import Cell, Comparison, Options, Record
from khot.compare.cost.failure import Failure
from khot.compare.cost.memory import Peak
from khot.compare.quality import (
    Problem,
    chance,
    gradient_health,
    matched_temperature,
    quality,
    seeded,
)
from khot.compare.report.page import page
from khot.compare.report.tables import comparison_grids
from khot.compare.run import compare_operators, measure, why_not
from khot.relaxations import Relaxation, registry


def problem(n=12, k=3, rows=4):
    return Problem.make(rows, n, k, torch.float32, "cpu", 0)


def hard(x, k, *, temperature=1.0, dim=-1, mask=None, hard=False):
    return khot.hard_topk(x, k)


def hard_rows(x, k, *, temperature=1.0, dim=-1, mask=None):
    return torch.nn.functional.one_hot(x.topk(k).indices, x.shape[-1]).to(x.dtype)


def equal(x, k, *, temperature=1.0, dim=-1, mask=None, hard=False):
    return torch.full_like(x, k / x.shape[-1])


def worst(x, k, *, temperature=1.0, dim=-1, mask=None, hard=False):
    return khot.hard_topk(-x, k)


def spec(function, **options):
    return Relaxation(name=function.__name__, weights=function, **options)


def test_the_exact_selection_has_the_best_numbers():
    found = quality(spec(hard, matrix=hard_rows), problem(), 1.0)
    assert found.recall == found.on_topk == 1
    assert found.entropy == 0
    assert found.nccs == pytest.approx(1)


def test_equal_weights_have_the_share_of_chance():
    found = quality(spec(equal), problem(), 1.0)
    assert found.on_topk == pytest.approx(3 / 12)
    assert found.entropy == pytest.approx(1)
    assert found.nccs is None


def test_the_smallest_are_none_of_the_largest():
    found = quality(spec(worst), problem(), 1.0)
    assert found.recall == found.on_topk == 0


def test_nccs_by_hand():
    vectors = torch.zeros(1, 3, 32)
    vectors[0, 0, 0] = vectors[0, 1, 1] = vectors[0, 2, 2] = 2.0
    own = Problem(torch.tensor([[3.0, 2.0, 1.0]]), vectors, 2)

    def blends(x, k, **options):
        return torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0]])

    found = quality(spec(hard, matrix=blends), own, 1.0)
    assert found.nccs == pytest.approx((1 + math.sqrt(0.5)) / 2)


def test_chance_lies_between_nothing_and_everything():
    assert 0 < chance(problem(200, 10), 0) < 0.9


@pytest.mark.parametrize(
    ("weights", "usable"),
    [
        (lambda x: 2 * x, 1.0),
        (lambda x: torch.cat([x[:, :3], 0 * x[:, 3:]], -1), 0.25),
        (lambda x: torch.cat([x[:, :6], 1e-8 * x[:, 6:]], -1), 0.5),
        (lambda x: torch.cat([x[:, :6], torch.inf * x[:, 6:]], -1), 0.5),
        (lambda x: 0 * x, 0.0),
        (lambda x: x.detach(), 0.0),
    ],
)
def test_the_share_of_usable_gradients(weights, usable):
    assert gradient_health(weights, problem().scores, 0).usable == usable


def test_the_norm_of_a_gradient():
    x = torch.zeros(2, 5000)
    assert gradient_health(lambda x: 3 * x, x, 0).norm == pytest.approx(3 * math.sqrt(5000), rel=0.03)


def test_matched_temperatures_give_the_entropy():
    own, sigmoid = problem(64, 8), registry.get("sigmoid")
    temperature = matched_temperature(sigmoid, own, 0.3)
    assert quality(sigmoid, own, temperature).entropy == pytest.approx(0.3, abs=1e-3)
    assert matched_temperature(spec(equal), own, 0.3) is None


def test_a_seeded_operator_repeats_itself_with_all_options():
    x = problem().scores
    gumbel = seeded(registry.get("gumbel"), 3)
    assert torch.equal(gumbel.weights(x, 3), gumbel.weights(x, 3))
    assert not torch.equal(gumbel.weights(x, 3), seeded(registry.get("gumbel"), 4).weights(x, 3))
    assert not torch.equal(gumbel.weights(x, 3), gumbel.weights(x, 3, temperature=0.1))
    assert seeded(registry.get("sigmoid"), 3) is registry.get("sigmoid")


def test_cases_are_those_with_k_below_n():
    cells = Options(("sigmoid",), n=(64, 8), k=(8, 4)).cells()
    assert [(cell.n, cell.k) for cell in cells] == [(8, 4), (64, 4), (64, 8)]


def test_what_an_operator_cannot_do_is_said():
    limited = spec(equal, max_n=10)
    assert why_not(limited, 11) == "n is above 10"
    assert why_not(limited, 10) == ""
    options = Options(("equal",))
    assert measure(limited, problem(), "fixed", options).missing == "n is above 10"
    assert measure(spec(equal), problem(), "matched", options).missing == "entropy 0.3 is not reached"

    def failing(x, k, **options):
        raise RuntimeError("no\nmore")

    assert measure(spec(failing), problem(), "fixed", options).missing == "RuntimeError: no"


@pytest.mark.parametrize("k", [12, 40])
@pytest.mark.parametrize("name", registry.names())
def test_every_operator_is_measured_at_every_k_that_it_takes(name, k):
    """The budget up to which the contract runs an operator is not the largest that it takes."""
    operator = seeded(registry.get(name), 0)
    record = measure(operator, problem(64, k, rows=2), "fixed", Options((name,)))
    assert record.missing == ""
    assert record.recall > k / 64


def test_a_comparison(monkeypatch):
    """Memory is measured elsewhere: its processes take seconds to start."""
    asked = []

    def peaks(source, case):
        asked.append((source, case.shape, case.k, case.dtype, case.seed))
        return {"forward": Peak(100, 0.1), "forward+backward": Failure("time", "longer")}

    monkeypatch.setattr(run_file.memory, "measure", peaks)
    options = Options(
        ("sigmoid", "network"),
        n=(16, 1001),
        k=(2,),
        dtype="float64",
        seed=7,
        quick=True,
        command="khot compare",
    )
    shares = []
    found = compare_operators(options, lambda message, share: shares.append(share))
    assert shares == sorted(shares)
    assert shares[-1] == 1
    assert asked == [("khot.compare.cost.side:relaxation:sigmoid", (3, 1001), 2, "float64", 7)]
    records = {(r.method, r.n, r.setting): r for r in found.records}
    assert len(records) == 8
    assert records["network", 1001, "fixed"].missing == "n is above 1000"
    small, large = records["sigmoid", 16, "matched"], records["sigmoid", 1001, "fixed"]
    assert small.entropy == pytest.approx(0.3, abs=1e-3)
    assert small.forward > 0
    assert small.forward_bytes is None
    assert (large.forward_bytes, large.backward_bytes) == (100, None)
    assert large.temperature == 1
    assert len(found.chance) == len(found.softmax) == 2
    assert min(found.softmax) > 0


def example():
    record = Record(
        "sigmoid", 16, 2, "fixed", "", 1.0, 1.0, 0.5, 0.25, None, 1.5, 0.5, 1e-3, 2e-3, 2048, None
    )
    return Comparison(
        created="2025-01-02",
        origin="A machine <x>.",
        options=Options(("sigmoid", "network"), command="khot compare </script>"),
        cells=(Cell(16, 2, 4),),
        records=(
            record,
            dataclasses.replace(record, setting="matched", entropy=0.5),
            Record("network", 16, 2, "fixed", "n is above 10"),
        ),
        chance=(0.4,),
        softmax=(1e-5,),
        others=0.0,
    )


def test_the_table_shows_what_is_missing_and_what_is_not_matched():
    good, cost = comparison_grids(example())
    assert good.rows[0] == ("sigmoid", "fixed", "1", "–", "1.000", "0.500", "0.250")
    assert good.rows[1] == ("", "equal", "1", "–", "1.000", "0.500", "0.500 (!)")
    assert good.rows[2] == ("network", "fixed", "n is above 10", "", "", "", "")
    assert "(!): the operator cannot reach that entropy." in good.notes
    assert cost.rows[0] == ("sigmoid", "fixed", "1.5", "50%", "1 ms", "2 ms", "2 KiB", "–")
    assert {len(row) for row in cost.rows} == {len(cost.header)}


class _Resources(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.found, self.ids, self.headings = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.found += [given[name] for name in ("src", "href", "action", "poster", "data") if given.get(name)]
        self.ids += [given["id"]] if "id" in given else []
        self.headings += [tag] if re.fullmatch("h[1-6]", tag) else []


def test_the_page_needs_nothing_but_itself():
    text = page(example())
    parsed = _Resources(text)
    assert parsed.found == ["data:,"]
    own = text.replace(re.search(r"<script>(?!\s*\"use strict\").*?</script>", text, re.DOTALL)[0], "")
    assert len(own) < 40_000
    assert "http" not in own
    assert "@import" not in own
    assert not re.search(r"@[A-Z]+@", own)
    assert parsed.headings[0] == "h1"
    assert set(parsed.headings[1:]) == {"h2"}
    for figure in re.findall(r"^  (\w+)\(\) \{$", own, re.MULTILINE):
        assert figure in parsed.ids
    assert 'name="viewport"' in own
    assert "A machine &lt;x&gt;." in own


def test_the_data_of_the_page_are_the_comparison():
    text = page(example())
    (data,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert json.loads(data) == json.loads(json.dumps(dataclasses.asdict(example())))


def call(*arguments):
    result = CliRunner(env={"COLUMNS": "300", "TERM": "dumb"}).invoke(app, list(map(str, arguments)))
    return SimpleNamespace(code=result.exit_code, text=" ".join(result.output.replace("│", " ").split()))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--methods", "sigmoid,nothing"],
            f"'nothing' is not known; choose from {', '.join(registry.names())}",
        ),
        (["--dtype", "int8"], "choose from float32, float64, float16, bfloat16"),
        (["--device", "tpu"], "'tpu' is not known; choose from cpu"),
        (["--n", "1"], "whole numbers of at least 2; got '1'"),
        (["--n", "12,x"], "whole numbers of at least 2; got 'x'"),
        (["--k", "0"], "whole numbers of at least 1; got '0'"),
        (["--n", "8", "--k", "8"], "must be below n for one n at least; got k = 8, n = 8"),
        (["--temperature", "0"], "must be above 0 and finite; got 0"),
        (["--sharpness", "1"], "must be between 0 and 1; got 1"),
    ],
)
def test_a_bad_option_names_what_is_allowed_before_anything_is_done(
    arguments, message, tmp_path, monkeypatch
):
    monkeypatch.setattr("khot.cli.compare.compare_operators", None)
    result = call(*arguments, "--output", tmp_path / "report")
    assert result.code == 2
    assert arguments[-2] in result.text
    assert message in result.text
    assert not list(tmp_path.iterdir())


def test_an_output_that_cannot_be_written_fails_before_measuring(tmp_path, monkeypatch):
    monkeypatch.setattr("khot.cli.compare.compare_operators", None)
    (tmp_path / "file").write_text("mine")
    result = call("--output", tmp_path / "file")
    assert result.code == 2
    assert "--output" in result.text
    assert "must be a folder that can be written to" in result.text


def test_without_plotly_the_command_says_how_to_get_it(tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "plotly", None)
    monkeypatch.setattr("khot.cli.compare.compare_operators", None)
    result = call("--output", tmp_path)
    assert result.code == 1
    assert 'pip install "khot[compare]"' in result.text


def test_the_command_writes_page_and_numbers_and_says_where(tmp_path, monkeypatch):
    seen = []

    def measured(options, report):
        seen.append(options)
        return example()

    monkeypatch.setattr("khot.cli.compare.compare_operators", measured)
    result = call(
        "--quick", "--methods", "sigmoid,laplace", "--methods", "sparse", "--k", 4, "--output", tmp_path
    )
    assert result.code == 0
    assert f"The report is {tmp_path / 'index.html'}" in result.text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["compare.json", "index.html"]
    assert json.loads((tmp_path / "compare.json").read_text())["chance"] == [0.4]
    (options,) = seen
    assert options.methods == ("sigmoid", "laplace", "sparse")
    assert options.n == (64, 1000)
    assert options.k == (4,)
    assert options.quick
