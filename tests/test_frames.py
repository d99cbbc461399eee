"""Data frames in and out: text, dates and missing cells in the estimators; errors with a remedy; explanations."""

import datetime
import decimal
import sys
import warnings

import numpy as np
import pandas as pd
import polars
import pytest
from sklearn.base import clone

from priorax import PriorEnsembleClassifier, PriorEnsembleRegressor
from priorax.estimators import tables
from priorax.estimators.encoding import learn
from priorax.estimators.frames import table_of
from priorax.files import BadFile, read, write

SMALL = {"num_members": 5, "hidden_widths": (20,), "steps": 200, "learning_rate": 1e-2, "random_state": 0}
SHIFT = {"Rome": 0.0, "Oslo": 3.0, "Bern": -3.0}


def houses(n=160):
    """Numbers with gaps, categories, text with gaps, dates and booleans."""
    random = np.random.default_rng(0)
    size, city = random.normal(size=n), random.choice(list(SHIFT), n)
    age = np.where(random.random(n) < 0.1, np.nan, random.uniform(20, 60, n))
    frame = pd.DataFrame(
        {
            "size": size,
            "city": pd.Categorical(city),
            "age": age,
            "heating": np.where(random.random(n) < 0.2, None, random.choice(["gas", "wood"], n)),
            "sold": pd.Timestamp("2020-01-01") + pd.to_timedelta(random.integers(0, 900, n), unit="D"),
            "garden": random.random(n) < 0.5,
        },
        index=[f"house {i}" for i in range(n)],
    )
    price = 2 * size + np.array([SHIFT[name] for name in city]) + 0.3 * random.normal(size=n)
    return frame, pd.Series(price, index=frame.index, name="price")


FRAME, PRICE = houses()


@pytest.fixture(scope="module")
def regressor():
    return PriorEnsembleRegressor(encode=True, **SMALL).fit(FRAME, PRICE)


@pytest.fixture(scope="module")
def classifier():
    cheap = np.where(PRICE > 0, "dear", "cheap")
    return PriorEnsembleClassifier(encode=True, **SMALL).fit(FRAME, cheap)


def test_text_dates_and_missing_cells_are_learned_from(regressor):
    assert regressor.score(FRAME, PRICE) > 0.8
    assert regressor.n_features_in_ == 6 and list(regressor.feature_names_in_) == list(FRAME.columns)
    assert [column.kind for column in regressor.encoding_.columns] == [
        "number",
        "text",
        "number",
        "text",
        "date",
        "number",
    ]
    assert regressor.encoding_.columns[3].categories == ("", "gas", "wood")
    assert regressor.left_out_ == {}


def test_a_csv_file_and_a_data_frame_are_encoded_alike(tmp_path):
    FRAME.to_csv(tmp_path / "t.csv", index=False)
    names = [name for name in FRAME.columns if name != "garden"]  # True is text in a CSV file
    cells = tables.typed(tables.read(tmp_path / "t.csv"), names)
    frame = table_of(FRAME[names])
    ours, theirs = learn(frame).features, learn(cells).features
    np.testing.assert_array_equal(ours.transform(frame), theirs.transform(cells))
    strings = table_of(FRAME[names].astype({"sold": str}))
    np.testing.assert_array_equal(learn(strings).features.transform(strings), ours.transform(frame))


def test_what_is_saved_encodes_and_predicts_the_same_to_the_bit(regressor, classifier, tmp_path):
    for model in (regressor, classifier):
        model.save(tmp_path / "model")
        again = type(model).load(tmp_path / "model")
        assert again.encoding_ == model.encoding_ and again.left_out_ == model.left_out_
        for ours, theirs in zip(model.predict_uncertainty(FRAME), again.predict_uncertainty(FRAME), strict=True):
            np.testing.assert_array_equal(ours, theirs)
        assert again.explain(FRAME[:2]) == model.explain(FRAME[:2])


