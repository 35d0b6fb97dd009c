"""Everything that runs import or initialise once per process: done in the server, before processes are forked."""

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
# Registers the operators that draw random numbers.
with DrawFrom(torch.Generator()):
    pass
