"""The site: ``make docs`` builds it into docs/_build/html, without a network and without a warning."""

import importlib
import re
import sys
import types
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from sphinx_gallery.scrapers import figure_rst

import pollux

sys.path.insert(0, str(Path(__file__).parent))

project = "Pollux"
author = "The Pollux developers"
copyright = author
version = release = pollux.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "sphinx-mathjax-offline",
    "command_reference",
]
exclude_patterns = ["_build", "gallery/GALLERY_HEADER.rst", "gallery/sg_execution_times.rst", "sg_execution_times.rst"]
templates_path = ["_templates"]
# A dash is a dash: options begin with two.
smartquotes = False

myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 4
# The pages show fragments (`…`) and output that no lexer knows.
suppress_warnings = ["misc.highlighting_failure", "config.cache"]

autosummary_generate = True
autodoc_typehints = "none"
toc_object_entries_show_parents = "hide"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False


def _scrape_figures(block: Any, variables: dict[str, Any], settings: dict[str, Any]) -> str:
    """The figures that Pollux returns, which pyplot does not know: those that a variable of the example holds."""
    saved = variables.setdefault("saved_figures", set())
    paths = []
    for value in list(variables["example_globals"].values()):
        if isinstance(value, Figure) and id(value) not in saved and getattr(value, "number", None) is None:
            saved.add(id(value))
            paths.append(next(variables["image_path_iterator"]))
            value.savefig(paths[-1], dpi=100)
    return str(figure_rst(paths, settings["src_dir"]))


sphinx_gallery_conf = {
    "image_scrapers": ("matplotlib", _scrape_figures),
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    # These are run by hand: one starts several processes, one takes all of MNIST, one writes a report.
    "filename_pattern": r"/(?!distributed|mnist|demo)[^/]*\.py$",
    "within_subsection_order": "FileNameSortKey",
    "download_all_examples": False,
    "show_signature": False,
    "remove_config_comments": True,
    "min_reported_time": 5,
}

html_theme = "pydata_sphinx_theme"
html_title = "Pollux"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_context = {"default_mode": "auto"}
html_theme_options = {
    "navbar_align": "left",
    "navigation_depth": 2,
    "show_toc_level": 2,
    "header_links_before_dropdown": 7,
    "footer_start": ["copyright"],
    "footer_end": ["theme-version"],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}

# Files of the repository that have a page here.
_PAGES = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md", "examples": "gallery/index.rst"}


def _point_to_pages(app: Any, name: str, source: list[str]) -> None:
    """Links that lead out of docs/ lead to the page of the site that shows the same file."""

    depth = name.count("/")

    def page(match: re.Match[str]) -> str:
        target = match[1]
        if target.startswith("examples/") and target.endswith(".py"):
            target = f"gallery/{Path(target).stem}.rst"
        else:
            target = _PAGES.get(target, f"../{target}")
        return f"]({'../' * depth}{target})"

    out = r"\.\./" * (depth + 1)
    source[0] = re.sub(rf"\]\({out}([^)#]+)\)", page, source[0])


# The modules whose names are for users, and what each is for.
_MODULES = {
    "pollux": "What most programs need",
    "pollux.objectives": "Objectives and penalties",
    "pollux.geometry": "Kernels, distances, graphs, mixtures",
    "pollux.models": "Models by name",
    "pollux.training": "Training loops, checkpoints, callbacks",
    "pollux.transport": "Exact optimal transport",
    "pollux.selection": "Numbers of clusters, columns that matter",
    "pollux.trees": "Trees and rules",
    "pollux.embedding": "Vectors of texts and photographs",
    "pollux.data.streams": "Samples that are read as they are needed",
    "pollux.metrics": "Comparing clusterings",
    "pollux.report": "Findings, figures, pages",
    "pollux.ranks": "Several processes",
    "pollux.io.onnx": "Export",
    "pollux.lab.datasets": "Data sets",
    "pollux.lab.pretraining": "Features of images by SimCLR",
}


def _write_reference(app: Any, config: Any) -> None:
    """A page for each public module with all that it lists in ``__all__``: none can be forgotten."""
    folder = Path(app.srcdir) / "reference"
    folder.mkdir(exist_ok=True)
    shown: set[int] = set()
    for name, title in _MODULES.items():
        module = importlib.import_module(name)
        found = {each: getattr(module, each) for each in module.__all__}
        # A module has its own page, and what stands on that of pollux is not repeated.
        found = {each: it for each, it in found.items() if not isinstance(it, types.ModuleType) and id(it) not in shown}
        shown |= set(map(id, found.values()))
        lines = [f"{name}: {title[0].lower()}{title[1:]}"]
        lines += ["=" * len(lines[0]), "", (module.__doc__ or "").strip(), "", f".. currentmodule:: {name}", ""]
        lines += [".. autosummary::", "   :toctree: generated", "", *(f"   {each}" for each in found), ""]
        text, page = "\n".join(lines), folder / f"{name}.rst"
        if not page.exists() or page.read_text(encoding="utf-8") != text:
            page.write_text(text, encoding="utf-8")


def setup(app: Any) -> None:
    """Called by Sphinx."""
    # Before Sphinx looks for its pages, and autosummary for tables in them.
    app.connect("config-inited", _write_reference)
    app.connect("source-read", _point_to_pages)
