"""Models for other programs, as ONNX."""

from pollux.export.file import to_onnx

__all__ = ["to_onnx"]
