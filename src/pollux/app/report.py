"""``pollux report``: make a page of what was found."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from pollux.app.console import GOOD
from pollux.errors import InputError
from pollux.names import MISSING_IN_FILES


def add(commands: Any) -> None:
    report = commands.add_parser(
        "report",
        allow_abbrev=False,
        description="Write one HTML file, for any browser, that shows the clusters: their sizes and confidence, a map "
        "of the rows, what sets each cluster apart, the training, and scores where classes are known.",
    )
    report.add_argument("run_folder", metavar="RUN", help="folder of a run, or a model file")
    report.add_argument("data", metavar="DATA", nargs="?", help="other rows than those of the run")
    report.add_argument("--out", metavar="FILE", help="default: report.html in the folder of the run")
    report.add_argument("--label", metavar="COLUMN", help="known classes (default: those of the run)")
    report.add_argument("--map", metavar="A,B", help="two columns as the axes of the map, or an .npy file (n, 2)")
    report.add_argument("--missing", choices=MISSING_IN_FILES, help="default: as in training")
    report.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from pollux.app.run_folder import REPORT, check_not_input, model_path

    run = Path(options.run_folder)
    model = model_path(run)
    if options.out and Path(options.out).suffix.lower() not in (".html", ".htm"):
        raise InputError(f"The report is a page: give it a name that ends in .html, not {options.out}.")
    # Imported late, because they bring torch.
    from pollux.app.run_findings import gather_findings
    from pollux.report import write_page

    findings = gather_findings(run, options.data, label=options.label, axes=options.map, missing=options.missing)
    out = Path(options.out) if options.out else (run if run.is_dir() else run.parent) / REPORT
    check_not_input(out, *([options.data] if options.data else []), model)
    write_page(findings, out)
    print(f"report written to {out}")
    return GOOD
