"""The explorer in a browser: it loads, follows a drag, keys and links, logs nothing; axe has no complaint.

KHOT_AXE names the file axe.min.js of axe-core if it is not where tools/set_up_peers.sh browser puts it.
"""

import json
import os
import shutil
import sys
import threading
import time
from pathlib import Path

import pytest
import torch
import uvicorn
from playwright.sync_api import sync_playwright

import khot
from khot.explore.document import single_file
from khot.explore.server import application, listen

AXE = Path(os.environ.get("KHOT_AXE") or Path(sys.prefix) / "node_modules/axe-core/axe.min.js")
LINK = "#scores=2,1,0,-1&k=2&temperature=0.5&methods=sigmoid,softsort&designs=systematic"


@pytest.fixture(scope="module")
def url():
    found = listen(0)
    server = uvicorn.Server(uvicorn.Config(application(), log_level="warning"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [found]})
    thread.start()
    while not server.started:
        time.sleep(0.05)
    yield f"http://127.0.0.1:{found.getsockname()[1]}/"
    server.should_exit = True
    thread.join()


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        made = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        yield made
        made.close()


@pytest.fixture
def page(browser):
    made = browser.new_page(viewport={"width": 1200, "height": 900})
    made.set_default_timeout(180_000)  # of a busy machine; nothing here measures time
    made.logged = []
    made.asked_for = []
    made.on("console", lambda message: made.logged.append(message.text))
    made.on("pageerror", lambda error: made.logged.append(str(error)))
    made.on("request", lambda request: made.asked_for.append(request.url))
    yield made
    made.close()


def wait_for(page, expression, seconds=180):
    """Look again and again: the policy of the page forbids the browser to do it by `eval`."""
    end = time.monotonic() + seconds
    while not page.evaluate(expression):
        assert time.monotonic() < end, f"{expression} is still not so"
        page.wait_for_timeout(50)


def wait_until_drawn(page, times=1):
    wait_for(page, f"+(document.body.dataset.drawn || 0) >= {times}")


def weights(page, place=0):
    return page.evaluate(f"Array.from(document.getElementById('weights').data[{place}].y)")


def test_it_loads_and_asks_nobody_else(page, url):
    page.goto(url)
    wait_until_drawn(page)
    assert sum(weights(page)) == pytest.approx(4, abs=1e-5)
    assert page.locator("#jacobian > div").count() == 3
    plots = "[...document.querySelectorAll('#jacobian > div')]"
    wait_for(page, f"{plots}.every(d => d.querySelector('svg').clientWidth <= d.clientWidth + 1)", seconds=60)
    assert page.logged == []
    assert all(asked.startswith((url, "data:", "blob:")) for asked in page.asked_for)
    assert page.locator("#message").is_hidden()


def test_the_link_is_the_state(page, url):
    page.goto(url + LINK)
    wait_until_drawn(page)
    expected = khot.topk(torch.tensor([2.0, 1.0, 0.0, -1.0]), 2, temperature=0.5)
    assert weights(page) == pytest.approx(expected.tolist(), abs=1e-5)
    page.locator("#k-number").fill("1.5")
    page.locator("#k-number").press("Enter")
    wait_until_drawn(page, 2)
    assert "k=1.5" in page.url
    assert "k must be a whole number" in page.locator("#message").inner_text()  # of softsort; sigmoid goes on
    assert sum(weights(page)) == pytest.approx(1.5, abs=1e-5)


def test_a_drag_changes_the_plot(page, url):
    page.goto(url + LINK)
    wait_until_drawn(page)
    before = weights(page)
    box = page.locator("#scores").bounding_box()
    x = box["x"] + box["width"] * 3.5 / 4
    page.mouse.move(x, box["y"] + box["height"] * 0.6)
    page.mouse.down()
    page.mouse.move(x, box["y"] + 5, steps=5)
    page.mouse.up()
    wait_for(page, f"document.getElementById('weights').data[0].y[3] > {before[3] + 0.5}")
    assert weights(page)[0] < before[0]
    assert page.logged == []


def test_keys_alone(page, url):
    page.goto(url + LINK)
    wait_until_drawn(page)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "score 1"
    page.keyboard.press("ArrowDown")
    page.keyboard.press("PageDown")
    assert page.evaluate("document.activeElement.getAttribute('aria-valuenow')") == "0.90"
    wait_for(page, "document.getElementById('weights').data[0].y[0] < 0.8")
    page.locator("#k").focus()
    page.keyboard.press("ArrowRight")
    wait_for(page, "location.hash.includes('k=2.1')")


@pytest.mark.parametrize(
    ("link", "words"),
    [
        ("#scores=1,2&k=3", "k must be a number from 0 to 2; got '3'"),
        ("#scores=1,2&methods=<img src=x onerror=alert(1)>", "methods must be out of"),
        ("#scores=" + "1," * 80, "scores must be 2 to 64 numbers"),
        ("#colour=red", "'colour' is not a setting"),
    ],
)
def test_a_bad_link_shows_a_message(page, url, link, words):
    page.goto(url + link)
    page.locator("#message").wait_for(state="visible")
    assert words in page.locator("#message").inner_text()
    assert page.logged == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1200, 360])
def test_nothing_sticks_out_and_axe_is_content(page, url, width, scheme):
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(url)
    wait_until_drawn(page)
    page.wait_for_timeout(300)
    assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0
    page.evaluate(AXE.read_text("utf-8"))  # past the policy of the page, which is that of its own scripts
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    grave = [item for item in found["violations"] if item["impact"] in ("serious", "critical")]
    assert [(item["id"], [node["html"][:100] for node in item["nodes"]]) for item in grave] == []
    if folder := os.environ.get("KHOT_SCREENSHOTS"):
        page.screenshot(path=Path(folder) / f"explore-{width}-{scheme}.png", full_page=True)


def test_the_single_file_computes_the_same(page, tmp_path):
    file = tmp_path / "explore.html"
    file.write_text(single_file(), encoding="utf-8")
    scores = [1.5, 0.2, -0.7, 0.9, -1.4]
    link = f"#scores={','.join(map(str, scores))}&k=2.3&temperature=0.4"
    page.goto(f"{file.as_uri()}{link}&methods=sigmoid,laplace,sparse&designs=systematic")
    wait_until_drawn(page)
    for place, method in enumerate(("sigmoid", "laplace", "sparse")):
        x = torch.tensor(scores, dtype=torch.float64, requires_grad=True)
        y = khot.topk(x, 2.3, method, temperature=0.4)
        assert weights(page, place) == pytest.approx(y.tolist(), abs=1e-6)
        runner_up = sorted(scores, reverse=True)[2]
        (gradient,) = torch.autograd.grad(y[scores.index(runner_up)], x)
        shown = page.evaluate(f"Array.from(document.getElementById('gradient').data[{place}].y)")
        assert shown == pytest.approx(gradient.tolist(), abs=1e-6)
    drawn = json.loads(page.evaluate("JSON.stringify(localCompute({...state, draws: 20000}).designs[0])"))
    assert drawn["frequency"] == pytest.approx(drawn["probs"], abs=0.02)
    assert page.logged == []
    assert [asked for asked in page.asked_for if not asked.startswith(("file:", "data:", "blob:"))] == []
