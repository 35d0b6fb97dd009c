"""All that runs import, and make once in a process: done before they are forked, they need not do it each."""

import torch._dynamo
import torch.distributed

import pollux.app.embed
import pollux.app.fit
import pollux.app.predict
import pollux.app.run_data
import pollux.clustering
import pollux.data.delimited
import pollux.data.streams
import pollux.data.table_files
import pollux.lab.quality.benchmark
import pollux.training.restarts
import pyarrow.csv
import pyarrow.dataset
import pyarrow.json
import pyarrow.pandas_compat
import pyarrow.parquet
from pollux.threads import DrawFrom

with DrawFrom(torch.Generator()):
    """Operators are told where to draw from."""
