import importlib
import stat

import numpy as np
import pytest

from priorax.experiments import NAMES, reproduce
from priorax.experiments.table1 import CIRCLE, CROSS, PAPER, ROWS, THRESHOLDS, TICK, Measured, Threshold
from priorax.report.plots import save_figure
from priorax.report.rows import read_rows, where, write_rows


def test_figure_1_the_posterior_concentrates_and_the_outcomes_do_not(tmp_path):
    result = reproduce("figure1", "quick", tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["figure1.csv", "figure1.png", "figure1.svg"]
    last = result.summary[-1]
    assert float(last[1]) < 0.05
    assert float(last[2]) == pytest.approx(0.5, abs=0.01)
    assert float(last[3]) > 0.99


def test_figure_2_the_count_is_unsure_of_what_is_known(tmp_path):
    rows = reproduce("figure2", "quick", tmp_path).rows
    origin = min(where(rows, kind="grid"), key=lambda row: row["x1"] ** 2 + row["x2"] ** 2)
    assert origin["posterior"] < 1e-3
    assert origin["count"] > 0.3


def test_a_figure_is_drawn_from_rows_alone_and_to_the_byte(tmp_path):
    """Reading the CSV back gives the same picture; plotting never trains."""
    reproduce("figure2", "quick", tmp_path)
    rows = read_rows(tmp_path / "figure2.csv")
    (tmp_path / "again").mkdir()
    module = importlib.import_module("priorax.experiments.figure2")
    for path in save_figure(module.figure(rows), tmp_path / "again", "figure2"):
        assert path.read_bytes() == (tmp_path / path.name).read_bytes()


@pytest.mark.parametrize("name", ["figure12", "figure13"])
@pytest.mark.slow
def test_the_regression_figures_show_what_the_paper_says(name, tmp_path, monkeypatch):
    module = importlib.import_module(f"priorax.experiments.{name}")
    rows = list(module.run("quick", lambda share, what: None))
    table = {row[0]: [float(cell) for cell in row[1:]] for row in module.summary(rows)[1:]}
    if name == "figure12":
        dropout, bootstrap = table.values()
        assert dropout[2] > 0.7 * dropout[0], "dropout does not converge"
        assert bootstrap[2] < 0.2 * bootstrap[0], "the bootstrap does"
    else:
        ensemble, bootstrap, bsr, bsp = table.values()
        assert max(ensemble[:2]) < 0.3
        assert bootstrap[0] < 0.3 < bootstrap[2]
        assert min(bsr[0], bsp[0]) > 1.0
    save_figure(module.figure(rows), tmp_path, name, ("png",))


def test_table_1_thresholds_mark_as_they_say():
    low = Threshold(tick=0.3, cross=0.7, low_is_good=True)
    assert [low.mark(v) for v in (0.1, 0.3, 0.5, 0.7, 0.8)] == [TICK, TICK, CIRCLE, CIRCLE, CROSS]
    high = Threshold(tick=0.7, cross=0.3, low_is_good=False)
    assert [high.mark(v) for v in (0.9, 0.7, 0.5, 0.3, 0.2)] == [TICK, TICK, CIRCLE, CIRCLE, CROSS]
    assert set(ROWS) == set(PAPER)


@pytest.mark.slow
def test_table_1_measures_every_cell(monkeypatch, tmp_path):
    """One row, short; the columns that take runs of agents stand for themselves."""
    module = importlib.import_module("priorax.experiments.table1")
    monkeypatch.setattr(module, "ROWS", {"exact": ROWS["exact"]})
    monkeypatch.setitem(module.STEPS, "quick", 20)
    spoilt = Measured(0.5, 1, {"deep_sea_10_learned_of_3": 0})
    quick = {"prior effect": lambda name, preset: spoilt, "works in noise": lambda name, preset: Measured(1.0)}
    monkeypatch.setattr(module, "MEASURES", {**module.MEASURES, **quick})
    rows = list(module.run("quick", lambda share, what: None))
    assert {(row["method"], row["column"]) for row in rows} == {("exact", name) for name in THRESHOLDS}
    (cell,) = where(rows, method="exact", column="data concentration")
    assert cell["number"] == pytest.approx(0.1, abs=0.02)
    (cell,) = where(rows, method="exact", column="multi step")
    assert cell["number"] == pytest.approx(1.0, abs=0.05)
    assert {row["ours"] for row in where(rows, column="prior effect")} == {CIRCLE}, (
        "one mark worse, DeepSea not learned"
    )
    save_figure(module.figure(rows), tmp_path, "table1", ("png",))


@pytest.mark.slow
def test_doubt_travels_along_a_chain_for_an_ensemble_and_not_for_dropout(monkeypatch):
    module = importlib.import_module("priorax.experiments.table1")
    monkeypatch.setitem(module.STEPS, "quick", 1500)
    assert module.multi_step("bsp", "quick").number > 0.8
    assert module.multi_step("dropout", "quick").number < 0.3


def test_rows_come_back_as_they_were(tmp_path):
    rows = [{"a": 1, "b": 0.25}, {"a": 2, "c": "word"}]
    write_rows(tmp_path / "rows.csv", rows)
    assert read_rows(tmp_path / "rows.csv") == rows


def test_an_unknown_figure_or_preset_gets_the_nearest_name(tmp_path):
    with pytest.raises(ValueError, match="name='figure14' is unknown; did you mean 'figure4'"):
        reproduce("figure14", "quick", tmp_path)
    with pytest.raises(ValueError, match="did you mean 'quick'"):
        reproduce("figure1", "quik", tmp_path)
    assert len(NAMES) == len(set(NAMES))


def test_a_folder_that_cannot_be_written_is_named_before_any_work(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=r"cannot be created .* choose another folder"):
        reproduce("figure1", "quick", tmp_path / "file" / "folder")


def test_a_read_only_folder_is_named_before_any_work(tmp_path, monkeypatch):
    """Root may write anywhere, so what the system would answer others is given here."""
    tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    monkeypatch.setattr("os.access", lambda path, mode: False)
    with pytest.raises(PermissionError, match="is not writable; choose another folder"):
        reproduce("figure1", "quick", tmp_path)
    tmp_path.chmod(stat.S_IRWXU)


def test_rows_carry_their_version(tmp_path):
    rows = reproduce("figure2", "quick", tmp_path).rows
    assert {(row["experiment"], row["preset"]) for row in rows} == {("figure2", "quick")}
    assert all(row["version"] for row in rows)
    assert np.all([row["posterior"] >= 0 for row in where(rows, kind="grid")])
