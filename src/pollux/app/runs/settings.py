"""The settings of a run: what ``pollux fit`` can be told, on the command line or in a TOML file."""

from __future__ import annotations

import json
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from pollux.data.columns import Choices
from pollux.data.sources import Reading
from pollux.errors import InputError
from pollux.names import INITS, MISSING_IN_FILES, NORMS, SCALINGS, SCHEDULES
from pollux.recipes import IMAGES, TABLES
from pollux.training.intervals import parse_every


@dataclass(frozen=True)
class Settings:
    """A field for each option of ``pollux fit``; the order is that of ``run.toml``."""

    data: str = ""
    columns: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    id: tuple[str, ...] = ()
    label: str = ""
    missing: str = "error"
    scaling: str = "standard"
    components: int = 0
    na: tuple[str, ...] = ()
    delimiter: str = ""
    header: bool = True
    array: str = ""
    image_size: int = 0
    clusters: int = 10
    objective: str = "mmd_ova"
    geometry: str = "auto"
    model: str = "mlp"
    hidden: tuple[int, ...] = (100,)
    norm: str = "none"
    init: str = "auto"
    epochs: int | str = 200
    batch_size: int | str = "auto"
    learning_rate: float = 0.01
    schedule: str = "constant"
    restarts: int | str = "auto"
    trial_epochs: int | str = 0
    patience: int = 0
    penalty: tuple[str, ...] = ()
    seed: int = 0
    device: str = "cpu"
    dtype: str = "float32"
    compile: bool = False
    threads: int = 0
    stream: str = "auto"
    checkpoint_every: str = "60 s"

    def __post_init__(self) -> None:
        for field in fields(self):
            object.__setattr__(self, field.name, _checked(field.name, getattr(self, field.name), field.default))
        if "\0" in self.data or not _is_text(self.data):
            raise InputError(f"{self.data!r} cannot be the name of a file here: rename it.")
        for name, valid in _CHOICES.items():
            if getattr(self, name) not in valid:
                raise InputError(f"{name} is one of {', '.join(valid)}; not {getattr(self, name)!r}.")
        if self.delimiter == r"\t":
            object.__setattr__(self, "delimiter", "\t")
        if len(self.delimiter) > 1 or not self.delimiter.isascii() or self.delimiter in ("\r", "\n", '"'):
            raise InputError(f"The delimiter is one plain character such as ; or |, not {self.delimiter!r}.")
        if not all(1 <= width <= _WIDEST for width in self.hidden):
            raise InputError(f"hidden layers have 1 to {_WIDEST:,} units, not {', '.join(map(str, self.hidden))}.")
        if self.restarts != "auto" and int(self.restarts) > _MOST_STARTS:
            raise InputError(f"restarts can be at most {_MOST_STARTS:,}, not {self.restarts:,}.")
        parse_every(self.checkpoint_every)
        for name in ("clusters", "epochs", "restarts", "batch_size"):
            value = getattr(self, name)
            if value != "auto" and value < 1:
                raise InputError(f"{name} must be at least 1, not {value}.")
        for name in ("patience", "image_size", "seed", "threads", "components", "trial_epochs"):
            value = getattr(self, name)
            if value != "auto" and value < 0:
                raise InputError(f"{name} must be at least 0, not {value}.")
        epochs, trial = self.epochs, self.trial_epochs
        if isinstance(epochs, int) and isinstance(trial, int) and trial >= epochs:
            raise InputError(
                f"Of {epochs} epochs, the first {trial} would be for all starts (--trial-epochs) and "
                "none for the best of them: ask for fewer of those, 0 for none, or more epochs."
            )

    @property
    def choices(self) -> Choices:
        names = (self.columns, self.drop, self.categories, self.id, self.label or None)
        return Choices(*names, self.missing, self.scaling)

    @property
    def reading(self) -> Reading:
        return Reading(self.delimiter or None, self.header, self.na, self.array or None, self.image_size or None)

    def starts(self, n: int) -> int:
        """How many starts for n rows: five where they take little, else one."""
        if isinstance(self.restarts, int):
            return self.restarts
        return 5 if n <= _FEW_ROWS and self.model in ("free", "linear", "mlp") else 1

    def changed(self) -> dict[str, Any]:
        """What differs from the defaults, but for the data."""
        return {
            field.name: getattr(self, field.name)
            for field in fields(self)
            if field.name != "data" and getattr(self, field.name) != field.default
        }

    def command(self) -> str:
        """The command that repeats the run."""
        # What begins with a dash would be read as an option.
        words = ["pollux", "fit", *([] if self.data.startswith("-") else [self.data])]
        for name, value in self.changed().items():
            option = f"--{name.replace('_', '-')}"
            if name == "header":
                words.append("--no-header")
            elif name == "compile":
                words.append("--compile")
            elif name == "hidden":
                words += [option, ",".join(map(str, value))]
            else:
                for item in value if isinstance(value, tuple) else [value]:
                    words += [f"{option}={item}"] if str(item).startswith("-") else [option, str(item)]
        return shlex.join([*words, *(["--", self.data] if self.data.startswith("-") else [])])

    def to_toml(self) -> str:
        """A file for ``pollux fit --config``."""
        # What JSON writes of these values is TOML too, but for one character.
        lines = [f"{name} = {json.dumps(value, ensure_ascii=False)}\n" for name, value in asdict(self).items()]
        return "".join(lines).replace("\x7f", "\\u007f")