def test_an_encoding_that_does_not_fit_is_a_bad_file(regressor, tmp_path):
    regressor.save(tmp_path / "model")
    content = read(tmp_path / "model")
    columns = content.description["encoding"]["columns"]
    changes = [
        [],
        columns[:-1],
        columns * 2,
        3,
        [{**columns[0], "median": "1e400"}, *columns[1:]],
        [{**columns[0], "name": "other"}, *columns[1:]],
        [{**columns[0], "kind": "shell"}, *columns[1:]],
        [{**columns[0], "has_missing": 7}, *columns[1:]],
        [columns[0], {**columns[1], "categories": ["Rome", "Rome", "Oslo"]}, *columns[2:]],
        [*columns[:4], {**columns[4], "format": "%s"}, columns[5]],
        [*columns[:4], {**columns[4], "cycles": ["month", "week"]}, columns[5]],
    ]
    for change in changes:
        description = {**content.description, "encoding": {"columns": change}}
        write(tmp_path / "file", content._replace(description=description))
        with pytest.raises(BadFile):
            PriorEnsembleRegressor.load(tmp_path / "file")


def test_predictions_are_series_and_frames_if_asked_for(regressor, classifier):
    model = clone(regressor.set_output(transform="pandas"))
    few = FRAME[:3]
    mean, std = regressor.predict(few, return_std=True)
    assert model._sklearn_output_config == {"transform": "pandas"}
    assert isinstance(mean, pd.Series) and mean.name == "price" and list(std.index) == list(few.index)
    parts = pd.DataFrame(regressor.predict_uncertainty(few)._asdict())
    assert list(parts.columns) == ["mean", "epistemic", "aleatoric", "total"]
    low, high = regressor.predict_interval(few)
    assert bool((low < high).all()) and regressor.score(few, PRICE[:3]) > 0
    arrays = regressor.set_output(transform="default").predict(few)
    np.testing.assert_array_equal(arrays, mean)
    assert isinstance(arrays, np.ndarray)
    proba = classifier.set_output(transform="pandas").predict_proba(few)
    assert list(proba.columns) == ["cheap", "dear"] and list(proba.index) == list(few.index)
    assert list(classifier.predict(few)) == list(proba.idxmax(axis=1))
    assert classifier.predict(few).name == "y"
    assert list(classifier.predict_log_proba(few).columns) == ["cheap", "dear"]
    classifier.set_output(transform="default")
    with pytest.raises(ValueError, match="transform='panda' is unknown; did you mean 'pandas'"):
        regressor.set_output(transform="panda")


def test_without_pandas_arrays_are_encoded_and_the_remedy_is_named(regressor, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert learn(table_of([[1.0, "a"], [None, "b"], [2.0, "a"], [3.0, "b"]])).features.size == 4
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ImportError, match="pip install pandas"):
        regressor.set_output(transform="pandas")


def test_several_outputs_have_their_names():
    numbers = FRAME[["size"]]
    both = pd.DataFrame({"price": PRICE, "twice": 2 * PRICE})
    model = PriorEnsembleRegressor(**{**SMALL, "steps": 2}).fit(numbers, both).set_output(transform="pandas")
    assert list(model.predict(numbers[:2]).columns) == ["price", "twice"]
    assert model.explain(numbers[:1])[0].causes[0].column == "size"
    model.fit(numbers.to_numpy(), both.to_numpy())
    assert list(model.predict(numbers[:2].to_numpy()).columns) == ["y0", "y1"]


def test_unknown_categories_and_missing_cells_are_predicted_with_a_warning(regressor):
    new = FRAME[:3].assign(city=["Lima", "Rome", None], heating=[None] * 3, age=[None, 30, "nan"])
    with pytest.raises(ValueError, match="X has 'nan' in column 'age', row 2, which is not a number"):
        regressor.predict(new)
    new["age"] = [np.nan] * 3
    with pytest.warns(UserWarning, match="'city' of X has categories that were not in the training data: Lima"):
        mean, std = regressor.predict(new, return_std=True)
    assert np.all(np.isfinite(mean)) and np.all(std > 0)


