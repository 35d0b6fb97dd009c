"""All that runs import, and make once in a process: done before they are forked, they need not do it each."""

from importlib import import_module

import torch

from pollux.threads import DrawFrom

for name in (
    *("app.embed", "app.fit", "app.predict", "app.run_data", "clustering", "data.delimited", "data.streams"),
    *("data.table_files", "lab.quality.benchmark", "metrics", "training.restarts"),
):
    import_module(f"pollux.{name}")
for name in ("csv", "dataset", "json", "pandas_compat", "parquet"):
    import_module(f"pyarrow.{name}")
for name in ("_dynamo", "distributed"):
    import_module(f"torch.{name}")
# Operators learn where to draw from.
with DrawFrom(torch.Generator()):
    pass