STREAM = ("auto", "yes", "no")
"""Whether rows are read as they are needed; "auto" where they would take much memory."""
PRESETS = {"tables": TABLES, "images": IMAGES}
"""Recipes for kinds of data, as parameters of an estimator."""

_CHOICES: dict[str, tuple[str, ...]] = {
    "missing": MISSING_IN_FILES,
    "scaling": SCALINGS,
    "norm": NORMS,
    "init": INITS,
    "schedule": SCHEDULES,
    "stream": STREAM,
}
# Settings that are called otherwise than parameters of an estimator.
_CALLED = {"max_epochs": "epochs", "n_init": "restarts", "n_components": "components", "penalties": "penalty"}
_FEW_ROWS = 10_000
_WIDEST, _MOST_STARTS = 100_000, 1_000
_COUNTED_UNLESS_AUTO = ("batch_size", "restarts", "epochs", "trial_epochs")
NAMES = tuple(field.name for field in fields(Settings))


def settled(said: Mapping[str, Any]) -> Settings:
    """The settings that were said; where a "preset" is among them, the others come from its recipe."""
    own = {name: value for name, value in said.items() if name != "preset"}
    return Settings(**{**(_of_preset(said["preset"], own) if "preset" in said else {}), **own})


def _of_preset(name: Any, said: Mapping[str, Any]) -> dict[str, Any]:
    """The recipe of a preset as settings, to be used beside those that were said."""
    if not isinstance(name, str) or name not in PRESETS:
        raise InputError(f"preset is one of {', '.join(PRESETS)}; not {name!r}.")
    own_names = {key.rpartition("__")[2]: value for key, value in PRESETS[name].items() if value is not None}
    recipe = {_CALLED.get(key, key): value for key, value in own_names.items()}
    if "penalty" in recipe:
        recipe["penalty"] = [f"{penalty}={weight}" for penalty, weight in recipe["penalty"].items()]
    # Its kernel is of no use to an objective that compares by distances, or predictions only.
    if not str(said.get("objective", recipe["objective"])).startswith("mmd"):
        recipe.pop("geometry", None)
    return recipe


def from_toml(path: str | Path, over: Mapping[str, Any]) -> Settings:
    """The settings in a TOML file, with those of ``over`` in their place, and a preset's below both."""
    path = Path(path)
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError(f"There is no file {path} (--config).") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise InputError(f"{path} is not a TOML file: {error}") from error
    known = (*NAMES, "preset")
    unknown = [name for name in values if name not in known]
    if unknown:
        raise InputError(f"{path} has settings that are not known: {', '.join(unknown)}. Known are {', '.join(known)}.")
    if isinstance(values.get("data"), str) and not Path(values["data"]).is_absolute():
        # As everywhere in such files: beside the file, wherever the command is given.
        values["data"] = str(path.parent / values["data"])
    return settled({**values, **over})


def _is_text(name: str) -> bool:
    """Whether a name can be written in UTF-8."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def with_path(settings: Settings) -> Settings:
    """The settings with the place of the data spelt out."""
    return replace(settings, data=str(Path(settings.data).resolve()))


def _checked(name: str, value: Any, default: Any) -> Any:
    """The value in the type of its default, or an error that names the setting."""
    if name in _COUNTED_UNLESS_AUTO:
        if value != "auto" and type(value) is not int:
            raise InputError(f"{name} is a whole number or 'auto', not {value!r}.")
        return value
    if isinstance(default, tuple):
        items = [value] if isinstance(value, str) else value
        kind = int if name == "hidden" else str
        if not isinstance(items, Sequence) or not all(type(item) is kind for item in items):
            raise InputError(f"{name} is a list of {'whole numbers' if kind is int else 'names'}, not {value!r}.")
        return tuple(items)
    if isinstance(default, float) and type(value) is int:
        value = float(value)
    if type(value) is not type(default):
        expected = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}[type(default)]
        raise InputError(f"{name} is {expected}, not {value!r}.")
    return value
