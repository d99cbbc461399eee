"""CSV files as people have them, in real folders: fitted, read again, predicted; and how they go wrong."""

import csv
import gzip
import io
import json
import re
import subprocess
import sys

import numpy as np
import pytest
from test_viewer import browser  # noqa: F401

from priorax import PriorEnsembleRegressor
from priorax.cli import main, parse
from priorax.estimators import tables
from priorax.estimators.encoding import Features, learn
from priorax.files import BadFile
from priorax.report import calibration
from priorax.tabular import fit_table, measuring, predict_table
from priorax.tabular.folder import FILES, inspect_model, load_model
from priorax.tabular.predicting import _say_changed
from priorax.tabular.target import Target, read_target

CITIES = {"Rome": 0.0, "Oslo": 3.0, "Bern": -3.0}
QUICK = {"num_members": 5, "steps": 200}


def write(path, header, rows):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([header, *rows])
    return path


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Words, gaps, an index without a name, an id, a constant; y and grade are targets."""
    random = np.random.default_rng(0)
    rows = []
    for i in range(300):
        size, age, city = random.normal(), random.uniform(20, 60), str(random.choice(list(CITIES)))
        y = 2 * size + CITIES[city] + 0.5 * random.normal()
        gaps = random.random(2)
        shown = ("" if gaps[0] < 0.05 else city, "NA" if gaps[1] < 0.1 else f"{age:.1f}")
        rows.append(
            [i, f"{size:.4f}", *shown, f"person {i}", 7, "" if i % 60 == 0 else f"{y:.3f}", "hi" if y > 1 else "lo"]
        )
    header = ["", "size", "city", "age", "name", "same", "y", "grade"]
    return write(tmp_path_factory.mktemp("data") / "data.csv", header, rows)


@pytest.fixture(scope="module")
def number(data, tmp_path_factory):
    """A model of y: its folder, the report, what was said."""
    said, out = [], tmp_path_factory.mktemp("number") / "new" / "model"
    return out, fit_table(data, "y", out, drop=["grade"], report=said.append, **QUICK), said


@pytest.fixture(scope="module")
def grade(data, tmp_path_factory):
    """A model of grade."""
    out = tmp_path_factory.mktemp("grade")
    return out, fit_table(data, "grade", out, drop=["y"], **QUICK)


def test_a_table_with_words_and_gaps_is_learned(number):
    out, report, said = number
    assert report.kind == "number"
    assert (report.rows, report.held_out_rows, report.rows_without_target) == (236, 59, 5)
    assert report.columns == ("size", "city", "age")
    assert report.calibration.score < 0.5 * report.calibration.plain_score
    assert report.calibration.error < 0.15
    assert [path.name for path in report.paths] == list(FILES)
    assert sorted(path.name for path in out.iterdir()) == sorted(FILES)
    assert json.loads((out / "calibration.json").read_text())["rows"] == 59
    for words in (
        "rows without a 'y' are left out: 5",
        "without a name are left out: 1",
        "'name' is different in every row",
    ):
        assert any(words in line for line in said)
    assert report.left_out["same"] == "is 7.0 in every row"
    assert "column 'name' is different in every row, like an id; it is left out; pass id='name' to copy it" in " ".join(
        said
    )


def test_classes_are_learned_and_predicted(grade, data, tmp_path):
    out, report = grade
    assert report.kind == "class"
    assert report.calibration.score > report.calibration.plain_score + 0.2
    assert predict_table(out, data, tmp_path / "p.csv").rows == 300
    with (tmp_path / "p.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["class", "probability_hi", "probability_lo", "epistemic", "total"]
    for row in rows:
        proba = {name: float(row[f"probability_{name}"]) for name in ("hi", "lo")}
        assert row["class"] == max(proba, key=proba.get)
        assert sum(proba.values()) == pytest.approx(1, abs=1e-6)
        assert 0 <= float(row["epistemic"]) <= float(row["total"]) <= np.log(2) + 1e-6


@pytest.mark.slow
def test_a_fresh_process_predicts_the_same_bytes(number, data, tmp_path):
    out, _, _ = number
    assert predict_table(out, data, tmp_path / "here.csv").rows == 300
    script = "import sys; from priorax.tabular import predict_table; predict_table(*sys.argv[1:])"
    subprocess.run([sys.executable, "-c", script, str(out), str(data), str(tmp_path / "there.csv")], check=True)
    assert (tmp_path / "here.csv").read_bytes() == (tmp_path / "there.csv").read_bytes()
    values = np.loadtxt(tmp_path / "here.csv", delimiter=",", skiprows=1)
    assert np.all(values[:, 1] < values[:, 2])


def test_what_is_read_back_predicts_as_what_was_fitted_to_the_bit(data, number):
    """Features survive their JSON; calibration, measured before writing, comes out the same after reading."""
    out, report, _ = number
    cells, truth, _ = read_target(tables.read(data), "y", "number", print)
    found = load_model(out)
    model = found.estimator
    assert Features.from_json(json.loads(json.dumps(model.encoding_.as_json()))) == model.encoding_
    train, held = truth.split(0.2, 0)
    rows = tables.as_fitted(cells.take(held), model.encoding_)
    bounds = measuring.intervals(model, rows, 0.9)
    assert measuring.measure(found, model.predict_uncertainty(rows), truth.take(held), bounds) == report.calibration
    assert model.y_mean_[0] == pytest.approx(truth.values[train].mean())


def test_the_same_call_gives_the_same_model(data, number, tmp_path):
    out, report, _ = number
    assert fit_table(data, "y", tmp_path, drop=["grade"], **QUICK).calibration == report.calibration
    for name in ("calibration.json", "calibration.png", "report.html"):
        assert (tmp_path / name).read_bytes() == (out / name).read_bytes()
    for folder in (out, tmp_path):
        predict_table(folder, data, folder.parent / "same.csv")
    assert (out.parent / "same.csv").read_bytes() == (tmp_path.parent / "same.csv").read_bytes()


def test_features_are_those_of_scikit_learn(data):
    """Medians, indicators and categories as transformers fitted to the table itself give them."""
    from sklearn.impute import SimpleImputer
    from sklearn.preprocessing import OneHotEncoder

    cells = tables.read(data)
    table = tables.typed(cells, ["size", "city", "age"])
    features = learn(table).features
    numbers = np.stack([cells.numbers("size"), cells.numbers("age")], axis=1)
    cities = np.array(cells.columns["city"], dtype=object)[:, None]
    wanted = [
        SimpleImputer(strategy="median", add_indicator=True).fit_transform(numbers),
        OneHotEncoder(handle_unknown="ignore", sparse_output=False).fit_transform(cities),
    ]
    np.testing.assert_array_equal(features.transform(table), np.concatenate(wanted, axis=1))


def test_predicting_bears_unknown_words_gaps_and_other_columns(number, tmp_path):
    out, _, _ = number
    rows = [[30, "x", "Lima", 0], ["", "y", "", "?"], [30, "z", "Rome", 0]]
    new, said = write(tmp_path / "new.csv", ["age", "extra", "city", "size"], rows), []
    assert predict_table(out, new, tmp_path / "p.csv", said.append).rows == 3
    assert said == ["column 'city' has categories not seen in training: Lima; encoded as all zeros"]
    values = np.loadtxt(tmp_path / "p.csv", delimiter=",", skiprows=1)
    assert np.all(np.isfinite(values))
    assert values[0, 1] > 2 * values[2, 1], "it should doubt a city that it never saw"
    features = load_model(out).estimator.encoding_
    assert np.all(features.transform(tables.as_fitted(tables.read(new), features))[0, -4:] == 0)


def test_a_column_that_was_constant_at_the_fit_and_no_longer_is_is_named(number, tmp_path):
    said, header = [], ["size", "city", "age", "same"]
    new = write(tmp_path / "new.csv", header, [[0, "Rome", 30, "7"], [0, "Rome", 30, "7.0"], [0, "Rome", 30, ""]])
    predict_table(number[0], new, tmp_path / "p.csv", said.append)
    assert said == []
    new = write(tmp_path / "new.csv", header, [[0, "Rome", 30, 7], [0, "Rome", 30, 8]])
    predict_table(number[0], new, tmp_path / "p.csv", said.append)
    assert said == ["column 'same' is 7.0 in every row of the fit, but here also 8; this is not taken into account"]
    dated = table(tmp_path / "d.csv", day=["31.01.2024", "01.02.2024"])
    said.clear()
    _say_changed(tables.read(dated), {"day": "is 2024-01-31 in every row"}, said.append)
    assert len(said) == 1 and "here also 01.02.2024;" in said[0]


def test_predicting_says_what_is_wrong(number, tmp_path):
    out, _, _ = number
    wrong = {
        "no column 'age'.*Columns: size, city": (["size", "city"], [[1, "Rome"]]),
        "line 3: column 'age' is numeric, but 'old' is not a number": (
            ["size", "city", "age"],
            [[1, "Rome", 2], [1, "", "old"]],
        ),
        "line 2: column 'size' is numeric, but 'inf' is not a number": (["size", "city", "age"], [["inf", "Rome", 2]]),
        "line 2: no finite prediction": (["size", "city", "age"], [["1e300", "Rome", 2]]),
    }
    for words, table in wrong.items():
        with pytest.raises(ValueError, match=words):
            predict_table(out, write(tmp_path / "new.csv", *table), tmp_path / "p.csv")
    with pytest.raises(ValueError, match="would be overwritten"):
        predict_table(out, tmp_path / "new.csv", tmp_path / "new.csv")
    with pytest.raises(FileNotFoundError, match="priorax fit"):
        predict_table(tmp_path, tmp_path / "new.csv", tmp_path / "p.csv")
    assert [path.name for path in tmp_path.iterdir()] == ["new.csv"]


def test_a_damaged_model_is_refused(grade, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    for name in FILES:
        (folder / name).write_bytes((grade[0] / name).read_bytes())
    good = json.loads((folder / "table.json").read_text())
    other = {"classes": ["a", "b"]}, {"id": 3}, {"target": None}
    for change in ({"version": 9}, {"kind": "shell"}, {"kind": "number"}, *other):
        (folder / "table.json").write_text(json.dumps({**good, **change}))
        with pytest.raises(BadFile):
            load_model(folder)
    for text in ("{", "[" * 100_000, '{"version": ' + "1" * 5000 + "}", "[]", "\xff"):
        (folder / "table.json").write_text(text, encoding="latin-1")
        with pytest.raises(BadFile, match=r"table\.json"):
            load_model(folder)
    (folder / "table.json").write_text(json.dumps(good))
    load_model(folder)
    (folder / "model.safetensors").write_bytes(b"another")
    with pytest.raises(BadFile, match="fit the model again"):
        load_model(folder)


def test_a_model_is_replaced_only_when_asked(data, tmp_path):
    out, part = tmp_path / "out", tmp_path / "part.csv"
    part.write_text("".join(data.read_text().splitlines(keepends=True)[:250]))
    out.mkdir()
    for name in ("table.json", "calibration.png", "mine.txt"):
        (out / name).write_text("old")
    with pytest.raises(ValueError, match="--overwrite"):
        fit_table(part, "y", out, drop=["grade"], **QUICK)
    report = fit_table(part, "y", out, drop=["grade"], overwrite=True, held_out=0.0, **QUICK)
    assert report.calibration is None
    assert sorted(path.name for path in out.iterdir()) == ["mine.txt", "model.safetensors", "table.json"]


def test_the_number_of_steps_is_found(tmp_path):
    """Where there is only noise, more training hurts. (Of the same shape as the other table, to compile nothing.)"""
    noise = np.random.default_rng(0).normal(size=(300, 8)).tolist()
    path, said = write(tmp_path / "noise.csv", [*"abcdefg", "y"], noise), []
    report = fit_table(path, "y", tmp_path / "model", num_members=5, report=said.append)
    assert report.steps <= 300
    assert said == [
        "'y' holds numbers and is predicted as a number; pass kind=\"class\" if they are class labels",
        f"training steps: {report.steps} (lowest out-of-bag loss)",
    ]


def table(path, **columns):
    rows = zip(*columns.values(), strict=True)
    return write(path, list(columns), rows)


def test_columns_that_tell_nothing_or_too_much(tmp_path):
    n = 60
    columns = {
        "gone": [""] * n,
        "same": ["a"] * n,
        "name": [f"person {i % 40}" for i in range(n)],
        "flag": ["1" if i % 2 else "" for i in range(n)],
        "word": ["u" if i % 3 else "none" for i in range(n)],
        "CustomerId": [i * 7 for i in range(n)],
        "code": [f"A-{i}" for i in range(n)],
        "year": [1950 + i for i in range(n)],
        "either": [f"0{i % 9 + 1}/0{i % 7 + 1}/2024" for i in range(n)],
    }
    cells = tables.read(table(tmp_path / "t.csv", **columns))
    features, left_out, ids, remarks = learn(tables.typed(cells, columns))
    assert [(c.name, c.kind, c.has_missing, c.categories) for c in features.columns] == [
        ("flag", "number", True, ()),
        ("word", "text", False, ("none", "u")),
        ("year", "number", False, ()),
    ]
    assert left_out["gone"] == "is empty in every row"
    assert left_out["same"] == "is a in every row"
    assert "40 categories in 60 rows (at most 30)" in left_out["name"]
    assert "could be dates with the day or the month first" in left_out["either"]
    assert ids == ("CustomerId", "code")
    assert remarks == {"year": "holds whole numbers from 1950 to 2009, each at most once, like a row number"}
    with pytest.raises(ValueError, match="no column to learn from: 'gone' is empty"):
        learn(tables.typed(cells, ["gone", "same", "name"]))


def test_dates_are_days_with_their_place_in_the_year_the_week_and_the_day(tmp_path):
    days = [f"{1 + i % 28:02d}.{1 + i % 12:02d}.{2020 + i % 3}" for i in range(60)]
    hours = ["" if i == 7 else f"2024-03-{1 + i % 3:02d} {i % 24:02d}:30" for i in range(60)]
    cells = tables.read(table(tmp_path / "t.csv", sold=days, seen=hours))
    typed = tables.typed(cells, ["sold", "seen"])
    features = learn(typed).features
    assert [(c.kind, c.format, c.has_missing, c.cycles) for c in features.columns] == [
        ("date", "%d.%m.%Y", False, ("year", "week")),
        ("date", "iso", True, ("day",)),
    ]
    x = features.transform(typed)
    assert x.shape == (60, features.size) == (60, 2 + 1 + 6)
    first = (np.datetime64("2020-01-01") - np.datetime64("1970-01-01")).astype(int)
    np.testing.assert_allclose(x[0, 0], first)
    np.testing.assert_allclose(x[0, 5:7], [np.sin(2 * np.pi * first / 7), np.cos(2 * np.pi * first / 7)], atol=1e-9)
    np.testing.assert_array_equal(x[7, [1, 2, 7, 8]], [features.columns[1].median, 1, 0, 0])
    np.testing.assert_allclose(x[6, 7:], [np.sin(2 * np.pi * 6.5 / 24), np.cos(2 * np.pi * 6.5 / 24)], atol=1e-6)
    assert Features.from_json(json.loads(json.dumps(features.as_json()))) == features
    assert features.decode(x[7]) == {"sold": "2021-08-08", "seen": None}
    wrong = table(tmp_path / "w.csv", sold=["soon", *days[1:]], seen=hours)
    with pytest.raises(
        ValueError, match=r"line 2: column 'sold' holds dates, but 'soon' is not one; write it like 31\.01"
    ):
        tables.typed(tables.read(wrong), ["sold"])
    with pytest.raises(ValueError, match="target='sold' holds dates, which cannot be predicted"):
        read_target(cells, "sold", "auto", print)


def test_fits_that_make_no_sense(tmp_path):
    n = 60
    number = [i / 7 for i in range(n)]
    path = table(
        tmp_path / "t.csv",
        a=number,
        typo=["oops", *number[1:]],
        ids=[f"id {i}" for i in range(n)],
        one=["x"] * n,
        few=["3", *[""] * (n - 1)],
        y=[i % 3 for i in range(n)],
    )
    wrong = [
        ({"target": "z"}, "target='z' is unknown; known: "),
        ({"drop": ["b"]}, "drop='b' is unknown"),
        ({"drop": ["y"]}, "drop='y' is unknown"),
        ({}, "line 2: column 'typo' is numeric, but 'oops' is not a number.*leave the column out"),
        ({"target": "typo"}, "'oops'.*kind=\"class\""),
        ({"target": "ids"}, "60 distinct classes"),
        ({"target": "ids", "kind": "number"}, "is numeric, but 'id 0' is not a number"),
        ({"target": "one"}, "is x in every row"),
        ({"target": "few"}, "has 1 rows with a 'few'"),
        ({"kind": "regression"}, "kind='regression' is unknown"),
        ({"held_out": 0.9}, r"held_out=0\.9 must be"),
        ({"seed": -1}, "seed=-1 must be"),
        ({"interval": 9.0}, r"interval=9\.0 must be a number above 0 and below 1"),
        ({"drop": ["typo"], "interval": 0.99}, r"interval=0\.99 needs at least 99 training rows"),
        ({"drop": ["typo"], "interval": 0.9, "held_out": 0.0}, r"interval=0\.9 cannot be measured"),
        ({"drop": ["typo"], "interval": 0.9, "kind": "class"}, r"interval=0\.9 is for numbers, but .* 3 classes"),
        ({"drop": ["typo"], "steps": 0}, "steps=0"),
        ({"drop": ["typo"], "num_members": 0, "steps": 1}, "num_members=0"),
        ({"out": path}, "is a file"),
    ]
    for change, words in wrong:
        with pytest.raises(ValueError, match=words):
            fit_table(path, **{"target": "y", "out": tmp_path / "model", **change})
    assert not (tmp_path / "model").exists()


def test_numbers_can_be_classes(tmp_path):
    cells = tables.read(table(tmp_path / "t.csv", a=range(40), y=["-", *(i % 3 for i in range(39))]))
    said = []
    kept, truth, missing = read_target(cells, "y", "auto", said.append)
    assert "holds numbers (3 distinct ones) and is predicted as a number" in said[0]
    assert (truth.kind, missing, len(kept.lines), truth.values[3]) == ("number", 1, 39, 0.0)
    _, truth, missing = read_target(cells, "y", "class", print)
    assert (truth.classes, missing) == (["-", "0", "1", "2"], 0)


@pytest.mark.parametrize("share", [0.0, 0.2, 0.5])
def test_every_class_has_its_share_held_out_and_is_learned(share):
    truth = Target(np.repeat([0, 1, 2], [1, 59, 140]), ["rare", "some", "many"])
    train, held = truth.split(share, 3)
    np.testing.assert_array_equal(np.sort([*train, *held]), np.arange(200))
    assert 0 in train
    counts = np.bincount(truth.values[held], minlength=3)
    np.testing.assert_allclose(counts, [0, 59 * share, 140 * share], atol=1)


def test_ids_are_not_learned_from_and_stand_before_predictions(data, tmp_path):
    """As they are written, also where they look like a missing cell."""
    table = list(csv.reader(data.read_text().splitlines()))
    ids = [f"00{i}" for i in range(299)] + ["NA"]
    rows = [[mark, *row[1:]] for mark, row in zip(ids, table[1:], strict=True)]
    named = write(tmp_path / "named.csv", ["key", *table[0][1:]], rows)
    report = fit_table(named, "grade", tmp_path / "model", id="key", drop=["y"], num_members=5, steps=10)
    assert "key" not in report.columns and "key" not in report.left_out
    assert load_model(tmp_path / "model").id == "key"
    predict_table(tmp_path / "model", named, tmp_path / "p.csv.gz")
    with gzip.open(tmp_path / "p.csv.gz", "rt", newline="") as file:
        said = list(csv.DictReader(file))
    assert list(said[0])[:2] == ["key", "class"]
    assert [row["key"] for row in said] == ids
    # asked for by name, and without it
    predict_table(tmp_path / "model", named, tmp_path / "p.csv", id="name")
    assert (tmp_path / "p.csv").read_text().splitlines()[1].startswith("person 0,")
    words = []
    predict_table(tmp_path / "model", data, tmp_path / "p.csv", words.append)
    assert words == [f"{data} has no column 'key', the id column of the fit; predictions have no ids"]
    words.clear()
    predict_table(tmp_path / "model", named, tmp_path / "p.csv", words.append, id="size")
    assert words == [
        "the model also uses the id column 'size' as a feature; if it should not, fit again with id='size'"
    ]
    with pytest.raises(ValueError, match="id='kee' is unknown; did you mean 'key'"):
        predict_table(tmp_path / "model", named, tmp_path / "p.csv", id="kee")
    with pytest.raises(ValueError, match="id='grade' is unknown"):
        fit_table(named, "grade", tmp_path / "other", id="grade")


def test_a_prediction_never_takes_the_name_of_the_ids(number, data, tmp_path):
    out, _, _ = number
    said = []
    renamed = tmp_path / "renamed.csv"
    renamed.write_text(data.read_text().replace(",name,", ",mean,", 1))
    predict_table(out, renamed, tmp_path / "p.csv", said.append, id="mean")
    header, first = (tmp_path / "p.csv").read_text().splitlines()[:2]
    assert header == "mean,predicted_mean,epistemic_std,total_std"
    assert first.startswith("person 0,")
    assert said == ["the id column 'mean' has the name of a prediction; the prediction is called 'predicted_mean'"]


def test_the_estimator_of_a_folder_is_loaded_by_its_class(number, grade, data, tmp_path):
    out, _, _ = number
    model = PriorEnsembleRegressor.load(out)
    rows = tables.as_fitted(tables.read(data), model.encoding_)
    np.testing.assert_array_equal(model.predict(rows), load_model(out).estimator.predict(rows))
    with pytest.raises(BadFile, match="holds a PriorEnsembleClassifier, not a PriorEnsembleRegressor"):
        PriorEnsembleRegressor.load(grade[0])
    with pytest.raises(FileNotFoundError, match=r"is a folder without a model\.safetensors; pass a file that save\(\)"):
        PriorEnsembleRegressor.load(tmp_path)


def test_intervals_are_written_and_measured(number, grade, data, tmp_path):
    out, fitted, _ = number
    found = predict_table(out, data, tmp_path / "p.csv", interval=0.8)
    with (tmp_path / "p.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert list(rows[0]) == ["mean", "epistemic_std", "total_std", "low", "high"]
    bounds = load_model(out).estimator.predict_interval(
        tables.as_fitted(tables.read(data), load_model(out).estimator.encoding_), 0.8
    )
    np.testing.assert_allclose(
        [[float(row["low"]), float(row["high"])] for row in rows], np.stack(bounds, 1), rtol=1e-7
    )
    assert fitted.calibration.intervals[0].level == 0.9 and 0.75 < fitted.calibration.intervals[0].coverage <= 1
    assert any("coverage of 0.9 intervals" in line for line in fitted.calibration.summary())
    # the file has the target: rows with one are scored, with the same intervals
    assert (found.scored_rows, found.calibration.intervals[0].level) == (295, 0.8)
    truth = np.array([row[6] for row in list(csv.reader(data.read_text().splitlines()))[1:]])
    inside = [float(r["low"]) <= float(y) <= float(r["high"]) for r, y in zip(rows, truth, strict=True) if y]
    assert found.calibration.intervals[0].coverage == pytest.approx(np.mean(inside))
    predict_table(out, data, tmp_path / "j.csv", interval=0.8, interval_method="jackknife")
    with (tmp_path / "j.csv").open(newline="") as file:
        low = [float(row["low"]) for row in csv.DictReader(file)]
    estimator = load_model(out).estimator
    table = tables.as_fitted(tables.read(data), estimator.encoding_)
    np.testing.assert_allclose(low, estimator.predict_interval(table, 0.8, method="jackknife")[0], rtol=1e-7)
    with pytest.raises(ValueError, match="interval_method='jackknife' has no effect without intervals"):
        predict_table(out, data, tmp_path / "p.csv", interval_method="jackknife")
    with pytest.raises(ValueError, match=r"interval=0\.999 needs at least 999 training rows"):
        predict_table(out, data, tmp_path / "p.csv", interval=0.999)
    with pytest.raises(ValueError, match=r"interval=0\.9 is for numbers, but the model predicts one of 2 classes"):
        predict_table(grade[0], data, tmp_path / "p.csv", interval=0.9)


def test_predictions_are_scored_where_the_target_is_known(number, grade, tmp_path):
    header, said = ["size", "city", "age", "grade"], []
    rows = [[2, "Rome", 30, "hi"], [-2, "Rome", 30, "lo"], [0, "Oslo", 30, ""], [0, "Bern", 30, "so"]]
    found = predict_table(grade[0], write(tmp_path / "new.csv", header, rows), tmp_path / "p.csv", said.append)
    assert (found.scored_rows, found.calibration.rows, found.calibration.kind) == (2, 2, "class")
    assert found.calibration.confusion == ((1, 0), (0, 1)) and found.calibration.balanced == 1.0
    assert said == ["rows whose 'grade' was not among the classes are not scored: so"]
    no_target = write(tmp_path / "none.csv", header[:3], [row[:3] for row in rows])
    assert predict_table(grade[0], no_target, tmp_path / "p.csv").calibration is None
    odd = write(tmp_path / "odd.csv", ["size", "city", "age", "y"], [[2, "Rome", 30, "much"]])
    found = predict_table(number[0], odd, tmp_path / "p.csv", said.append)
    assert found.calibration is None and "predictions are not scored" in said[-1] and "'much'" in said[-1]


def test_the_report_page_shows_scores_residuals_and_doubtful_rows(number, grade, tmp_path):
    page = (number[0] / "report.html").read_text()
    assert "<h1>y, from data.csv</h1>" in page and "59 held-out rows" in page
    for part in ("scores", "calibration", "residuals", "doubtful", "columns"):
        assert f'<section id="{part}">' in page
    assert page.count("data:image/svg+xml") == 2 and "://" not in re.sub(r"base64,[\w+/=]+", "", page)
    assert len(re.findall(r"<th scope=\"row\">line \d+</th>", page)) == measuring.MOST_DOUBTFUL
    page = (grade[0] / "report.html").read_text()
    assert "Confusion matrix" in page and "Brier score" in page and '<section id="residuals">' not in page
    # of a file without the target, with text that would be code, and a row far from all others
    evil = "<script>alert(1)</script>"
    rows = [[0, "Rome", 30, "a"], [50, "Rome", 30, evil], [0, evil, 30, "c"]]
    new = write(tmp_path / "new.csv", ["size", "city", "age", "key"], rows)
    found = predict_table(number[0], new, tmp_path / "p.csv", id="key", page=tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert found.paths == (tmp_path / "p.csv", tmp_path / "page.html")
    assert "<script>" not in page and "&lt;script&gt;alert(1)&lt;/script&gt; (line 3)" in page
    assert "size = 50 (outside the training range, " in page
    assert '<section id="scores">' not in page
    with pytest.raises(ValueError, match="would be overwritten"):
        predict_table(number[0], new, tmp_path / "p.csv", page=new)


@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (400, "dark")])
def test_the_report_page_is_drawn_without_network_and_fits_the_screen(width, scheme, number, grade, browser):  # noqa: F811
    for folder, pictures in ((number[0], 2), (grade[0], 1)):
        browser.open(folder / "report.html", width=width, scheme=scheme)
        assert browser.complaints() == []
        asked = [url for url in browser.asked_for() if not url.startswith("data:image/svg+xml")]
        assert asked == [(folder / "report.html").as_uri()]
        assert browser.value("[...document.images].filter(image => image.naturalWidth > 100).length") == pictures
        assert browser.value("document.documentElement.scrollWidth <= innerWidth")


def zeros_and_ones(path):
    return table(path, a=np.linspace(-1, 1, 60), y=[int(i >= 30) for i in range(60)])


def test_two_numbers_are_not_taken_for_a_regression_without_a_word(tmp_path):
    path, asked = zeros_and_ones(tmp_path / "t.csv"), []
    with pytest.raises(ValueError, match=r'holds only the numbers 0 and 1; pass kind="class" .* kind="number"'):
        fit_table(path, "y", tmp_path / "model")
    for answer, kind in ((True, "class"), (False, "number")):
        report = fit_table(
            path,
            "y",
            tmp_path / kind,
            num_members=2,
            steps=2,
            ask=lambda question, answer=answer: asked.append(question) or answer,
        )
        assert report.kind == kind
    assert asked == ["'y' holds only the numbers 0 and 1. Are they class labels?"] * 2


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_on_a_terminal_the_command_asks_and_elsewhere_it_says_what_to_pass(tmp_path, monkeypatch, capsys):
    path = zeros_and_ones(tmp_path / "t.csv")
    words = ["fit", str(path), "--target", "y", "--num-members", "2", "--steps", "2", "--out"]
    assert main([*words, str(tmp_path / "model")]) == 2
    error = " ".join(capsys.readouterr().err.split())
    assert "--target y holds only the numbers 0 and 1; pass --kind class" in error
    assert "kind=" not in error
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setattr("sys.stdin", Terminal("y\n"))
    assert main([*words, str(tmp_path / "model")]) == 0
    shown = " ".join(re.sub(r"\x1b\[[\d;?]*\w", "", capsys.readouterr().out).split())
    assert "Are they class labels?" in shown
    assert "each class against the rest" in shown and "recall" in shown and "AUC (ROC curve)" in shown
    monkeypatch.setattr("sys.stdin", Terminal(""))
    assert main([*words, str(tmp_path / "other")]) == 2
    assert not (tmp_path / "other").exists()


def test_each_class_is_scored(grade):
    """Against scikit-learn's own report, on numbers; and in the file."""
    from sklearn.metrics import classification_report, roc_auc_score

    random = np.random.default_rng(4)
    proba = random.dirichlet(np.ones(4), size=200)
    truth = np.array([random.choice(4, p=row) for row in proba])
    truth[truth == 3] = 0  # a class that does not come
    found = calibration.of_classes(truth, proba, 0, [*"abcd"])
    theirs = classification_report(
        truth, proba.argmax(1), labels=range(4), target_names=[*"abcd"], output_dict=True, zero_division=0.0
    )
    for number, score in enumerate(found.classes):
        wanted = theirs[score.name]
        assert (score.precision, score.recall, score.f1) == (wanted["precision"], wanted["recall"], wanted["f1-score"])
        assert score.rows == wanted["support"]
        assert score.auc == (None if number == 3 else roc_auc_score(truth == number, proba[:, number]))
    assert found.auc == pytest.approx(np.mean([score.auc for score in found.classes[:3]]))
    assert found.class_summary()[4][0::5] == ("d", "-")
    out, report = grade
    written = json.loads((out / "calibration.json").read_text())
    assert [score["name"] for score in written["classes"]] == ["hi", "lo"]
    assert written["auc"] == report.calibration.auc > 0.9
    assert calibration.Calibration.from_json(written) == report.calibration


