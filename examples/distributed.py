"""
Several processes, one model
============================

Several processes train one model: ``torchrun --nproc-per-node 2 examples/distributed.py [FOLDER]``

Run again after a process has died (``torchrun --max-restarts 3``), they continue from the last checkpoint in FOLDER.
"""

import sys
from pathlib import Path

import numpy as np
import torch.distributed as dist

from pollux import GeminiClustering, Training
from pollux.ranks import joining

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "distributed")
centres = np.array([[0, 0], [8, 0], [0, 8], [8, 8]], dtype=np.float32)
X = np.repeat(centres, 5_000, axis=0) + np.random.default_rng(0).normal(size=(20_000, 2)).astype(np.float32)

# gloo on CPUs, nccl for device="cuda"; estimators detect the group. None if there is only one process.
with joining("cpu") as ranks:
    clustering = GeminiClustering(
        4,
        model="linear",
        batch_size=2_000,
        max_epochs=20,
        random_state=0,
        training=Training(checkpoint=folder / "checkpoints"),
    )
    # The same rows in all processes. Parquet files, given by their path, would be divided by row groups.
    clustering.fit(X)
    if ranks is None or ranks.rank == 0:
        clustering.save(folder / "model.safetensors")
        print(f"{clustering.n_clusters_} clusters by {dist.get_world_size() if ranks else 1} processes")
