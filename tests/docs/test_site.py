"""The site, where ``make docs`` has built it: nothing is missing, no link is broken, and it works in a browser."""

from __future__ import annotations

import argparse
import html
import importlib
import os
import pkgutil
import re
import shutil
import sys
import types
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

import pollux
from coverings import in_full
from pollux.app import cli

SITE = Path(os.environ.get("POLLUX_SITE", Path(__file__).parents[2] / "docs" / "_build" / "html"))
PAGES = sorted(page for page in SITE.rglob("*.html") if "_static" not in page.parts)
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
PATIENCE = 300_000  # milliseconds for a page, on a machine that others use
pytestmark = [
    pytest.mark.skipif(not PAGES, reason="make docs has not been run"),
    pytest.mark.xdist_group("site"),
]


@cache
def text(page: Path) -> str:
    return page.read_text(encoding="utf-8")


@cache
def anchors(page: Path) -> set[str]:
    return set(re.findall(r'\bid="([^"]+)"', text(page)))


def test_every_public_name_is_in_the_reference() -> None:
    shown = {anchor for page in PAGES if "reference" in page.parts for anchor in anchors(page)}
    names = {name.rpartition(".")[2] for name in shown if name.startswith("pollux.")}
    for module in pkgutil.walk_packages(pollux.__path__, "pollux."):
        for name in getattr(importlib.import_module(module.name), "__all__", []):
            it = getattr(sys.modules[module.name], name)
            assert isinstance(it, types.ModuleType) or name in names, f"{module.name}.{name}"


def test_every_command_and_option_is_in_the_reference() -> None:
    page = html.unescape(re.sub(r"<[^>]+>", "", text(SITE / "reference" / "commands.html")))
    for command in cli.COMMANDS:
        assert f"pollux {command}" in page
        parsers = [cli.parser(command).chosen]
        for parser in parsers:  # which grows by commands within commands
            for action in parser._actions:
                if isinstance(action, argparse._SubParsersAction):
                    parsers += action.choices.values()
                elif action.help != argparse.SUPPRESS:
                    missing = [option for option in action.option_strings if option not in page]
                    assert not missing, f"{parser.prog} {missing}"


def test_links_and_pictures_lead_somewhere() -> None:
    broken = []
    for page in PAGES:
        for target in re.findall(r'(?:href|src)="([^"]*)"', text(page)):
            parts = urlsplit(html.unescape(target))
            if parts.scheme or parts.netloc or target == "#":
                continue
            file = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            missing = not file.exists() or (
                parts.fragment and file.suffix == ".html" and unquote(parts.fragment) not in anchors(file)
            )
            if missing:
                broken.append(f"{page.relative_to(SITE)}: {target}")
    assert not broken


def test_the_gallery_has_pictures() -> None:
    examples = [page for page in PAGES if page.parent == SITE / "gallery" and page.stem != "index"]
    assert sum("sphx_glr_" in text(page) and "<img" in text(page) for page in examples) >= 15


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("there is no Chromium on this machine")
    with playwright.sync_playwright() as started:
        running = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield running
        running.close()


@in_full
def test_pages_open_without_an_error_or_a_request_elsewhere(browser: Any) -> None:
    trouble: list[str] = []
    page = browser.new_page()
    page.set_default_timeout(PATIENCE)
    page.on("pageerror", lambda error: trouble.append(f"{page.url}: {error}"))
    page.on("console", lambda said: trouble.append(f"{page.url}: {said.text}") if said.type == "error" else None)
    page.on("requestfailed", lambda request: trouble.append(f"{page.url}: {request.url} failed"))
    page.on("request", lambda sent: None if sent.url.startswith(("file:", "data:")) else trouble.append(sent.url))
    for file in PAGES:
        page.goto(file.as_uri())
        empty = page.evaluate("[...document.images].filter(i => i.complete && !i.naturalWidth).map(i => i.src)")
        trouble += [f"{file.name}: {source} is no picture" for source in empty]
    page.close()
    assert not trouble


@in_full
def test_the_search_finds_a_page(browser: Any) -> None:
    page = browser.new_page()
    page.goto((SITE / "search.html").as_uri() + "?q=outliers")
    page.wait_for_selector("#search-results li a")
    assert any("utlier" in found for found in page.locator("#search-results li a").all_inner_texts())
    page.close()


@in_full
def test_a_phone_shows_pages_without_scrolling_sideways(browser: Any) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 844})
    page.set_default_timeout(PATIENCE)
    wide = []
    for file in PAGES:
        page.goto(file.as_uri())
        # What is wider than the page is cut off there, unless it scrolls by itself as tables and code do.
        texts = "[...document.querySelectorAll('.bd-article :is(h1, h2, p, li, dt, dd)')]"
        scrolls = "e.closest('pre, .pst-scrollable-table-container, .math')"
        past = "e.getBoundingClientRect().right > innerWidth || e.scrollWidth > e.clientWidth"
        cut = f"{texts}.some(e => ({past}) && !{scrolls})"
        if page.evaluate(f"document.documentElement.scrollWidth > window.innerWidth || {cut}"):
            wide.append(str(file.relative_to(SITE)))
    page.close()
    assert not wide


@in_full
def test_a_dark_screen_gets_a_dark_page(browser: Any) -> None:
    page = browser.new_page(color_scheme="dark")
    page.goto((SITE / "index.html").as_uri())
    light = page.evaluate("getComputedStyle(document.body).backgroundColor.match(/\\d+/g).slice(0, 3).map(Number)")
    page.close()
    assert max(light) < 80
