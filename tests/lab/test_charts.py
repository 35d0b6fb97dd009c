"""The figures of the experiments: drawn from whole grids and from parts of them, and never needed for the tables."""

import io
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import matplotlib
import pytest
from matplotlib.figure import Figure

from coverings import every_other, in_full
from experiment_records import made_up_records
from fault_runs import Child, run_program
from pollux.clustering import GeminiClustering
from pollux.lab.charts import ari_label
from pollux.lab.grid import model_path
from pollux.lab.paper import EXPERIMENTS, outliers, plane
from pollux.lab.paper.reproduction import Request, report_on
from pollux.lab.records import Record, Run
from pollux.lab.results import WITHOUT_FIGURES, Report, publish, with_figures
from pollux.spec import MLP

# How many panels each figure has, of a whole grid.
PANELS = {
    "categorical": {"clusters": 2},
    "outliers": {"entropy": 3},
    "moons": {"regions": 6},
    "mnist": {"bars": 4, "curves": 4},
    "cifar10": {"bars": 2, "curves": 4},
    "mi-boundaries": {"boundaries": 2, "differences": 2},
    "ova-vs-ovo": {"regions": 2},
    "model-selection": {"clusters": 2},
    "complexity": {"time": 2},
}
SAMPLES = {
    "categorical": plane.samples("categorical")[0],
    "outliers": outliers.samples(1)[0][:100],
    "moons": plane.samples("moons")[0],
    "ova-vs-ovo": plane.samples("ova-vs-ovo")[0],
}
every_experiment = pytest.mark.parametrize("name", EXPERIMENTS)


@pytest.fixture(scope="module")
def models() -> dict[str, GeminiClustering]:
    """A model of each experiment that keeps some, hardly trained."""
    return {
        name: GeminiClustering(
            4 if name == "outliers" else 3,
            model="free" if name == "categorical" else MLP(hidden=(4,)),
            init="random",
            max_epochs=1,
            random_state=0,
        ).fit(X)
        for name, X in SAMPLES.items()
    }


