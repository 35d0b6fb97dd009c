"""Model selection on MNIST: 50 clusters asked for, how many are used, and how well."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pollux.lab.charts import family_colour, mark_not_run, set_grid, set_title
from pollux.lab.grid import RunContext
from pollux.lab.paper.comparisons import Comparison, ComparisonRow, ComparisonTable, Estimate, estimate
from pollux.lab.paper.experiment import OBJECTIVES, Experiment, Protocol
from pollux.lab.paper.mnist import MODEL_NAMES
from pollux.lab.paper.mnist import measure as measure_mnist
from pollux.lab.records import Record, Settings
from pollux.report.canvas import INK, QUIET, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CHOSEN = ("kl_ova", "mmd_ova")
ASKED = 50
# What the text says of the clusters that the MMD converges to; of the MI it only says that they are fewer.
PUBLISHED_CLUSTERS = {("mmd_ova", "mlp"): 30, ("mmd_ova", "lenet5"): 25}


def measure(settings: Settings, seed: int, context: RunContext) -> Mapping[str, Any]:
    """As on MNIST, with more clusters than anyone needs."""
    return measure_mnist({**settings, "clusters": ASKED, "vat": 0.0}, seed, context)


def grid(epochs: int, models: Sequence[str]) -> Iterator[Settings]:
    """The MI and the MMD on both architectures."""
    for objective in CHOSEN:
        yield from ({"model": model, "objective": objective, "epochs": epochs} for model in models)


def tables(records: Sequence[Record]) -> list[ComparisonTable]:
    """The paper has a figure: what it shows, in numbers."""
    rows = []
    for objective in CHOSEN:
        for model, name in MODEL_NAMES.items():
            wanted = {"objective": objective, "model": model}
            published = PUBLISHED_CLUSTERS.get((objective, model))
            cells = [
                Comparison(None if published is None else Estimate(published), estimate(records, wanted, "clusters")),
                Comparison(None, estimate(records, wanted)),
            ]
            rows.append(ComparisonRow(f"{OBJECTIVES[objective]}, {name}", cells))
    return [ComparisonTable("MNIST, 50 clusters asked for", ["clusters in use", "ARI"], rows, "")]


def conclusion(records: Sequence[Record]) -> list[str]:
    """What each objective uses, and how much the architecture matters to it."""
    lines = []
    for objective in CHOSEN:
        found = [
            (estimate(records, wanted, "clusters"), estimate(records, wanted), name)
            for model, name in MODEL_NAMES.items()
            for wanted in ({"objective": objective, "model": model},)
        ]
        parts = [f"{used.mean:.0f} with {name} (ARI {ari.mean:.3f})" for used, ari, name in found if used and ari]
        if parts:
            lines.append(f"Clusters in use by {OBJECTIVES[objective]}: {', '.join(parts)}.")
    return lines


def draw_model_selection(records: Sequence[Record], folder: Path) -> dict[str, Figure]:
    """ARI against clusters in use, a dot for each run."""
    if not records:
        return {}
    figure = new_figure(9, 4.1)
    panels = figure.subplots(1, 2, sharex=True, sharey=True)
    for (model, name), ax in zip(MODEL_NAMES.items(), panels, strict=True):
        of_model = [record for record in records if record.run.settings["model"] == model]
        set_grid(set_title(ax, name), f"clusters in use, of {ASKED}")
        if of_model:
            _dots(ax, of_model)
        else:
            mark_not_run(ax)
    panels[0].set(xlim=(0, ASKED + 1))
    panels[0].set_ylim(bottom=min(0.0, panels[0].get_ylim()[0]))
    panels[0].set_ylabel("ARI", color=QUIET)
    dots = next((ax for ax in panels if ax.collections), panels[0]).get_legend_handles_labels()
    style: dict[str, Any] = {"ncols": 2, "frameon": False, "fontsize": 9, "labelcolor": INK, "scatteryoffsets": [0.5]}
    figure.legend(*dots, loc="outside lower right", **style)
    figure.set_label("ARI of each run on the test images of MNIST against the clusters that it uses.")
    return {"clusters": figure}


def _dots(ax: Axes, records: Sequence[Record]) -> None:
    for objective in CHOSEN:
        metrics = [record.metrics for record in records if record.run.settings["objective"] == objective]
        x, y = ([entry[name] for entry in metrics] for name in ("clusters", "adjusted_rand_index"))
        ax.scatter(x, y, label=OBJECTIVES[objective], s=34, alpha=0.75, linewidths=0, color=family_colour(objective))


EXPERIMENT = Experiment(
    name="model-selection",
    title="Model selection on MNIST",
    place="appendix F",
    protocols={
        "paper": Protocol(list(grid(100, ("mlp", "lenet5"))), runs=20),
        "quick": Protocol(list(grid(3, ("mlp",))), runs=1, remark="3 epochs instead of 100, the MLP only, one run"),
    },
    measure=measure,
    tables=tables,
    conclusion=conclusion,
    figures=draw_model_selection,
    data=("mnist",),
)
