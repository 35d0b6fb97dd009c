"""Every example of the README and of the pages for users runs as it stands, and links lead somewhere."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import matplotlib
import pytest

import pollux
from coverings import IS_FULL
from pollux.app import cli

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs/start").glob("*.md"))]
# Those that speak to users; the architecture shows fragments of the source.
FOR_USERS = [page for page in PAGES if page.name != "architecture.md"]
# Those that take long and use nothing that other tests do not: `make test` runs what they import alone.
LONG = ("explain.md", "geometry.md", "hints.md", "large-data.md", "pictures.md", "report.md", "sure.md")
FENCE = re.compile(
    r"^(?P<fence>`{3,}|~{3,})(?P<kind>python|console)[^\n]*\n(?P<code>.*?)^(?P=fence)[ \t]*$", re.MULTILINE | re.DOTALL
)

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
every_page_for_users = pytest.mark.parametrize("page", FOR_USERS, ids=lambda page: page.name)


def blocks(page: Path, kind: str = "python") -> list[str]:
    """The blocks of a kind in their order, each moved down to its line, so that errors point into the page."""
    return [code for found, code in all_blocks(page) if found == kind]


def all_blocks(page: Path) -> list[tuple[str, str]]:
    text = page.read_text(encoding="utf-8")
    return [
        (match["kind"], "\n" * text.count("\n", 0, match.start("code")) + match["code"])
        for match in FENCE.finditer(text)
    ]


def imports_alone(code: str) -> str:
    tree = ast.parse(code)
    tree.body = [statement for statement in tree.body if isinstance(statement, ast.Import | ast.ImportFrom)]
    return ast.unparse(tree)


def commands(code: str) -> list[list[str]]:
    """The arguments of each pollux command in a block; what else is in it is not run."""
    lines = [shlex.split(line, comments=True) for line in code.splitlines()]
    return [words[1:] for words in lines if words[:1] == ["pollux"]]


def test_the_readme_shows_how_the_library_is_used() -> None:
    found = blocks(README)
    assert len(found) >= 2
    assert any("GeminiClustering" in code for code in found)
    shown = [arguments[0] for code in blocks(README, "console") for arguments in commands(code)]
    assert {"fit", "report", "predict"} <= set(shown)


def test_pages_of_which_little_is_run_are_there() -> None:
    assert set(LONG) <= {page.name for page in FOR_USERS}


def test_the_readme_is_short() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) <= 150


def test_links_of_the_readme_work_on_a_package_index() -> None:
    pytest.importorskip("setuptools", minversion="77", reason="this setuptools cannot build the package")
    command = [sys.executable, "-X", "utf8", "-W", "ignore", "setup.py", "--quiet", "--long-description"]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, encoding="utf-8", check=True).stdout
    links = re.findall(r"\]\(([^)]+)\)", shown)
    assert len(links) == len(re.findall(r"\]\(([^)]+)\)", README.read_text(encoding="utf-8")))
    assert all(link.startswith("https://") for link in links)


def test_the_citation_names_this_version() -> None:
    assert f"\nversion: {pollux.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"  version = {{{pollux.__version__}}}," in (ROOT / "docs" / "index.md").read_text(encoding="utf-8")


def test_the_site_names_the_repository() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert f"git clone {project['urls']['Source']}\n" in (ROOT / "docs/start/index.md").read_text(encoding="utf-8")


@every_page
def test_downloads_are_there(page: Path) -> None:
    for target in re.findall(r"\{download\}`[^`<]*<([^>]+)>`", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name} offers {target}"


def test_actions_are_pinned_by_digest() -> None:
    for workflow in (ROOT / ".github" / "workflows").glob("*.yml"):
        for action in re.findall(r"uses: (\S+)", workflow.read_text(encoding="utf-8")):
            assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40}", action), f"{workflow.name}: {action}"


@every_page
def test_no_block_goes_unnoticed(page: Path) -> None:
    # A fence that is spelled otherwise (indented, or "py") would not be run.
    fences = re.findall(r"^\s*(?:`{3,}|~{3,})\s*(?:py|python|python3)\b", page.read_text(encoding="utf-8"), re.M)
    assert len(blocks(page)) == len(fences)


@every_page_for_users
def test_every_block_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # In one folder and in their order, so that a block may read a file that an earlier one wrote.
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    backend = matplotlib.get_backend()
    matplotlib.use("Agg")
    try:
        is_run = IS_FULL or page.name not in LONG
        for kind, code in all_blocks(page):
            if kind == "python":
                exec(compile(code if is_run else imports_alone(code), str(page), "exec"), {"__name__": "__main__"})
            for arguments in commands(code) if kind == "console" and is_run else []:
                assert cli.main(arguments) == 0, f"pollux {shlex.join(arguments)}"
    finally:
        matplotlib.use(backend)


@every_page
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\((?!https?://|#)([^)#\s]+)", page.read_text(encoding="utf-8")):
        assert (page.parent / target).exists(), f"{page.name} links to {target}"
