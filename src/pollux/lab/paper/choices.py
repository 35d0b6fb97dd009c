"""Which runs a request is for: the experiments, the part of their grids, and other values of their settings."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pollux.errors import InputError, did_you_mean
from pollux.lab.paper import EXPERIMENTS
from pollux.lab.paper.experiment import Experiment, Protocol
from pollux.lab.records import Settings

Pair = tuple[str, str]
# What may have any value. Tables find their cells by the other settings, so those keep to the values of the grids.
FREE = ("epochs", "vat", "draws", "samples", "repeats", "epsilon")


def choose(
    names: Sequence[str], profile: str, only: Sequence[str], other: Sequence[str], runs: int | None
) -> list[tuple[Experiment, Protocol]]:
    """The experiments of these names, and what is to be run of each.

    Of several experiments, those without any setting that is asked for are left out, and other values are given to
    those that have the setting.

    Parameters
    ----------
    names : sequence of str
        Of experiments; "all" for all of them.
    profile : {"quick", "paper"}
        Which of their protocols.
    only : sequence of str
        ``NAME=VALUE``: settings that have one of the values given for each name.
    other : sequence of str
        ``NAME=VALUE``: the value of a setting instead of the protocol's.
    runs : int, optional
        Seeds of each setting instead of the protocol's number.
    """
    experiments = _experiments(names)
    wanted, values = _pairs("--only", only), _pairs("--set", other)
    for name, _ in [*wanted, *values]:
        _check_name(name, experiments, profile)
    for name, text in wanted:
        _check_wanted(name, text, experiments, profile)
    if twice := [name for name in dict(values) if sum(name == other for other, _ in values) > 1]:
        raise InputError(f"--set gives {twice[0]} more than one value: one command for each, please.")
    chosen = [(experiment, _restricted(experiment, profile, wanted, values, runs)) for experiment in experiments]
    chosen = [(experiment, protocol) for experiment, protocol in chosen if protocol.grid]
    if not chosen:
        raise InputError(f"No settings of {_listed(experiments)} have {' and '.join(only)}.")
    return chosen


def _experiments(names: Sequence[str]) -> list[Experiment]:
    if not names:
        raise InputError(f"Name what to reproduce: {', '.join(EXPERIMENTS)}, or all.")
    for name in names:
        if name != "all" and name not in EXPERIMENTS:
            raise InputError(
                f"There is no experiment {name!r}.{did_you_mean(name, [*EXPERIMENTS, 'all'])} "
                f"There are: {', '.join(EXPERIMENTS)}; or all."
            )
    return list(EXPERIMENTS.values()) if "all" in names else [EXPERIMENTS[name] for name in dict.fromkeys(names)]


def _pairs(option: str, texts: Sequence[str]) -> list[Pair]:
    for text in texts:
        if "=" not in text:
            raise InputError(f"{option} takes NAME=VALUE, as in {option} epochs=50; not {text!r}.")
    return [(name.strip(), value.strip()) for name, _, value in (text.partition("=") for text in texts)]


def _check_name(name: str, experiments: Sequence[Experiment], profile: str) -> None:
    known = {name for experiment in experiments for settings in experiment.protocols[profile].grid for name in settings}
    if name not in known:
        raise InputError(
            f"{_listed(experiments)} {'has' if len(experiments) == 1 else 'have'} no setting {name!r}."
            f"{did_you_mean(name, known)} There {'is' if len(known) == 1 else 'are'}: {', '.join(sorted(known))}."
        )


def _check_wanted(name: str, text: str, experiments: Sequence[Experiment], profile: str) -> None:
    here = [value for experiment in experiments for value in _values(experiment.protocols[profile].grid, name)]
    if not _meant(text, here):
        known = list(dict.fromkeys(map(str, here)))
        elsewhere = [
            other
            for experiment in experiments
            for other, protocol in experiment.protocols.items()
            if _meant(text, _values(protocol.grid, name))
        ]
        hint = f" --profile {elsewhere[0]} has them." if elsewhere else did_you_mean(text, known)
        raise InputError(
            f"No settings of {_listed(experiments)} have {name}={text}.{hint} {name} is: {', '.join(known)}."
        )


def _restricted(
    experiment: Experiment, profile: str, wanted: Sequence[Pair], values: Sequence[Pair], runs: int | None
) -> Protocol:
    protocol = experiment.protocols[profile]
    only: dict[str, list[Any]] = {name: [] for name, _ in wanted}
    for name, text in wanted:
        only[name] += _meant(text, _values(protocol.grid, name))
    other = {name: _like(name, text, _all_values(experiment, name)) for name, text in values}
    return protocol.restricted(only, other, runs)


def _values(grid: Sequence[Settings], name: str) -> list[Any]:
    """The values of a setting, in the order of the grid."""
    return list(dict.fromkeys(settings[name] for settings in grid if name in settings))


def _all_values(experiment: Experiment, name: str) -> list[Any]:
    return [value for protocol in experiment.protocols.values() for value in _values(protocol.grid, name)]


def _meant(text: str, values: Collection[Any]) -> list[Any]:
    """Those of the values that the text says: 0 says 0.0, and 1e-6 says 1e-06."""
    parsed = _parsed(text)
    return [value for value in values if text == str(value) or (type(parsed) is not str and parsed == value)]


def _parsed(text: str) -> Any:
    def no_number(text: str) -> Any:
        raise ValueError(text)

    try:
        return json.loads(text, parse_constant=no_number)
    except (ValueError, RecursionError):
        return text


def _like(name: str, text: str, values: Sequence[Any]) -> Any:
    """The value that the text says, if it is of the kind of the values that there are."""
    if not values:
        # Another experiment has the setting.
        return None
    parsed, kind = _parsed(text), type(values[0])
    if name not in FREE:
        if meant := _meant(text, values):
            return meant[0]
        raise InputError(
            f"--set {name}={text}: {name} is one of {', '.join(dict.fromkeys(map(str, values)))}; other values have no "
            f"place in the tables.{did_you_mean(text, map(str, values))}"
        )
    if kind is bool and isinstance(parsed, bool):
        return parsed
    if kind in (int, float) and type(parsed) in (int, float) and math.isfinite(parsed):
        # 50.0 says 50, and 1 says 1.0: the same run has the same name.
        number = kind(parsed)
        if number == parsed and number >= min(0.0 if kind is float else 1, *values):
            return number
    if kind is str and text in values:
        return text
    kinds: Mapping[type, str] = {
        bool: "true or false",
        int: "a whole number from 1",
        float: "a number from 0",
        str: f"one of {', '.join(dict.fromkeys(map(str, values)))}",
    }
    hint = did_you_mean(text, values) if kind is str else ""
    raise InputError(f"--set {name}={text}: {name} is {kinds[kind]}.{hint}")


def _listed(experiments: Sequence[Experiment]) -> str:
    return ", ".join(experiment.name for experiment in experiments)
