"""The site: ``make docs`` builds it into docs/_build/html, without a network and without a warning."""

import importlib
import inspect
import re
import sys
import tomllib
import types
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from sphinx.pycode import ModuleAnalyzer
from sphinx_gallery.scrapers import figure_rst

import pollux

sys.path.insert(0, str(Path(__file__).parent))

project = "Pollux"
author = "The Pollux developers"
copyright = author
version = release = pollux.__version__
_PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]

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
# As in the source: LOCAL, not the address of an object.
autodoc_preserve_defaults = True
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
    "icon_links": [{"name": "Source code", "url": _PROJECT["urls"]["Source"], "icon": "fa-brands fa-github"}],
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
    registries = []
    for name, title in _MODULES.items():
        module = importlib.import_module(name)
        found = {each: getattr(module, each) for each in module.__all__}
        # A module has its own page, and what stands on that of pollux is not repeated.
        found = {each: it for each, it in found.items() if not isinstance(it, types.ModuleType) and id(it) not in shown}
        shown |= set(map(id, found.values()))
        registries += [f"{name}.{each}" for each, it in found.items() if isinstance(it, dict | tuple)]
        lines = [f"{name}: {title[0].lower()}{title[1:]}"]
        lines += ["=" * len(lines[0]), "", (module.__doc__ or "").strip(), "", f".. currentmodule:: {name}", ""]
        lines += [".. autosummary::", "   :toctree: generated", "", *(f"   {each}" for each in found), ""]
        text, page = "\n".join(lines), folder / f"{name}.rst"
        if not page.exists() or page.read_text(encoding="utf-8") != text:
            page.write_text(text, encoding="utf-8")
    # Their docstrings say what is in them: values that are functions would be shown as addresses in memory.
    config.autosummary_context = {"registries": registries}


def _document_data(app: Any, what: str, name: str, value: Any, options: Any, lines: list[str]) -> None:
    """Constants are documented where they are assigned, which is not where they are imported from."""
    if what != "data":
        return
    attribute = name.rpartition(".")[2]
    lines.clear()  # the docstring of dict, tuple or float
    for module in [each for each in sys.modules if each.partition(".")[0] == "pollux"]:
        if vars(sys.modules[module]).get(attribute) is value:
            docs = ModuleAnalyzer.for_module(module).find_attr_docs()
            lines[:] = docs.get(("", attribute), lines)
    if isinstance(value, dict) and not any("list-table" in line for line in lines):
        lines += ["", *(f"- ``{key!r}``{_summary(it)}" for key, it in value.items()), ""]
    elif isinstance(value, tuple) and not lines:
        lines += [", ".join(f"``{each!r}``" for each in value) + ".", ""]


def _summary(value: Any) -> str:
    """What an entry of a registry is, in a line, where it says so."""
    if isinstance(value, dict):
        return ": " + ", ".join(f"``{key!r}``" for key in value)
    value = getattr(value, "function", getattr(value, "func", value))
    is_documented = inspect.isroutine(value) or inspect.isclass(value)
    first = (inspect.getdoc(value) or "").partition("\n")[0] if is_documented else ""
    return first and ": " + re.sub(r"[|*]", r"\\\g<0>", first)


def setup(app: Any) -> None:
    """Called by Sphinx."""
    # Before Sphinx looks for its pages, and autosummary for tables in them.
    app.connect("config-inited", _write_reference)
    app.connect("source-read", _point_to_pages)
    # Before numpydoc, which has 500: it then reads this text, and not the docstring of dict.
    app.connect("autodoc-process-docstring", _document_data, priority=400)
