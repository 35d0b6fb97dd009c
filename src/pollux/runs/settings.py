"""The settings of a run: what ``pollux fit`` can be told, on the command line or in a TOML file."""

from __future__ import annotations

import json
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from pollux.errors import InputError
from pollux.files import Reading
from pollux.intervals import parse_every
from pollux.preprocessing import MISSING, Choices


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
    epochs: int = 200
    batch_size: int | str = "auto"
    learning_rate: float = 0.01
    restarts: int | str = "auto"
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
        if self.missing not in MISSING:
            raise InputError(f"missing is one of {', '.join(MISSING)}; not {self.missing!r}.")
        if self.delimiter == r"\t":
            object.__setattr__(self, "delimiter", "\t")
        if len(self.delimiter) > 1 or not self.delimiter.isascii() or self.delimiter in ("\r", "\n", '"'):
            raise InputError(f"The delimiter is one plain character such as ; or |, not {self.delimiter!r}.")
        if not all(1 <= width <= _WIDEST for width in self.hidden):
            raise InputError(f"hidden layers have 1 to {_WIDEST:,} units, not {', '.join(map(str, self.hidden))}.")
        if self.restarts != "auto" and int(self.restarts) > _MOST_STARTS:
            raise InputError(f"restarts can be at most {_MOST_STARTS:,}, not {self.restarts:,}.")
        parse_every(self.checkpoint_every)
        if self.stream not in STREAM:
            raise InputError(f"stream is one of {', '.join(STREAM)}; not {self.stream!r}.")
        for name in ("clusters", "epochs", "restarts", "batch_size"):
            value = getattr(self, name)
            if value != "auto" and value < 1:
                raise InputError(f"{name} must be at least 1, not {value}.")
        for name in ("patience", "image_size", "seed", "threads"):
            if getattr(self, name) < 0:
                raise InputError(f"{name} must be at least 0, not {getattr(self, name)}.")

    @property
    def choices(self) -> Choices:
        return Choices(self.columns, self.drop, self.categories, self.id, self.label or None, self.missing)

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

_FEW_ROWS = 10_000
_WIDEST, _MOST_STARTS = 100_000, 1_000
_COUNTED_UNLESS_AUTO = ("batch_size", "restarts")
NAMES = tuple(field.name for field in fields(Settings))


def from_toml(path: str | Path, over: Mapping[str, Any]) -> Settings:
    """The settings in a TOML file, with those of ``over`` in their place."""
    path = Path(path)
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise InputError(f"There is no file {path} (--config).") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise InputError(f"{path} is not a TOML file: {error}") from error
    unknown = [name for name in values if name not in NAMES]
    if unknown:
        raise InputError(f"{path} has settings that are not known: {', '.join(unknown)}. Known are {', '.join(NAMES)}.")
    if isinstance(values.get("data"), str) and not Path(values["data"]).is_absolute():
        # As everywhere in such files: beside the file, wherever the command is given.
        values["data"] = str(path.parent / values["data"])
    return Settings(**{**values, **over})


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
    if default == "auto" and name in _COUNTED_UNLESS_AUTO:
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
