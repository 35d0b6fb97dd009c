"""The settings of ``pollux fit``, each declared once, for the command line, run.toml, the checks and the help."""

from __future__ import annotations

import argparse
import json
import math
import re
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from pollux import names, recipes
from pollux.errors import InputError, did_you_mean, option, unknown
from pollux.io.parsing import check_parameters
from pollux.recipes import PLAIN, RECIPES, TABLES

COLUMNS, READING, SCALING, TRAINING, OUTPUT = GROUPS = ("columns", "reading", "scaling", "training", "output")

SEED = 0
"""One of two defaults that differ from Python's, where random_state is None: a repeated command gives the same result.

The other is n_clusters, 10 in Python: a command selects the number.
"""

_WIDEST, _MOST_RESTARTS = 100_000, 1_000
# First lines of files of settings.
MADE_BY = "# Made by pollux"
"""First words of the settings of a run."""

STANDARD_INPUT = "-"
"""The name of data that are piped to a command."""

_MOST_BYTES = 2_000_000
_LONG_KEY = re.compile(r"""(?<![\w"'.-])(?:[\w"'-]+[ \t]*\.[ \t]*){30}""")


# Names behind which parameters may stand, as in rbf:gamma=0.5.
_WITH_PARAMETERS = ("model", "geometry")
# Integers are numbers of rows, floats are shares: 1 is one row, 1.0 is all of them.
_SIZES = ("min_size", "max_size")


@dataclass(frozen=True)
class Option:
    """How a setting is given, and its valid values; its type is that of its default."""

    group: str
    help: str
    metavar: str = ""
    """Its name in the help, if it is not that of the type."""
    choices: tuple[str, ...] = ()
    least: int | None = None
    most: int = 2**53
    none: Any = None
    """The value that stands for None, which TOML lacks."""
    auto: type | None = None
    """The type of a number that may also be "auto": int, or float for any number."""
    short: str = ""
    """A short name on the command line, which is also the key in run.toml files of older versions."""


def setting(default: Any, group: str, help: str, **how: Any) -> Any:
    """Declare a field of :class:`Settings`."""
    given: dict[str, Any] = {"default_factory": dict} if isinstance(default, Mapping) else {"default": default}
    return field(**given, metadata={"option": Option(group, help, **how)})


def _of(listed: Sequence[str]) -> str:
    return f"of {', '.join(listed)}"


_KERNELS = (*names.KERNELS, *names.KERNELS_OF_ALL_SAMPLES)
_DISTANCES = (*names.DISTANCES, *names.DISTANCES_OF_ALL_SAMPLES)


