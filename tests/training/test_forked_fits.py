"""A process that is forked after a fit on several threads fits on one: threads are not copied with a process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from coverings import in_full

PROGRAM = """
import multiprocessing, sys
import numpy as np
import torch
from pollux import GeminiClustering, MLP

X = np.random.default_rng(0).normal(size=(1500, 60)).astype(np.float32)

def fit():
    options = {"model": MLP((100,)), "batch_size": None, "max_epochs": 2, "init": sys.argv[1], "random_state": 0}
    return GeminiClustering(3, **options).fit(X).labels_.tolist()

if __name__ == "__main__":
    torch.set_num_threads(2)
    here = fit()
    with multiprocessing.get_context("fork").Pool(1) as pool:
        # A child that waits for threads that it does not have would wait for ever.
        there = pool.apply_async(fit).get(timeout=300)
    assert len(there) == len(here)
    print(torch.get_num_threads())
"""


@in_full
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.parametrize("init", ["random", "kmeans", "graph"])
def test_a_forked_process_can_fit(init: str) -> None:
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM, init]
    answer = subprocess.run(command, capture_output=True, text=True, check=False)
    assert answer.stdout == "2\n", answer.stderr
