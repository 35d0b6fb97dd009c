"""Files: whole or not at all, locked, under a checksum, of known types; model files and ONNX."""