def test_a_model_is_inspected(number, grade, capsys, tmp_path):
    facts = dict(inspect_model(number[0]))
    assert facts["model"] == "of 'y', a number"
    assert facts["columns"] == "size (number), city (text), age (number)"
    assert facts["fitted to"] == "236 rows, in 200 steps"
    assert facts["measured on"] == "59 held-out rows" and facts["checksums"] == "all valid"
    assert main(["inspect", str(grade[0])]) == 0
    shown = capsys.readouterr().out
    assert "one of 2 classes: hi, lo" in shown and "verdict" in shown
    for name in FILES:
        (tmp_path / name).write_bytes((grade[0] / name).read_bytes())
    for text in ("{}", "[", '{"kind": 1e999}'):
        (tmp_path / "calibration.json").write_text(text)
        with pytest.raises(BadFile, match=r"calibration\.json"):
            inspect_model(tmp_path)


def test_errors_of_the_command_are_in_its_own_words(data, tmp_path, capsys):
    wrong = {
        "--held-out 0.9 must be at least 0 and at most 0.5; pass for example --held-out 0.2": ["--held-out", "0.9"],
        "--id 'a b' is unknown": ["--id", "a b"],
        "--drop agee is unknown; did you mean 'age'": ["--drop", "agee"],
        "--encoding klingon is unknown": ["--encoding", "klingon"],
    }
    for words, options in wrong.items():
        assert main(["fit", str(data), "--target", "y", "--out", str(tmp_path / "model"), *options]) == 2
        assert words in " ".join(capsys.readouterr().err.split())


def test_an_option_that_is_repeated_counts_every_time():
    words = ["fit", "t.csv", "--drop", "a", "--target", "y", "--drop", "b", "c", "--out", "m", "--drop=d"]
    found = parse(words)
    assert (found.drop, found.target) == (("a", "b", "c", "d"), "y")
    assert parse(["train", "--set", "epsilon=0.2", "--set", "hold=2"]).set == ("epsilon=0.2", "hold=2")
