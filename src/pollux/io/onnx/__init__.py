"""Models for other programs, as ONNX."""

from pollux.io.onnx.file import to_onnx

__all__ = ["to_onnx"]
