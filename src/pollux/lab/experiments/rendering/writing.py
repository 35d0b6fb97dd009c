"""An account and its figures as files, each whole or not at all."""

from __future__ import annotations

import dataclasses
import io
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from pollux.io.atomic import in_place, write_text
from pollux.lab.experiments.rendering.account import Account, Picture
from pollux.lab.experiments.rendering.markdown import markdown
from pollux.lab.experiments.rendering.page import page
from pollux.lab.experiments.rendering.terminal import show

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIGURES = "figures"
DOTS_PER_INCH = 150
WITHOUT_PICTURES = "figures need: pip install 'pollux[report]'"


def with_pictures(account: Account, folder: Path) -> Account:
    """Draw the figures of an account into the folder of its results; where they cannot be drawn, say why."""
    if account.experiment.figures is None or not account.records:
        return account
    try:
        figures = account.experiment.figures(account.records, folder)
    except ImportError:
        return dataclasses.replace(account, without_pictures=WITHOUT_PICTURES)
    except Exception as error:
        # A model file that cannot be read, or settings that no figure is made for, cost the figures, not the tables.
        told = f"no figures: {type(error).__name__}: {error}"
        return dataclasses.replace(account, without_pictures=told)
    pictures = [write_figure(figure, folder, f"{account.experiment.name}-{name}") for name, figure in figures.items()]
    return dataclasses.replace(account, pictures=pictures)


def write_figure(figure: Figure, folder: Path, name: str) -> Picture:
    """Write a figure as PNG and SVG; what it shows is its label."""
    from matplotlib import rc_context

    (folder / FIGURES).mkdir(parents=True, exist_ok=True)
    image = io.BytesIO()
    # The same figure is the same file: no dates, no random names.
    with rc_context({"svg.hashsalt": name}):
        figure.savefig(image, format="png", dpi=DOTS_PER_INCH, metadata={"Software": None})
        with in_place(folder / FIGURES / f"{name}.svg") as path:
            figure.savefig(path, format="svg", dpi=DOTS_PER_INCH, metadata={"Date": None})
    with in_place(folder / FIGURES / f"{name}.png") as path:
        path.write_bytes(image.getvalue())
    return Picture(name, str(figure.get_label()), image.getvalue(), f"{FIGURES}/{name}.png")


def write(account: Account, folder: Path) -> list[Path]:
    """Write the Markdown and the page; where they are."""
    name = account.experiment.name
    texts = {folder / f"{name}.md": markdown(account), folder / f"{name}.html": page(account)}
    for path, text in texts.items():
        write_text(path, text)
    return list(texts)


def publish(account: Account, folder: Path) -> None:
    """Write what there is, and print it."""
    written: list[Path] = []
    # Files first: they are there even if what the terminal is piped into stops reading.
    if account.records:
        account = with_pictures(account, folder)
        written = write(account, folder)
    show(account, Console(highlight=False))
    for path in written:
        print(f"written: {path}", file=sys.stderr)
