import json
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from priorax.experiments import reproduce, sweep
from priorax.experiments.tabular import models as tabular_models
from priorax.experiments.tabular import panel as tabular
from priorax.experiments.tabular.data import CLASSES, PUBLISHED, REGRESSION, load, published_test_rows, without_slab
from priorax.experiments.tabular.models import OURS
from priorax.report.plots import save_figure
from priorax.report.rows import write_rows

ROOT = Path(__file__).parent.parent


@pytest.fixture(autouse=True)
def at_root(monkeypatch):
    monkeypatch.chdir(ROOT)


def test_splits_are_the_published_ones():
    """The first test rows of splits 0 and 19 as they were published."""
    known = json.loads((ROOT / "tests" / "data" / "uci_test_rows.json").read_text())
    for name, (rows, first, last) in known.items():
        assert published_test_rows(rows, 0)[: len(first)].tolist() == first
        assert published_test_rows(rows, 19)[: len(last)].tolist() == last
        data = load(name, 0)
        assert len(data.y) + len(data.test_y) == rows
        assert len(data.test_y) == rows - round(rows * 0.9)
    assert set(known) == set(PUBLISHED)


@pytest.mark.parametrize("name", [*REGRESSION, *CLASSES])
def test_every_set_has_rows_for_both_sides(name):
    data = load(name, 0)
    assert data.is_regression == (name in REGRESSION)
    assert data.x.shape[1] == data.test_x.shape[1]
    assert not np.array_equal(load(name, 1).test_y, data.test_y)
    part, inside = without_slab(data)
    assert len(part.y) == pytest.approx(0.8 * len(data.y), rel=0.15)
    assert 0 < inside.sum() < len(inside)


@pytest.mark.parametrize("model", ["random forest", "gradient boosting", "Gaussian process", "bagged MLPs"])
@pytest.mark.parametrize("name", ["diabetes", "iris"])
@pytest.mark.slow
def test_others_are_measured(model, name):
    (row,) = tabular.measure(name, model, 0, 0)
    if name == "iris":
        assert row["accuracy"] > 0.85
    else:
        assert 40 < row["rmse"] < 70
        assert 0.8 < row["coverage"] < 1
        assert row["nll"] == pytest.approx(np.log(row["rmse"]) + 1.42, abs=0.2)
    assert 0 <= row["far_auroc"] <= 1


def test_ours_is_measured_and_knows_what_is_far():
    small = {"num_members": 5, "steps": 300, "hidden_widths": (20,)}
    (number,) = tabular.measure("diabetes", OURS, 0, 0, **small)
    assert 45 < number["rmse"] < 65
    assert 0.8 < number["coverage"] < 1
    (label,) = tabular.measure("iris", OURS, 0, 0, **small)
    assert label["accuracy"] > 0.85
    assert min(number["far_auroc"], label["far_auroc"]) > 0.8


def test_the_table_has_means_and_says_of_which_splits(tmp_path):
    rows = [
        {"name": OURS, "data": "energy", "model": OURS, "seed": seed, "rmse": 0.5, "nll": nll, "crps": 0.3}
        | {"coverage": 0.9, "width": 0.2, "far_auroc": 1.0, "seconds": 2.0}
        for seed, nll in ((5, 0.6), (6, 0.8))
    ]
    rows.append({"name": f"{OURS}, slab", "data": "energy", "model": OURS, "seed": 5, "slab_auroc": 0.7})
    header, ours, dropout, _ = tabular.summary(rows)
    assert dict(zip(header, ours, strict=True)) | {"nll": "0.700", "splits": "5-6", "slab AUROC": "0.70"} == dict(
        zip(header, ours, strict=True)
    )
    assert dropout[1] == "MC dropout, published"
    save_figure(tabular.figure(rows), tmp_path, "tabular", ("png",))


def test_rows_of_a_package_that_is_not_installed_are_skipped_with_a_word_and_still_shown(tmp_path, monkeypatch):
    """NGBoost is an extra: without it nothing of it is run, but rows made elsewhere are in the table."""
    rows = tmp_path / "tabular_quick.csv"
    stamp = {"experiment": "tabular", "budget": "quick", "rows_version": sweep.ROWS_VERSION, "version": "0"}
    scores = {"rmse": 50, "nll": 5.4, "crps": 30, "coverage": 0.9, "width": 2.4, "far_auroc": 0.5, "seconds": 1}
    tasks = [level[0] for (level,) in tabular.ladders("quick", ["NGBoost"])]
    book = sweep._Settings(rows)
    for task in tasks:
        book.add(task)
    write_rows(rows, [{**stamp, **sweep._row(task), **scores} for task in tasks if task.measure is tabular.measure])
    monkeypatch.setattr(sweep, "is_installed", lambda name: False)
    said = []
    result = reproduce("tabular", "quick", tmp_path, announce=said.append, models=["NGBoost"])
    assert said[0] == (
        f"ngboost is not installed, so {len(tasks)} measurements with it are skipped; pip install ngboost and run this "
        "again"
    )
    assert [(row["model"], row["data"]) for row in result.rows] == [("NGBoost", "energy"), ("NGBoost", "diabetes")]
    with pytest.raises(ValueError, match="models='xgboost' is unknown"):
        tabular.ladders("quick", ["xgboost"])


@pytest.mark.parametrize(
    "model",
    ["random forest", "gradient boosting", "Gaussian process", pytest.param("bagged MLPs", marks=pytest.mark.slow)],
)
def test_models_without_a_distribution_of_their_own_get_an_honest_one(model):
    """On noise of known size around a line: neither the residuals of the fit, nor the spread of members alone."""
    random = np.random.default_rng(0)
    x = random.uniform(-1, 1, (400, 2))
    y = x[:, 0] + 0.5 * random.standard_normal(400)
    with threadpool_limits(1):
        said = tabular_models.fit(model, x[:200], y[:200], 0, True)(x[200:])
    assert np.mean((said.low <= y[200:]) & (y[200:] <= said.high)) == pytest.approx(0.9, abs=0.08)
    assert np.mean(said.std) == pytest.approx(0.5, rel=0.25)


def test_each_measurement_is_listed_once_and_shown_splits_were_not_chosen_on():
    items = [item for ladder in tabular.ladders("full") for level in ladder for item in level]
    assert len({(item.name, *map(str, item.arguments.values())) for item in items}) == len(items)
    assert min(item.arguments["seed"] for item in items) == tabular.FIRST_SHOWN