def test_ids_names_and_constants_are_left_out_with_a_warning():
    n = len(FRAME)
    odd = FRAME[["size"]].assign(house_id=range(n), one=1.0, who=[f"p{i % 90}" for i in range(n)])
    with pytest.warns(UserWarning) as said:
        model = PriorEnsembleRegressor(encode=True, **{**SMALL, "steps": 2}).fit(odd, PRICE)
    assert [str(warning.message).split(";")[0] for warning in said] == [
        "column 'house_id' of X is different in every row, like an id",
        "column 'one' of X is 1.0 in every row",
        "column 'who' of X has 90 categories in 160 rows (at most 50), like a column of names",
    ]
    assert list(model.left_out_) == ["house_id", "one", "who"] and model._width == 1
    with pytest.raises(ValueError, match="no column to learn from"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        PriorEnsembleRegressor(encode=True).fit(odd[["one"]], PRICE)


def test_arrays_and_lists_of_objects_are_tables_too():
    rows = [[1, "a", decimal.Decimal("1.5"), datetime.date(2024, 1, 31)], [np.nan, None, None, None]]
    rows += [[True, "b", 2.5, datetime.datetime(2024, 2, 1, 12)]]
    table = table_of(rows)
    assert [(name, column.kind) for name, column in table.columns.items()] == [
        *(("x0", "number"), ("x1", "text"), ("x2", "number"), ("x3", "date"))
    ]
    assert table.row(1) == dict.fromkeys(["x0", "x1", "x2", "x3"])
    assert table.row(2) == {"x0": 1.0, "x1": "b", "x2": 2.5, "x3": "2024-02-01 12:00"}
    nullable = pd.DataFrame({"a": pd.array([1, None], "Int64"), "b": pd.array(["x", None], "string")})
    assert table_of(nullable).row(0) == {"a": 1.0, "b": "x"} and table_of(nullable).row(1) == {"a": None, "b": None}
    zoned = pd.DataFrame({"at": pd.to_datetime(["2024-01-01 01:00", None]).tz_localize("Europe/Rome")})
    assert table_of(zoned).row(0) == {"at": "2024-01-01"} and table_of(zoned).row(1) == {"at": None}


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        ({"a": [1.0, "x"]}, r"X mixes kinds in column 'a': 1.0 in row 0 is a number, 'x' in row 1 a text"),
        ({"a": [1.0, np.inf]}, "column 'a', contains infinity or a value too large"),
        ({"a": pd.to_timedelta([1, 2], unit="D")}, r"timedelta64.* in column 'a'; convert it to its seconds"),
        ({"a": [1.0, {}]}, "argument must be a string, a number or a date"),
        ({}, "0 feature"),
    ],
)
def test_columns_that_cannot_be_encoded_are_named(frame, words):
    with pytest.raises(ValueError, match=words):
        PriorEnsembleRegressor(encode=True).fit(pd.DataFrame(frame, index=range(2)), [1.0, 2.0])


@pytest.mark.parametrize(
    ("settings", "X", "y", "words"),
    [
        ({}, FRAME[["size", "city"]], PRICE, r"not numbers: city\); pass encode=True"),
        ({}, FRAME[["age"]], PRICE, "NaN(.|\n)*pass encode=True"),
        ({}, FRAME[["size"]], ["dear"] * len(FRAME), "y has text; use PriorEnsembleClassifier"),
        ({"encode": "yes"}, FRAME, PRICE, "encode='yes' must be True or False"),
        ({"encode": True}, pd.concat([FRAME, FRAME], axis=1), PRICE, "more than once"),
        ({"encode": True}, FRAME, PRICE[:5], "inconsistent numbers of samples"),
    ],
)
def test_errors_come_before_training_and_name_the_remedy(settings, X, y, words):
    with pytest.raises(ValueError, match=words):
        PriorEnsembleRegressor(**settings).fit(X, y)


def test_a_stream_keeps_the_encoding_of_its_first_part():
    model = PriorEnsembleRegressor(encode=True, **{**SMALL, "partial_steps": 2})
    few = FRAME[["size", "city"]]
    model.partial_fit(few[:80], PRICE[:80])
    before = model.encoding_
    model.partial_fit(few[80:], PRICE[80:])
    assert model.encoding_ is before and model.n_seen_ == 160
    assert not hasattr(model.set_params(encode=False, steps=2).fit(FRAME[["size"]], PRICE), "encoding_")


