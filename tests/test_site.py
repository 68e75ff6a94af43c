"""The pages of the documentation in a real browser, at the width of a laptop and of a phone."""

import functools
import html
import http.server
import importlib
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import dlrd

ROOT = Path(__file__).parents[1]
LAPTOP, PHONE = 1280, 390
MADE_ELSEWHERE = {"404.html", "reproduction/page.html"}
"""Pages without a source among the documentation's; that of the reproduction has a test of its own."""

# Frames stand for the screens: browsers do not open windows as narrow as a phone.
SCRIPT = """
addEventListener("load", () => {
    document.body.dataset.found = JSON.stringify([...document.querySelectorAll("iframe")].map(frame => {
        const page = frame.contentDocument;
        const wider = selector => [...page.querySelectorAll(selector)]
            .filter(each => each.scrollWidth > each.clientWidth)
            .map(each => each.innerText.slice(0, 200));
        const loaded = frame.contentWindow.performance.getEntriesByType("resource").map(each => each.name);
        return {
            width: page.documentElement.scrollWidth,
            wide_code: wider("pre > code"),
            wide_tables: wider(".md-typeset__scrollwrap"),
            broken: [...page.images].filter(each => !each.naturalWidth).map(each => each.src),
            from_elsewhere: loaded.filter(name => new URL(name).origin != location.origin),
        };
    }));
});
"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the site was built in."""
    folder = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"})
    return folder


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    """Where the site is served; frames of files may not be looked into."""
    handler = functools.partial(Quiet, directory=site)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def test_every_page_fits_laptop_and_phone(site, address, chromium):
    paths = [path.relative_to(site).as_posix() for path in sorted(site.rglob("*.html"))]
    pages = [path for path in paths if path not in MADE_ELSEWHERE]
    screens = [(page, width) for page in pages for width in (LAPTOP, PHONE)]
    frames = [f'<iframe src="{page}" width="{width}" height="2000"></iframe>' for page, width in screens]
    (site / "frames.html").write_text(f"<body>{''.join(frames)}<script>{SCRIPT}</script></body>")
    dom = chromium(f"{address}/frames.html", LAPTOP)
    found = json.loads(html.unescape(re.search(r'data-found="([^"]+)"', dom)[1]))
    wrong = {}
    for (page, width), screen in zip(screens, found, strict=True):
        flaws = {what: each for what, each in screen.items() if each and what != "width"}
        if screen["width"] > width:
            flaws["width"] = screen["width"]
        if width == PHONE:  # where code and wide tables are scrolled, each by itself
            flaws = {what: each for what, each in flaws.items() if not what.startswith("wide")}
        if flaws:
            wrong[page, width] = flaws
    assert wrong == {}


def test_the_reference_has_every_public_name():
    text = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
    shown = {path.rpartition(".")[2] for path in re.findall(r"^::: (\S+)$", text, re.MULTILINE)}
    assert set(dlrd.__all__) - {"models"} <= shown
    assert {"DynamicDecay", "function", "guide", "host", "numpyro", "pymc", *protocols()} <= shown


def protocols():
    """The names of what a model can be asked for."""
    protocol = importlib.import_module("dlrd.models.protocol")
    return [
        name
        for name, value in vars(protocol).items()
        if getattr(value, "_is_protocol", False) and name != "Protocol"
    ]