@pytest.fixture(autouse=True)
def coarse(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few predictions, and few dots, are as good as many here."""
    monkeypatch.setattr("pollux.lab.results.DOTS_PER_INCH", 30)
    monkeypatch.setattr("pollux.lab.charts.RESOLUTION", 12)


@pytest.fixture
def keep(models: dict[str, GeminiClustering], tmp_path: Path) -> Any:
    def keep(runs: Iterable[Run]) -> Path:
        (tmp_path / "models").mkdir()
        for run in runs:
            if EXPERIMENTS[run.experiment].saves_model(run):
                models[run.experiment].save(model_path(tmp_path, run))
        return tmp_path

    return keep


def draw(name: str, records: list[Record], folder: Path) -> dict[str, Figure]:
    figures = EXPERIMENTS[name].figures
    assert figures is not None
    return dict(figures(records, folder))


def drawn(name: str, records: list[Record], folder: Path) -> Report:
    """The report on an experiment, with its figures."""
    experiment = EXPERIMENTS[name]
    made = report_on(experiment, experiment.protocols["quick"], records, Request([name]))
    return with_figures(made, folder, lambda: draw(name, records, folder))


def panels(figure: Figure) -> list[Any]:
    """Axes with a title; colour bars and second scales have none."""
    return [ax for ax in figure.axes if ax.get_title(loc="left")]


def says_not_run(ax: Any) -> bool:
    return any(text.get_text() == "not run" for text in ax.texts)


def png(figure: Figure) -> bytes:
    image = io.BytesIO()
    figure.savefig(image, dpi=30)
    return image.getvalue()


@pytest.mark.parametrize("name", every_other(EXPERIMENTS))
def test_a_whole_grid_gives_every_panel(name: str, keep: Any) -> None:
    records = made_up_records(name)
    before = dict(matplotlib.rcParams)
    figures = draw(name, records, keep(record.run for record in records))
    assert {key: len(panels(figure)) for key, figure in figures.items()} == PANELS[name]
    for figure in figures.values():
        assert len(str(figure.get_label())) > 40
        assert not any(says_not_run(ax) for ax in panels(figure))
        assert png(figure)
    assert dict(matplotlib.rcParams) == before


@in_full
@every_experiment
def test_parts_of_a_grid_give_what_they_have(name: str, keep: Any) -> None:
    records = made_up_records(name)
    folder = keep(record.run for record in records[:1])
    for part in (records[:1], records[:3], records[-1:]):
        for figure in draw(name, part, folder).values():
            assert panels(figure)


@every_experiment
def test_nothing_gives_nothing(name: str, tmp_path: Path) -> None:
    assert draw(name, [], tmp_path) == {}


@pytest.mark.parametrize("name", SAMPLES)
def test_models_that_are_gone_leave_their_panels_empty(name: str, keep: Any) -> None:
    records = made_up_records(name)
    kept = [record for record in records if EXPERIMENTS[name].saves_model(record.run)]
    folder = keep(record.run for record in kept)
    model_path(folder, kept[0].run).unlink()
    (figure,) = draw(name, records, folder).values()
    assert [says_not_run(ax) for ax in panels(figure)].count(True) == 1
    for record in kept[1:]:
        model_path(folder, record.run).unlink()
    assert draw(name, records, folder) == {}


def test_the_clusters_are_dots_triangles_and_crosses(keep: Any, models: dict[str, GeminiClustering]) -> None:
    records = made_up_records("categorical")
    figure = draw("categorical", records, keep(record.run for record in records))["clusters"]
    for ax, record in zip(panels(figure), records, strict=False):
        assert ari_label(record) in ax.get_title(loc="left")
        sizes = [len(collection.get_offsets()) for collection in ax.collections]
        assert sizes == [int((models["categorical"].labels_ == cluster).sum()) for cluster in range(3)]


def test_the_entropy_maps_have_one_scale_and_show_the_middle_only(keep: Any) -> None:
    records = made_up_records("outliers")
    figure = draw("outliers", records, keep(record.run for record in records))["entropy"]
    assert len({ax.images[0].get_clim() for ax in panels(figure)}) == 1
    assert {ax.get_xlim() for ax in panels(figure)} == {(-10.0, 10.0)}


def test_bars_are_the_figures_of_the_table(tmp_path: Path) -> None:
    records = made_up_records("mnist", runs=1)
    table = EXPERIMENTS["mnist"].tables(records)[0]
    figure = draw("mnist", records, tmp_path)["bars"]
    for at, ax in enumerate(panels(figure)):
        cells = [row.cells[at] for row in table.rows]
        drawn = {bars.get_label(): [bar.get_width() for bar in bars] for bars in ax.containers}
        assert drawn["published"] == [cell.published.mean for cell in cells if cell.published]
        assert drawn["measured"] == [cell.measured.mean for cell in cells if cell.measured]


def test_one_vs_one_is_dashed_and_families_share_a_colour(tmp_path: Path) -> None:
    figure = draw("complexity", made_up_records("complexity"), tmp_path)["time"]
    for ax in panels(figure):
        lines = {line.get_label(): line for line in ax.lines}
        assert len(lines) == 10
        assert ax.get_yscale() == "log"
        for label, line in lines.items():
            assert line.get_linestyle() == ("--" if label.endswith("OvO") else "-")
            assert line.get_color() == lines[label.replace("OvO", "OvA")].get_color()


def test_figures_are_written_whole_and_the_same_twice(tmp_path: Path) -> None:
    records = made_up_records("complexity", "quick")
    (picture,) = drawn("complexity", records, tmp_path).pictures
    files = {path.name: path.read_bytes() for path in (tmp_path / "figures").iterdir()}
    assert sorted(files) == ["complexity-time.png", "complexity-time.svg"]
    assert files["complexity-time.png"] == picture.png
    assert (tmp_path / picture.link).read_bytes() == picture.png
    drawn("complexity", records, tmp_path)
    assert {path.name: path.read_bytes() for path in (tmp_path / "figures").iterdir()} == files


def test_tables_come_without_matplotlib(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    records = made_up_records("complexity", "quick")
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    publish(drawn("complexity", records, tmp_path), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["complexity.html", "complexity.md"]
    assert WITHOUT_FIGURES in capsys.readouterr().out
    assert "Wasserstein OvO" in (tmp_path / "complexity.md").read_text()


def test_tables_come_although_a_model_cannot_be_read(keep: Any) -> None:
    records = made_up_records("categorical")
    folder = keep(record.run for record in records)
    model_path(folder, records[0].run).write_bytes(b"no model")
    publish(drawn("categorical", records, folder), folder)
    assert "no figures: " in (folder / "categorical.md").read_text()
    assert "MMD OvA" in (folder / "categorical.md").read_text()


def test_the_experiments_load_matplotlib_to_draw_only_and_never_pyplot(tmp_path: Path) -> None:
    code = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
import pollux.lab.paper.reproduction
assert "matplotlib" not in sys.modules
from experiment_records import made_up_records
from pollux.lab.paper import EXPERIMENTS
assert EXPERIMENTS["complexity"].figures(made_up_records("complexity", "quick"), None)
assert "matplotlib.pyplot" not in sys.modules
"""
    ended = Child(tmp_path, run_program, code).end()
    assert ended.code == 0, ended.err
