"""``pollux export``: write the model for other programs."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from pollux.app.console import GOOD


def add(commands: Any) -> None:
    export = commands.add_parser(
        "export",
        allow_abbrev=False,
        description="Write the model and its preprocessing as ONNX: columns of numbers and text in, probabilities and "
        "clusters out.",
    )
    export.add_argument("run_folder", metavar="RUN", help="folder of a run, or a model file")
    export.add_argument("--onnx", metavar="FILE", required=True, help="the file to write")
    export.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from pollux.app.runs.folder import keep_apart, model_of
    from pollux.app.runs.predicting import load_for
    from pollux.io.onnx import to_onnx

    keep_apart(Path(options.onnx), model_of(options.run_folder))
    told = to_onnx(load_for(options.run_folder), options.onnx)
    print(f"model written to {options.onnx}: {told}")
    return GOOD
