"""
More rows than memory holds
===========================

A file is read as needed, a shuffled window at a time. ``fit`` takes a path in place of an array, and nothing else
changes.
"""

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pollux import GeminiClustering, open_stream
from pollux.metrics import adjusted_rand_index

# %%
# A file of 200,000 rows, which stands for one of 200 million.
random = np.random.default_rng(0)
groups = random.integers(5, size=200_000)
X = random.normal(size=(5, 8))[groups] * 4 + random.normal(size=(200_000, 8))
path = Path(tempfile.mkdtemp()) / "rows.parquet"
pq.write_table(pa.table({f"x{j}": X[:, j] for j in range(8)}), path, row_group_size=20_000)
print(f"{path.stat().st_size / 1e6:.0f} MB on disk")

# %%
# Fit from the file. ``labels_`` are predicted when they are first used, some rows at a time.
clustering = GeminiClustering(5, model="linear", objective="mmd_ovo", batch_size=1000, max_epochs=3, random_state=0)
clustering.fit(open_stream(path))
print(f"{clustering.n_clusters_} clusters, adjusted Rand index {adjusted_rand_index(groups, clustering.labels_):.3f}")
