"""What is told of an experiment, whatever the format."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pollux.lab.experiments.experiment import Experiment, Protocol, Record
from pollux.lab.experiments.running import Outcome
from pollux.lab.experiments.tables import Table

if TYPE_CHECKING:
    from pollux.lab.experiments.reproducing import Request


@dataclass(frozen=True)
class Picture:
    """A figure that was drawn: what it shows, its PNG, and where it is beside the Markdown."""

    name: str
    caption: str
    png: bytes
    link: str


@dataclass(frozen=True)
class Account:
    """An experiment, how it was run, and what came of it; ``departure`` says how that is not what the paper did."""

    experiment: Experiment
    profile: str
    departure: str
    settings: Mapping[str, str]
    asked: int
    records: Sequence[Record]
    failures: Sequence[str]
    command: str
    pictures: Sequence[Picture] = ()
    without_pictures: str = ""
    tables: Sequence[Table] = field(init=False)
    conclusion: Sequence[str] = field(init=False)

    def __post_init__(self) -> None:
        concluded = self.experiment.conclusion(self.records) if self.experiment.conclusion else []
        object.__setattr__(self, "tables", list(self.experiment.tables(self.records)))
        object.__setattr__(self, "conclusion", list(concluded))

    @property
    def lead(self) -> str:
        """Where in the paper, which profile, how many runs, how long."""
        parts = [
            f"{self.experiment.place[:1].upper()}{self.experiment.place[1:]} of the paper",
            f"profile {self.profile}",
            f"{len(self.records):,} of {self.asked:,} runs recorded",
            f"{duration(sum(record.seconds for record in self.records))} of runs",
        ]
        return " · ".join(parts)

    @property
    def versions(self) -> dict[str, str]:
        """Of each package, all versions that the runs were done with."""
        return versions_of(self.records)

    @property
    def warnings(self) -> list[str]:
        """What the runs warned of, and how many of them did."""
        counts = Counter(warning for record in self.records for warning in record.warnings)
        return [f"{text} ({count} {'run' if count == 1 else 'runs'})" for text, count in counts.most_common()]


def account_of(experiment: Experiment, protocol: Protocol, outcome: Outcome, request: Request) -> Account:
    """All that is told of an experiment, but for its pictures."""
    return Account(
        experiment,
        request.profile,
        departure(experiment, protocol, request),
        settings_in_words(protocol, experiment.protocols["paper"]),
        len(protocol.all_runs(experiment.name)),
        outcome.records,
        [f"{failure.run}: {failure.reason}" for failure in outcome.failures],
        command(experiment, request),
    )


def departure(experiment: Experiment, protocol: Protocol, request: Request) -> str:
    """How what was run is not the full protocol; nothing where it is."""
    paper = experiment.protocols["paper"]
    if list(protocol.grid) == list(paper.grid) and protocol.runs == paper.runs:
        return ""
    usual = experiment.protocols[request.profile]
    changed = list(protocol.grid) != list(usual.grid) or protocol.runs != usual.runs
    if protocol.remark and not changed:
        return f"{request.profile}: {protocol.remark}"
    # A remark on the profile need not be true of what was made of it.
    changes = _differing_values(protocol, paper)
    if len(protocol.grid) < len(paper.grid):
        changes.append(f"{len(protocol.grid)} of {len(paper.grid)} settings")
    if protocol.runs != paper.runs:
        changes.append(f"{_runs(protocol.runs)} of each instead of {paper.runs}")
    told = f"{request.profile}, changed by options" if changed else request.profile
    return f"{told}: {', '.join(changes) or 'other settings'}"


def _differing_values(protocol: Protocol, paper: Protocol) -> list[str]:
    ours, theirs = _values(protocol), _values(paper)
    return [
        f"{name} {', '.join(values)} instead of {', '.join(theirs.get(name, ['none']))}"
        for name, values in ours.items()
        if not set(values) <= set(theirs.get(name, []))
    ]


def settings_in_words(protocol: Protocol, paper: Protocol) -> dict[str, str]:
    """The values of each setting, with the paper's where those are others."""
    ours, theirs = _values(protocol), _values(paper)
    ours["runs of each setting"], theirs["runs of each setting"] = [str(protocol.runs)], [str(paper.runs)]
    return {
        name: ", ".join(values) + (f" (full: {', '.join(theirs[name])})" if values != theirs.get(name) else "")
        for name, values in ours.items()
        if name != "deterministic" and name in theirs
    }


def _values(protocol: Protocol) -> dict[str, list[str]]:
    """All values of each setting of a grid, in its order."""
    found: dict[str, dict[str, None]] = {}
    for settings in protocol.grid:
        for name, value in settings.items():
            found.setdefault(name, {})[f"{value:g}" if isinstance(value, float) else str(value)] = None
    return {name: list(values) for name, values in found.items()}


def _runs(count: int) -> str:
    return f"{count} run" if count == 1 else f"{count} runs"


def command(experiment: Experiment, request: Request) -> str:
    """The command line that shows or does the same."""
    words = ["pollux", "reproduce", experiment.name, "--profile", request.profile]
    words += [] if request.runs is None else ["--runs", str(request.runs)]
    words += [word for text in request.only for word in ("--only", text)]
    words += [word for text in request.other for word in ("--set", text)]
    words += [] if str(request.out) == "results" else ["--out", str(request.out)]
    return shlex.join(words)


def duration(seconds: float) -> str:
    """Seconds, and minutes or hours where there are many."""
    if seconds < 120:
        return f"{seconds:,.1f} s"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{seconds:,.0f} s ({f'{hours} h ' if hours else ''}{minutes} min)"


def versions_of(records: Sequence[Record]) -> dict[str, str]:
    """Of each package, all versions that runs were done with."""
    names = {name: None for record in records for name in record.versions}
    return {
        name: ", ".join(sorted({record.versions[name] for record in records if name in record.versions}))
        for name in names
    }
