"""
Ship the model as ONNX
======================

A clustering can be exported to one file that programs in many languages run, without Python and without Pollux. The
file takes raw rows: it includes the scaling.
"""

import tempfile
from pathlib import Path

import onnxruntime
from sklearn.datasets import load_wine

from pollux import GeminiClustering
from pollux.io.onnx import to_onnx

X = load_wine().data
clustering = GeminiClustering.for_tables(3, random_state=0).fit(X)
path = Path(tempfile.mkdtemp()) / "wine.onnx"
to_onnx(clustering, path)
print(f"{path.stat().st_size / 1e3:.0f} kB")

# %%
# Load it in another program.
session = onnxruntime.InferenceSession(path)
outputs = dict(zip([each.name for each in session.get_outputs()], session.run(None, {"numbers": X}), strict=True))
print({name: values.shape for name, values in outputs.items()})
print("same clusters:", bool((outputs["cluster"] == clustering.labels_).all()))
