"""``pollux select``: tell how many clusters a file has."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from pollux.app.console import FORMATS, GOOD, nothing, say
from pollux.app.fit import _add_columns, _add_reading


def add(commands: Any) -> None:
    select = commands.add_parser(
        "select",
        allow_abbrev=False,
        description=f"Compare numbers of clusters of DATA ({FORMATS}): whether clusterings of subsamples agree, and "
        "whether there are gaps between the clusters. Columns are read as pollux fit reads them. Where nothing is "
        "clear, it says so.",
        argument_default=argparse.SUPPRESS,
    )
    select.add_argument("data", metavar="DATA", help="the file or folder to look at")
    _add_columns(select.add_argument_group("columns"))
    _add_reading(select.add_argument_group("reading"))
    comparing = select.add_argument_group("comparing")
    comparing.add_argument(
        "--from", dest="first", metavar="N", type=int, default=2, help="fewest clusters (default: 2)"
    )
    comparing.add_argument("--to", dest="last", metavar="N", type=int, default=10, help="most clusters (default: 10)")
    comparing.add_argument(
        "--subsamples", metavar="N", type=int, default=10, help="clusterings of each number (default: 10)"
    )
    comparing.add_argument("--seed", metavar="N", type=int, help="of all randomness (default: 0)")
    comparing.add_argument("--jobs", metavar="N", type=int, default=1, help="processes (default: 1; -1: one a core)")
    output = select.add_argument_group("output")
    output.add_argument("--out", metavar="DIR", default=None, help="folder (default: selections/NAME, a new one)")
    output.add_argument("--overwrite", action="store_true", default=False, help="the folder may hold an older answer")
    output.add_argument("--json", action="store_true", default=False, help="print what was found as JSON")
    output.add_argument("--quiet", action="store_true", default=False, help="print nothing but errors")
    select.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from pollux.app.runs.settings import NAMES, Settings
    from pollux.selection.files import Request, select

    settings = Settings(**{name: value for name, value in vars(options).items() if name in NAMES})
    candidates = range(options.first, options.last + 1)
    request = Request(candidates, options.subsamples, options.jobs, options.out, options.overwrite)
    tell = nothing if options.json or options.quiet else print
    found = select(settings, request, show_progress=sys.stderr.isatty() and not options.quiet, tell=tell)
    if options.json:
        print(found.as_json())
    tell(found.selection)
    for note in [] if options.quiet else found.notes:
        say(f"note: {note}")
    tell(f"saved in {found.folder}")
    if found.next_command is not None:
        tell(f"next: {found.next_command}")
    return GOOD