@dataclass(frozen=True)
class Settings:
    """A field for each option of ``pollux fit``, named as the parameter of Python, in the order of run.toml."""

    data: str = ""
    columns: tuple[str, ...] = setting((), COLUMNS, "use these columns only")
    use: tuple[str, ...] = setting((), COLUMNS, "use these columns, also where they seem to tell little")
    drop: tuple[str, ...] = setting((), COLUMNS, "leave these columns out")
    kinds: Mapping[str, str] = setting(
        {},
        COLUMNS,
        f"what columns are, one of {', '.join(names.KINDS)}: names of anything, measurements, points in time; or what "
        "tells rows apart, which is not used",
        metavar="KIND COLUMN",
        choices=names.KINDS,
        short="as",
    )
    label: str = setting("", COLUMNS, "known classes: never used for training, only to score it", metavar="COLUMN")
    known: str = setting(
        "",
        COLUMNS,
        "clusters that are known of some rows, empty where not: training keeps to them, and clusters are numbered in "
        "the order of these values (or by them, where they are numbers below --clusters)",
        metavar="COLUMN",
    )
    missing: str = setting(
        "mean",
        READING,
        "missing values: fill in the means (default), refuse them (error), or drop their rows",
        choices=names.MISSING_IN_FILES,
    )
    scaling: str = setting(
        "auto",
        SCALING,
        "numbers: all divided by one number where their ranges are alike, as those of pixels are, else each column "
        "standardised (default: auto); each standardised (standard), or all by one number (global), in any case; as "
        "they are (none)",
        choices=names.SCALINGS,
    )
    n_components: int | str = setting(
        "auto",
        SCALING,
        "principal components to keep; 0: all (default: auto, those of the recipe, or all)",
        least=0,
        none=0,
        auto=int,
        short="components",
    )
    na: tuple[str, ...] = setting((), READING, "what else stands for a missing value, such as ?", metavar="TEXT")
    delimiter: str = setting("", READING, "between values of a CSV file (default: guessed)", metavar="C")
    header: bool = setting(True, READING, "whether a CSV file begins with a line of names (default: yes)")
    encoding: str = setting("", READING, "of a text file (default: UTF-8, or cp1252 where it cannot be that)")
    sql: str = setting(
        "", READING, "read what this query gives, where DATA is a database of SQLite or DuckDB", metavar="QUERY"
    )
    array: str = setting("", READING, "which array of an .npz file, or sheet of a workbook, to cluster")
    image_size: int = setting(0, READING, "scale images to N × N", least=0, most=10_000)
    strict: bool = setting(False, READING, "stop at a picture that cannot be read, which is left out otherwise")
    n_clusters: int | str = setting(
        "auto",
        TRAINING,
        "most clusters to find (default: auto, as many as a quick pollux select finds)",
        least=1,
        auto=int,
        short="clusters",
    )
    objective: str = setting(
        "auto",
        TRAINING,
        f"what is maximised; {_of(names.OBJECTIVES)} (plain: mmd_ova)",
        metavar="NAME",
        choices=("auto", *names.OBJECTIVES),
    )
    geometry: str = setting(
        "auto",
        TRAINING,
        f"kernel (mmd: {', '.join(_KERNELS)}) or distance (wasserstein: {', '.join(_DISTANCES)}), "
        "with parameters as in rbf:gamma=0.5 or graph:neighbours=20 (plain: linear or euclidean)",
        metavar="NAME",
        choices=("auto", *dict.fromkeys((*_KERNELS, *_DISTANCES))),
    )
    model: str = setting(
        "auto",
        TRAINING,
        f"{_of(names.MODELS)}, with parameters as in kernel:landmarks=200 or resnet18:stem=imagenet (plain: mlp)",
        metavar="NAME",
        choices=("auto", *names.MODELS),
    )
    hidden: tuple[int, ...] | str = setting(
        (),
        TRAINING,
        "hidden layers of the mlp; auto: those for images, 200,200 or 500,500 by their number (plain: 100)",
        metavar="N,N",
        least=1,
        most=_WIDEST,
    )
    activation: str = setting(
        "auto", TRAINING, "of the hidden layers of the mlp (plain: relu)", choices=("auto", *names.ACTIVATIONS)
    )
    norm: str = setting(
        "auto", TRAINING, "of the hidden layers of the mlp (plain: none)", choices=("auto", *names.NORMS), none="none"
    )
    init: str = setting(
        "auto",
        TRAINING,
        "where models start: at random, or at the clusters that k-means finds, in the features of the geometry or in "
        "those of a neighbour graph; kmeans++: a free table at such seeds (plain: at random, a free table at seeds)",
        choices=names.INITS,
    )
    max_epochs: int | str = setting(
        "auto",
        TRAINING,
        "passes over the data (default: auto, those of about 200 steps, and at least 15)",
        least=1,
        auto=int,
        short="epochs",
    )
    batch_size: int | str = setting("auto", TRAINING, "rows of a step", least=2, auto=int)
    reshuffle_every: int | str = setting(
        "auto", TRAINING, "epochs for which batches keep their rows", least=1, auto=int
    )
    optimiser: str = setting("adam", TRAINING, "the optimiser", choices=names.OPTIMISERS)
    learning_rate: float | str = setting("auto", TRAINING, "the learning rate (plain: 0.01)", auto=float)
    schedule: str = setting(
        "auto",
        TRAINING,
        "whether the learning rate stays (plain), or falls to zero",
        choices=("auto", *names.SCHEDULES),
    )
    n_init: int | str = setting(
        "auto",
        TRAINING,
        "restarts, of which the best is kept (default: auto, those of the recipe; else 5, or 1 for more than 10,000 "
        "rows, lenet5 and resnet18)",
        least=1,
        most=_MOST_RESTARTS,
        auto=int,
        short="restarts",
    )
    trial_epochs: float | str = setting(
        "auto",
        TRAINING,
        "after N epochs, or a share of them such as 0.25, the best two restarts alone go on (plain: 0, all do)",
        least=0,
        none=0,
        auto=float,
    )
    max_samples: int | str = setting(
        "auto",
        TRAINING,
        "learn from at most N rows, drawn at random, and label all (plain: 0, learn from all)",
        least=0,
        none=0,
        auto=int,
    )
    tol: float = setting(1e-4, TRAINING, "relative rise of the objective that counts, for --patience", least=0)
    patience: int = setting(0, TRAINING, "stop after N epochs without a rise (default: 0, never)", least=0, none=0)
    penalties: Mapping[str, float] = setting(
        {}, TRAINING, f"added to the loss; {_of(names.PENALTIES)} (plain: none)", metavar="NAME=X", short="penalty"
    )
    must_link: str = setting(
        "",
        TRAINING,
        "pairs of rows of one cluster: a CSV file with two row numbers, from 0, in each line",
        metavar="FILE",
    )
    cannot_link: str = setting("", TRAINING, "pairs of rows of different clusters, likewise", metavar="FILE")
    hint_weight: float = setting(10.0, TRAINING, "how much --known and linked rows count beside the objective", least=0)
    min_size: float = setting(
        0.0, TRAINING, "rows that each cluster has at least: a number, or a share such as 0.05 (default: 0)", least=0
    )
    max_size: float = setting(
        0.0, TRAINING, "rows that each cluster has at most: a number, or a share such as 0.5 (default: 0, all)", least=0
    )
    random_state: int = setting(SEED, TRAINING, "seed of all randomness", least=0, short="seed")
    device: str = setting("cpu", TRAINING, "cpu or cuda")
    dtype: str = setting(
        "auto",
        TRAINING,
        "arithmetic; auto: float32, that of encoded columns; bfloat16 for matrix products only",
        choices=names.DTYPES,
    )
    compile: bool = setting(False, TRAINING, "let torch compile the model: for large ones")
    threads: int = setting(0, TRAINING, "most threads of the training (default: 0, one a core)", least=0, most=10_000)
    stream: str = setting(
        "auto",
        READING,
        "read rows as they are needed, and never hold all in memory: tables and .npy files (default: auto, where "
        "they would take more than 1 GB)",
        choices=("auto", "yes", "no"),
    )
    checkpoint_every: str = setting(
        "60 s",
        OUTPUT,
        "how often all that the training needs to go on is written: 5 minutes, 1 epoch, 100 steps",
        metavar="T",
    )
    outliers: float = setting(
        0.0,
        OUTPUT,
        "flag rows that fit in nowhere, the share X of them such as 0.02, in a column outlier (default: 0, no column)",
        least=0,
    )
    assess: bool = setting(
        False,
        OUTPUT,
        "fit twenty samples of the rows too: a column confidence says how often they agree on each row, and the "
        "confidence of a cluster is its mean, not the mean probability",
    )
    temperature: bool = setting(
        False,
        OUTPUT,
        "with --assess, scale probabilities so that the highest of a row is on average what the confidence is",
    )
    with_data: bool = setting(
        False, OUTPUT, "write the columns of DATA, and the names of clusters, beside the cluster of each row"
    )
    raw: bool = setting(
        False, OUTPUT, "write texts of CSV files as they are, also those that a spreadsheet would run as formulas"
    )

    def __post_init__(self) -> None:
        for name, default in DEFAULTS.items():
            object.__setattr__(self, name, _checked(name, getattr(self, name), default))
        # Surrogates cannot be encoded as UTF-8.
        if any(character == "\0" or "\ud800" <= character <= "\udfff" for character in self.data):
            raise InputError(f"{self.data!r} cannot be the name of a file here: rename it.")
        if self.delimiter == r"\t":
            object.__setattr__(self, "delimiter", "\t")
        if len(self.delimiter) > 1 or not self.delimiter.isascii() or self.delimiter in ("\r", "\n", '"'):
            raise InputError(f"The delimiter is one plain character such as ; or |, not {self.delimiter!r}.")
        if isinstance(self.learning_rate, float) and not 0 < self.learning_rate < math.inf:
            raise _refusal("learning_rate", f"must be a positive number, not {self.learning_rate}.")
        if self.checkpoint_every != DEFAULTS["checkpoint_every"]:
            # Imported late, because it imports torch.
            from pollux.training.checkpoints import parse_every

            parse_every(self.checkpoint_every)
        if not self.outliers < 1:
            raise _refusal("outliers", f"is a share of the rows, such as 0.02; not {self.outliers}.")
        if self.temperature and not self.assess:
            raise _refusal("temperature", f"takes what {option('assess').removesuffix('=')} finds: give both.")
        epochs, trial = self.max_epochs, self.trial_epochs
        if isinstance(trial, float) and not 0 < trial < 1:
            raise _refusal("trial_epochs", f"is a number of epochs, or a share such as 0.25; not {trial}.")
        if isinstance(epochs, int) and isinstance(trial, int) and trial >= epochs:
            raise InputError(
                f"Of {epochs} epochs, the first {trial} would be for all restarts ({option('trial_epochs')}) and "
                "none for the best of them: ask for fewer of those, 0 for none, or more epochs."
            )

    def parameter(self, name: str) -> Any:
        """A setting as a parameter of Python."""
        value = getattr(self, name)
        if name == "penalties" and not value:
            return "auto"
        return None if OPTIONS[name].none is not None and value == OPTIONS[name].none else value

    @property
    def recipe(self) -> str | None:
        """The recipe that the settings use; None if the method is set explicitly."""
        found = (name for name in RECIPES if all(getattr(self, key) == getattr(PRESETS[name], key) for key in METHOD))
        return next(found, None)

    def with_recipe(self, recipe: str) -> Settings:
        """Settings with "auto" replaced: by the recipe, or by plain defaults if the method is set explicitly.

        Settings about columns are resolved already.
        """
        is_composed = any(getattr(self, name) != DEFAULTS[name] for name in METHOD)
        values = _flat(PLAIN if is_composed else PLAIN | RECIPES[recipe])
        values = {name: value for name, value in values.items() if name not in ("scaling", "missing")}
        return replace(self, **{name: value for name, value in values.items() if getattr(self, name) == DEFAULTS[name]})

    def is_same_run(self, stored: Settings) -> bool:
        """Whether a run with these settings may have stored those, in which "auto" is replaced."""
        return all(
            getattr(self, name) == getattr(stored, name) or (name in _LEFT_TO_US and getattr(self, name) == default)
            for name, default in DEFAULTS.items()
        )

    def changed(self) -> dict[str, Any]:
        """The settings that differ from those of the recipe, or from the defaults, without the data."""
        values = {name: getattr(self, name) for name in NAMES if name != "data"}
        if (recipe := self.recipe) is not None:
            return {name: value for name, value in values.items() if value != getattr(PRESETS[recipe], name)}
        plain = DEFAULTS | (_flat(PLAIN) if values["objective"] != "auto" else {})
        changed = {name: value for name, value in values.items() if value not in (DEFAULTS[name], plain[name])}
        # If no part of the method were named, a recipe would be used.
        is_bare = all(values[name] == DEFAULTS[name] for name in METHOD)
        return changed if is_bare or not changed.keys().isdisjoint(METHOD) else {"objective": self.objective, **changed}

    def command(self) -> str:
        """The command that repeats the run."""
        # Put data whose name begins with a dash last, so that it is not read as an option.
        is_last = self.data.startswith("-") and self.data != STANDARD_INPUT
        words = ["pollux", "fit", *([] if is_last else [self.data])]
        words += [] if self.recipe is None else ["--preset", self.recipe]
        for name, value in self.changed().items():
            spelled = f"--{name.replace('_', '-')}"
            if isinstance(value, bool):
                words.append(spelled if value else f"--no-{name}")
                continue
            if name == "kinds":
                words += [word for column, kind in value.items() for word in (spelled, kind, column)]
                continue
            if name == "hidden" and value != "auto":
                value = ",".join(map(str, value))
            elif isinstance(value, Mapping):
                value = [f"{key}={weight}" for key, weight in value.items()]
            for item in map(str, value if isinstance(value, list | tuple) else [value]):
                words += [f"{spelled}={item}"] if item.startswith("-") else [spelled, item]
        return shlex.join([*words, *(["--", self.data] if is_last else [])])

    def to_toml(self) -> str:
        """A TOML file for ``pollux fit --config``."""
        return "".join(f"{name} = {_as_toml(value)}\n" for name, value in asdict(self).items())


