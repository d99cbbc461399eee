import stat

import numpy as np
import pytest

from priorax.experiments import NAMES, experiment, reproduce
from priorax.experiments.table1.measurements import multi_step
from priorax.experiments.table1.table import CIRCLE, CROSS, PAPER, ROWS, THRESHOLDS, TICK, Threshold
from priorax.report.plots import save_figure
from priorax.report.rows import read_rows, where, write_rows


def test_figure_1_the_posterior_concentrates_and_the_outcomes_do_not(tmp_path):
    result = reproduce("figure1", "quick", tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "figure1_quick.csv",
        "figure1_quick.png",
        "figure1_quick.svg",
    ]
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
    rows = read_rows(tmp_path / "figure2_quick.csv")
    (tmp_path / "again").mkdir()
    module = experiment("figure2")
    for path in save_figure(module.figure(rows), tmp_path / "again", "figure2_quick"):
        assert path.read_bytes() == (tmp_path / path.name).read_bytes()


def measured(module, keep=lambda item: True):
    """The rows of the measurements of `quick`, made in this process."""
    items = [item for ladder in module.ladders("quick") for level in ladder for item in level if keep(item)]
    return [{"name": item.name, **item.arguments, **row} for item in items for row in item.measure(**item.arguments)]


@pytest.mark.parametrize("name", ["figure12", "figure13"])
@pytest.mark.slow
def test_the_regression_figures_show_what_the_paper_says(name, tmp_path):
    module = experiment(name)
    rows = measured(module)
    table = {row[0]: [float(cell.split()[0]) for cell in row[1:]] for row in module.summary(rows)[1:]}
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
def test_table_1_measures_every_cell_of_exact_bayes(monkeypatch):
    module = experiment("table1")
    monkeypatch.setattr(module, "ROWS", {"exact": ROWS["exact"]})
    monkeypatch.setitem(module.STEPS, "quick", 20)
    rows = measured(module, lambda item: item.measure is not None)
    assert {row["name"] for row in rows} == set(THRESHOLDS)
    found = {name: module.cell(rows, "exact", name) for name in THRESHOLDS}
    assert found["data concentration"].number.value == pytest.approx(0.1, abs=0.02)
    assert found["learned metric"].number.value == pytest.approx(1.0)
    assert found["multi step"].number.value == pytest.approx(1.0, abs=0.05)
    assert found["works in noise"].number.value == pytest.approx(1.0)
    assert found["cheap compute"].mark == CROSS


def invented_table(change=lambda row: row):
    """Rows as if every cell were perfect, but for what `change` does to them."""
    perfect = {"data concentration": 0.1, "works in noise": 7.0, "cheap compute": 1.0}
    rows = []
    for method in ROWS:
        for column in THRESHOLDS:
            for seed in range(5):
                number = perfect.get(column, 1.0)
                more = {"spread_of_exact": 1.0, "left_of_first": 1.0}
                rows.append(change({"name": column, "method": method, "seed": seed, "number": number, **more}))
        rows += [change({"name": f"deep sea {method}", "episodes_to_learn": 100}) for _ in range(5)]
    return rows


def test_table_1_shows_marks_with_and_without_what_deep_sea_says(tmp_path):
    """Dropout is uncertain away from data, but does not learn DeepSea: one mark worse in the second form."""
    module = experiment("table1")

    def change(row):
        return {"name": row["name"]} if row["name"] == "deep sea dropout" else row

    rows = invented_table(change)
    cell = module.cell(rows, "dropout", "prior effect")
    assert (cell.mark, cell.demoted) == (TICK, CIRCLE)
    assert module.cell(rows, "bsp", "prior effect").demoted is None
    assert module.agreement(rows) == module.agreement(rows, demoted=True), "the paper has a cross there"
    save_figure(module.figure(rows), tmp_path, "table1", ("png",))
    table = module.summary(rows)
    assert all(len(line) == len(table[0]) for line in table)


def test_table_1_a_collapsed_spread_is_a_cross_and_a_mark_near_its_threshold_is_not_firm():
    module = experiment("table1")

    def change(row):
        if row.get("method") == "c51" and row["name"] == "multi step":
            return {**row, "left_of_first": 0.01}
        if row.get("method") == "bs" and row["name"] == "learned metric":
            return {**row, "number": 0.72}
        return row

    rows = invented_table(change)
    assert module.cell(rows, "c51", "multi step").mark == CROSS
    near = module.cell(rows, "bs", "learned metric")
    assert near.mark == TICK and not near.firm
    assert module.cell(rows, "bsp", "learned metric").firm


@pytest.mark.slow
def test_doubt_travels_along_a_chain_for_an_ensemble_and_not_for_dropout():
    assert multi_step("bsp", 0, 1500)[0]["number"] > 0.8
    assert multi_step("dropout", 0, 1500)[0]["number"] < 0.3


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
    assert {(row["experiment"], row["budget"]) for row in rows} == {("figure2", "quick")}
    assert all(row["version"] for row in rows)
    assert np.all([row["posterior"] >= 0 for row in where(rows, kind="grid")])
