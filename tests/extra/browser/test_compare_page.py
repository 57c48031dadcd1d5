"""The report of `khot compare` in a browser: every plot is drawn, nothing is logged, nothing sticks out."""

import json
import re
import shutil
import subprocess

import pytest

from khot.compare.comparison import Cell, Comparison, Options, Record
from khot.compare.report.page import page
from khot.relaxations import registry

BROWSER = shutil.which("chromium")
FRAME = """<!doctype html><body><iframe id="f" src="index.html" style="width:{width}px;height:900px;border:0">
</iframe><p id="found"></p><script>
f.onload = () => setTimeout(() => {{
  const d = f.contentDocument;
  found.textContent = JSON.stringify({{
    drawn: [...d.querySelectorAll(".plot")].map(p => p.querySelectorAll(".point").length),
    wide: d.documentElement.scrollWidth - d.documentElement.clientWidth,
    requests: f.contentWindow.performance.getEntriesByType("resource").map(e => e.name),
    missing: d.getElementById("missing").textContent,
  }});
}}, 2000);
</script></body>"""


def comparison():
    records = [
        Record(name, n, 8, setting, "", 1.0, 0.9, 0.5, 0.3, 0.4, 1.5, 0.5, 1e-3, 2e-3, 2**20, 2**21)
        for n in (64, 1000)
        for name in registry.names()
        for setting in ("fixed", "matched")
        if name != "network"
    ]
    gone = Record("network", 1000, 8, "fixed", "n is above 10")
    cells = (Cell(64, 8, 16), Cell(1000, 8, 4))
    options = Options(tuple(registry.names()), command="khot compare")
    return Comparison("today", "A machine.", options, cells, (*records, gone), (0.3, 0.3), (1e-5, 1e-5), 0.0)


@pytest.mark.parametrize("width", [1400, 390])
def test_the_page_in_a_browser(width, tmp_path):
    (tmp_path / "index.html").write_text(page(comparison()))
    (tmp_path / "frame.html").write_text(FRAME.format(width=width))
    done = subprocess.run(
        [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--allow-file-access-from-files",
         "--enable-logging=stderr", "--v=0", "--virtual-time-budget=10000", "--window-size=1600,1000",
         f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", f"file://{tmp_path / 'frame.html'}"],
        capture_output=True, text=True, timeout=180, check=True,
    )  # fmt: skip
    assert "CONSOLE" not in done.stderr
    found = json.loads(re.search(r'<p id="found">(.*?)</p>', done.stdout)[1])
    bars = 2 * (len(registry.names()) - 1)
    assert len(found["drawn"]) == 8
    assert all(count >= bars for count in found["drawn"])
    assert found["wide"] == 0
    assert found["requests"] == []
    assert found["missing"] == "Not here: network (n is above 10)."