OPTIONS: dict[str, Option] = {field.name: field.metadata["option"] for field in fields(Settings) if field.metadata}
DEFAULTS: dict[str, Any] = {
    field.name: {} if field.name in ("penalties", "kinds") else field.default for field in fields(Settings)
}
NAMES = tuple(DEFAULTS)
METHOD = (*recipes.METHOD, "hidden", "activation", "norm")
"""If one of these is given, no recipe is used."""


def _flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters of Python as settings."""
    flat = {name.rpartition("__")[2]: value for name, value in values.items()}
    flat["penalties"] = flat["penalties"] or {}
    return {name: OPTIONS[name].none if value is None else value for name, value in flat.items()}


_LEFT_TO_US = {"n_clusters", *_flat(PLAIN | TABLES)}
OLD_KEYS = {option.short: name for name, option in OPTIONS.items() if option.short}
"""Keys in run.toml files of older versions, and their names now."""


def _as_toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_as_toml(key)} = {_as_toml(item)}" for key, item in value.items()) + "}"
    # JSON of these values is valid TOML, except for one character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def add_text_options(group: Any) -> None:
    """Add the options of commands that embed the texts of a table themselves."""
    group.add_argument(
        "--text",
        metavar="COLUMN",
        help="cluster by vectors of the texts of this column, as pollux embed makes them (default: a column of "
        "sentences, where there are but three others of few values or of dates)",
    )
    group.add_argument("--encoder", help="of texts: wordllama, minilm, a folder (see pollux embed)")


def add_options(parser: argparse.ArgumentParser, *groups: str) -> dict[str, Any]:
    """Add the options of these groups; returns the argument groups, so that more can be added to them."""
    found = {group: parser.add_argument_group(group) for group in groups}
    for name, each in OPTIONS.items():
        if each.group not in groups:
            continue
        default, text = DEFAULTS[name], each.help
        if not ("(default" in text or "(plain" in text or isinstance(default, bool) or default in ("", (), {}, 0)):
            text += f" (default: {default})"
        how: dict[str, Any] = {"dest": name, "help": text.replace("%", "%%")}
        if isinstance(default, bool):
            how["action"] = argparse.BooleanOptionalAction
        elif name == "kinds":
            how |= {"nargs": 2, "action": "append", "metavar": tuple(each.metavar.split())}
        elif each.choices and not each.metavar:
            how["choices"] = each.choices
        else:
            kind = each.auto or type(default)
            how["metavar"] = each.metavar or {str: "NAME", float: "X", tuple: "A,B"}.get(kind, "N")
            if isinstance(default, tuple | dict) and name != "hidden":
                how["action"] = "append"
            elif name == "hidden":
                how["type"] = _widths
            else:
                parsers: dict[type | None, Any] = {int: _count_or_auto, float: _number_or_auto, None: type(default)}
                how["type"] = _count_or_share if name in _SIZES else parsers[each.auto]
        spellings = [f"--{name.replace('_', '-')}", *([f"--{each.short}"] if each.short else [])]
        found[each.group].add_argument(*spellings, **how)
    return found


def _count_or_auto(text: str) -> int | str:
    if text != "auto" and not text.isdigit():
        raise argparse.ArgumentTypeError(f"a whole number, not negative, or auto; not {text!r}")
    return text if text == "auto" else int(text)


def _number_or_auto(text: str) -> float | str:
    try:
        return text if text == "auto" else int(text) if text.isdigit() else float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"a number or auto, not {text!r}") from None


def _count_or_share(text: str) -> float:
    try:
        return int(text) if text.isdigit() else float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"a number of rows or a share, not {text!r}") from None


def _widths(text: str) -> list[int] | str:
    try:
        return text if text == "auto" else [int(part) for part in text.split(",")]
    except ValueError:
        raise argparse.ArgumentTypeError(f"whole numbers such as 200,100, or auto; not {text!r}") from None


def resolve_data(data: str) -> str:
    """The path of the data, absolute, so that it does not depend on the working directory."""
    try:
        return data if data == STANDARD_INPUT else str(Path(data).resolve())
    except (RuntimeError, OSError) as error:
        raise InputError(f"{data} cannot be opened: {error}") from error


def resolve_settings(given: Mapping[str, Any]) -> Settings:
    """The settings that were given; if a "preset" is among them, the others come from its recipe."""
    own = {name: value for name, value in given.items() if name != "preset"}
    if "preset" not in given:
        return Settings(**own)
    preset = given["preset"]
    if not isinstance(preset, str) or preset not in RECIPES:
        raise InputError(f"{option('preset')} is one of {', '.join(RECIPES)}; not {preset!r}.")
    recipe = _flat(PLAIN | RECIPES[preset])
    # The recipe's kernel does not apply to objectives with a distance, or without a geometry.
    if not str(given.get("objective", recipe["objective"])).startswith("mmd"):
        recipe.pop("geometry", None)
    return Settings(**{**recipe, **own})


def from_toml(path: str | Path, over: Mapping[str, Any]) -> Settings:
    """The settings in a TOML file, overridden by ``over``, and based on a preset if one is named."""
    path = Path(path)
    if not path.exists():
        raise InputError(f"There is no file {path} ({option('config')}).")
    try:
        with path.open("rb") as file:
            text = file.read(_MOST_BYTES + 1).decode()
        if len(text) > _MOST_BYTES:
            raise ValueError(f"it has more than {_MOST_BYTES:,} characters.")
        if _LONG_KEY.search(text):
            # Parsing such keys takes quadratic time.
            raise ValueError("a key has too many parts.")
        values = tomllib.loads(text)
    except (ValueError, RecursionError, OSError) as error:
        raise InputError(f"{path} is not a TOML file of settings: {error}") from error
    for name in OLD_KEYS.keys() & values.keys():
        if OLD_KEYS[name] in values:
            raise InputError(f"{path} has {OLD_KEYS[name]} and {name}, which are one setting: leave one of them out.")
    values = {OLD_KEYS.get(name, name): value for name, value in values.items()}
    if text.startswith(MADE_BY) and values.get("trial_epochs") == "auto":
        # Runs store all settings that were "auto"; older versions stored this for a quarter.
        values["trial_epochs"] = 0.25
    for key, kind in (("categories", "text"), ("id", "id")):
        # The format of older versions.
        named = values.pop(key, ())
        if named and isinstance(named, list | str):
            own = values.get("kinds", {})
            pairs = dict.fromkeys([named] if isinstance(named, str) else map(str, named), kind)
            values["kinds"] = {**own, **pairs} if isinstance(own, Mapping) else own
    known = (*NAMES, "preset")
    unknown = [name for name in values if name not in known]
    if unknown:
        raise InputError(f"{path} has settings that are not known: {', '.join(unknown)}. Known are {', '.join(known)}.")
    if isinstance(values.get("data"), str) and values["data"] != STANDARD_INPUT:
        # Relative to the file, as usual in such files, whatever the working directory. Absolute paths stay so.
        values["data"] = str(path.parent / values["data"])
    return resolve_settings({**values, **over})


def _checked(name: str, value: Any, default: Any) -> Any:
    """The value in the type of its default, or an InputError that names the setting."""
    how = OPTIONS.get(name, Option("", ""))
    if how.auto:
        if value != "auto" and type(value) not in (int, how.auto):
            wanted = "a whole number" if how.auto is int else "a number"
            raise _refusal(name, f"is {wanted} or 'auto', not {value!r}.")
        if name == "learning_rate" and type(value) is int and value <= how.most:
            value = float(value)
    elif name == "kinds":
        return _kinds(value)
    elif isinstance(default, dict):
        return _weights(value)
    elif isinstance(default, tuple) and (name, value) != ("hidden", "auto"):
        kind, wanted = (int, "whole numbers") if name == "hidden" else (str, "names")
        items = [value] if isinstance(value, str) else value
        if not isinstance(items, Sequence) or not all(type(item) is kind for item in items):
            raise _refusal(name, f"is a list of {wanted}, not {value!r}.")
        value = tuple(items)
    elif name != "hidden" and not (name in _SIZES and type(value) is int):
        if isinstance(default, float) and type(value) is int and abs(value) <= how.most:
            value = float(value)
        if type(value) is not type(default):
            expected = {str: "text", int: "a whole number", float: "a number", bool: "true or false"}[type(default)]
            raise _refusal(name, f"is {expected}, not {value!r}.")
    # chi2_ovo is refused elsewhere, with its reason.
    chosen = value.partition(":")[0] if name in _WITH_PARAMETERS else value
    if how.choices and chosen not in how.choices and (name, value) != ("objective", "chi2_ovo"):
        alike = did_you_mean(chosen, how.choices)
        raise _refusal(name, f"is one of {', '.join(how.choices)}; not {value!r}.{alike}")
    if name in _WITH_PARAMETERS:
        check_parameters(name, value)
    for number in value if isinstance(value, tuple) else (value,):
        if how.least is not None and number != "auto" and not number >= how.least:
            raise _refusal(name, f"must be at least {how.least}, not {number}.")
        if isinstance(number, int) and number > how.most:
            raise _refusal(name, f"can be at most {how.most:,}, not {number:,}.")
    return value


def _kinds(given: Any) -> dict[str, str]:
    """{"zip": "text"} from itself, or from a list of pairs ("text", "zip")."""
    if isinstance(given, Mapping):
        given = [(kind, name) for name, kind in given.items()]
    if not isinstance(given, Sequence) or not all(isinstance(each, Sequence) and len(each) == 2 for each in given):
        raise _refusal("kinds", f'gives columns their kinds, such as {{zip = "text"}}; not {given!r}.')
    pairs = [tuple(each) for each in given]
    for kind, name in pairs:
        if kind not in names.KINDS or not isinstance(name, str):
            alike = did_you_mean(str(kind), names.KINDS)
            raise _refusal("kinds", f"is one of {', '.join(names.KINDS)}, not {kind!r}.{alike}")
    return {name: kind for kind, name in pairs}


def _weights(penalties: Any) -> dict[str, float]:
    """{"vat": 1.0} from itself, or from a list of "vat=1.0" or "vat"."""
    given = {}
    if not isinstance(penalties, Mapping | Sequence):
        raise _refusal("penalties", f"gives penalties their weights, such as vat=1.0; not {penalties!r}.")
    named = penalties if isinstance(penalties, Mapping) else dict(str(item).partition("=")[::2] for item in penalties)
    for name, weight in named.items():
        if isinstance(weight, bool):
            raise InputError(f"The weight of penalty {name!r} must be a number of at least 0, not {weight}.")
        if name not in names.PENALTIES:
            raise InputError(unknown("penalty", name, names.PENALTIES))
        try:
            given[str(name)] = 1.0 if weight == "" else float(weight)
        except (TypeError, ValueError) as error:
            raise InputError(f"A penalty is a name and a weight, such as vat=1.0; not {name}={weight}.") from error
        if not 0 <= given[name] < math.inf:
            raise InputError(f"The weight of penalty {name!r} must be a number of at least 0, not {weight}.")
    return given


def _refusal(name: str, why: str) -> InputError:
    """An error that begins with the option in the reader's words; on the command line with its short name."""
    how = OPTIONS.get(name)
    spelled = option(name).removesuffix("=")
    if how and how.short and spelled.startswith("--"):
        spelled += f"/--{how.short}"
    return InputError(f"{spelled} {why}")


PRESETS = {name: resolve_settings({"preset": name}) for name in RECIPES}
"""The settings of each recipe."""
