"""``pollux export``: write the model as an ONNX file."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from pollux.app.console import GOOD, Console


def add(commands: Any) -> None:
    export = commands.add_parser(
        "export",
        description="Write the model and its preprocessing as ONNX: columns of numbers and text in, probabilities and "
        "clusters out.",
    )
    export.add_argument("run_folder", metavar="RUN", help="folder of a run, or a model file")
    export.add_argument("--onnx", metavar="FILE", required=True, help="the file to write")
    export.add_argument("--quiet", action="store_true", help="print nothing but errors")
    export.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from pollux.app.run_folder import check_not_input, load_run, model_path

    check_not_input(Path(options.onnx), model_path(options.run_folder))
    # Imported late, because it imports torch.
    from pollux.io.onnx import to_onnx

    clustering, _ = load_run(options.run_folder)
    described = to_onnx(clustering, options.onnx)
    Console(options.quiet).echo(f"model written to {options.onnx}: {described}")
    return GOOD
