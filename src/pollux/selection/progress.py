"""A live line while numbers of clusters are compared."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Report = Callable[[str], None]


@contextmanager
def progress_bar(total: int, show: bool) -> Iterator[Report]:
    """A function to be called after each clustering, with what is known by then."""
    if not show:
        yield lambda figures: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        *(TextColumn("clusterings"), MofNCompleteColumn(), BarColumn(bar_width=24)),
        *(TextColumn("{task.fields[figures]}"), TimeRemainingColumn()),
    )
    with Progress(*columns, console=Console(file=sys.stderr)) as progress:
        task = progress.add_task("", total=total, figures="")
        yield lambda figures: progress.update(task, advance=1, figures=figures)
