"""onnx, where it is installed, and which versions of the format are written."""

from __future__ import annotations

from typing import Any

from pollux.errors import InputError

OPSET, ML_OPSET, IR_VERSION = 18, 2, 8
"""Versions of ONNX that programs of 2023 and later read."""


def onnx_library() -> Any:
    try:
        import onnx
    except ImportError as error:
        raise InputError("ONNX files are written by onnx: pip install 'pollux[onnx]'.") from error
    return onnx