def test_an_explanation_names_the_column_that_is_far_from_the_data(regressor, classifier):
    odd = FRAME[:3].copy()
    odd.loc[odd.index[0], "size"] = 9.0
    odd.loc[odd.index[1], "age"] = 300.0
    odd["city"] = ["Rome", "Rome", "Lima"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        far, old, strange = regressor.explain(odd)
        doubt = regressor.predict(odd, return_std=True)[1]
    for found, std, column in zip((far, old, strange), doubt, ("size", "age", "city"), strict=True):
        cause = found.causes[0]
        assert cause.column == column and cause.outside
        assert found.doubt == pytest.approx(std) and cause.doubt_without < 0.8 * found.doubt
        assert {each.column for each in found.causes} == {*FRAME.columns}
    assert far.causes[0].value == 9.0 and far.causes[0].gap > 5
    assert strange.causes[0].value == "Lima" and set(strange.causes[0].nearest) <= {*SHIFT}
    assert far.distance > 2 * far.usual_distance and far.more_than == 1.0
    relevance = {cause.column: cause.relevance for cause in far.causes}
    assert max(relevance.values()) == 1 and relevance["garden"] < 0.5 < relevance["city"]
    assert "- size = 9 (outside the training range, " in str(far)
    assert "): training rows alike in the other columns have" in str(far)
    known = regressor.explain(FRAME[:1])[0]
    assert known.distance == pytest.approx(0, abs=1e-4) and "which is usual" in str(known)
    assert classifier.explain(FRAME[:1], num_nearest=2)[0].causes[0].relevance >= 0
    with pytest.raises(ValueError, match="num_nearest=0"):
        regressor.explain(FRAME, num_nearest=0)


def test_an_explanation_says_how_a_value_is_unusual():
    """Outside the range of all training rows, not of a sample; or inside of it, but not beside the other columns."""
    random = np.random.default_rng(0)
    first = random.standard_normal(3000)
    x = np.stack([first, first + 0.01 * random.standard_normal(3000)], axis=1)
    settings = {**SMALL, "steps": 200, "num_members": 10}
    model = PriorEnsembleRegressor(**settings).fit(x, first)
    top = x[np.argmax(x[:, 0])]
    assert model.anchors_[:, 0].max() * model.x_scale_[0] + model.x_mean_[0] < top[0], "the sample does not have it"
    assert not any(cause.outside for cause in model.explain(top[None])[0].causes)
    far, apart = model.explain([[50.0, 0.0], [1.5, -1.5]])
    words = far.words(next(cause for cause in far.causes if cause.column == "x0"))
    low, high = x[:, 0].min(), x[:, 0].max()
    assert words.startswith(f"x0 = 50 (outside the training range, {low:.4g} to {high:.4g}): training rows alike")
    words = apart.words(apart.causes[0])
    assert " (in the training data, but not together with the other columns): " in words
    same = model.explain(x[:1])[0]
    assert all("(as in training rows alike in the other columns)" in same.words(cause) for cause in same.causes)


def test_predictions_are_frames_of_polars_if_asked_for():
    frame = polars.from_pandas(FRAME[["size", "age"]].fillna(0.0).reset_index(drop=True))
    y = polars.Series("price", PRICE)
    model = PriorEnsembleRegressor(**{**SMALL, "steps": 2}).fit(frame, y)
    plain = model.predict(frame)
    assert isinstance(plain, np.ndarray)
    mean, std = model.set_output(transform="polars").predict(frame, return_std=True)
    assert isinstance(mean, polars.Series) and mean.name == "price"
    np.testing.assert_array_equal(mean.to_numpy(), plain)
    assert isinstance(std, polars.Series)
    labels = np.where(np.median(PRICE) < PRICE, "dear", "cheap")
    proba = PriorEnsembleClassifier(**{**SMALL, "steps": 2}).fit(frame, labels).set_output(transform="polars")
    assert proba.predict_proba(frame).columns == ["cheap", "dear"]
    with pytest.raises(ValueError, match="transform='dask' is unknown"):
        model.set_output(transform="dask")
