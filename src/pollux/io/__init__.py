"""Files: whole or not at all, locked, under a checksum; model files and ONNX."""
