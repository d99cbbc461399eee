"""Files from strangers: small ones that ask for much, and hundreds of mutations of good ones. Whatever comes, loading
gives a model that predicts, or a `BadFile`; nothing is run, and memory follows from the size of the file."""

import copy
import json
import resource
import struct

import jax
import numpy as np
import pytest

from conftest import init
from priorax import PriorEnsembleClassifier, PriorEnsembleRegressor, load, save
from priorax.beliefs import method
from priorax.files import BadFile, Content, read, write
from priorax.networks import MLP

X = np.random.default_rng(0).standard_normal((20, 3)).astype(np.float32)
QUICK = {"num_members": 2, "hidden_widths": (4,), "steps": 2, "random_state": 0}
MEGABYTES = 1024  # of ru_maxrss


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    """A file of each kind, by the function that loads it."""
    folder = tmp_path_factory.mktemp("originals")
    PriorEnsembleRegressor(**QUICK, heteroscedastic=True).fit(X, X[:, :2]).save(folder / "regressor")
    PriorEnsembleClassifier(**QUICK).fit(X, np.where(X[:, 0] > 0, "yes", "no")).save(folder / "classifier")
    belief, _ = method("bsp", network=MLP((4,)), num_members=2)
    save(folder / "belief", belief, init(belief, jax.random.key(0), X[0]), X[0])
    return folder


LOAD = {"regressor": PriorEnsembleRegressor.load, "classifier": PriorEnsembleClassifier.load, "belief": load}


def loads_or_is_bad(kind, path):
    """True if it was loaded; it must then predict, in the shapes that it says it has."""
    try:
        found = LOAD[kind](path)
    except BadFile:
        return False
    if kind == "belief":
        belief, state = found
        drawn = jax.eval_shape(lambda s, x: belief.value(s, belief.draw(s, jax.random.key(1)), x), state, X[0])
        assert drawn.shape == (belief.num_outputs,)
    elif found.n_features_in_ == 3:
        mean = np.asarray(found.predict(X))
        assert mean.shape == ((20,) if found.flat_y_ else (20, found.n_outputs_))
    return True


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def at(tree, path):
    for step in path:
        tree = tree[step]
    return tree


def nodes(tree, path=()):
    """The paths of everything in a description."""
    yield path
    parts = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for step, part in parts:
        yield from nodes(part, (*path, step))


ODD = [
    *(None, True, -1, 0, 1, 2, 7, 300_000_000, 10**19, 0.0, -0.5, 1e30, 1e-300, 1e300, "", "x", "ravel", [], {}, [[]]),
    *({"array": [1.0, 2.0], "dtype": "float64"}, {"array": [], "dtype": "float64"}, {"array": [["a"]], "dtype": "<U1"}),
    *({"array": ["a", "b"], "dtype": "U100000000"}, {"array": [1e300], "dtype": "float32"}),
    *({"tuple": [1, 2]}, {"list": []}, {"function": "system"}, {"own": "x"}, {"kind": "os.system", "fields": {}}),
    *({"kind": "MLP", "fields": {"widths": {"tuple": [10**9]}}}, {"kind": "head.Scalar", "fields": {"size": 0}}),
    *({"kind": "Table", "fields": {"num_rows": 10**9}}, {"kind": "Ensemble", "fields": {}}),
    *({"shape": [10**12], "dtype": "float32"}, {"shape": [3], "dtype": "O"}, {"shape": [-3], "dtype": "float32"}),
]


@pytest.mark.parametrize("kind", LOAD)
def test_any_change_of_a_description_gives_a_model_or_a_bad_file(kind, originals, tmp_path):
    """Every place in it is left out once and replaced by something odd a few times; the checksum is made anew."""
    random, content, before = np.random.default_rng(1), read(originals / kind), peak()
    paths = [path for path in nodes(content.description) if path]
    assert len(paths) > 20
    loaded = 0
    for path in paths:
        for odd in (..., *(ODD[i] for i in random.choice(len(ODD), 3, replace=False))):
            description = copy.deepcopy(content.description)
            if odd is ...:
                del at(description, path[:-1])[path[-1]]
            else:
                at(description, path[:-1])[path[-1]] = odd
            write(tmp_path / "file", content._replace(description=description))
            loaded += loads_or_is_bad(kind, tmp_path / "file")
    assert 0 < loaded < 2 * len(paths), "of four times as many"
    assert peak() - before < 300 * MEGABYTES


def changed_arrays(arrays, random):
    """One array is other than it should be."""
    name = str(random.choice(sorted(arrays)))
    array, others = arrays[name], {key: value for key, value in arrays.items() if key != name}
    yield others
    yield {**arrays, "state.more": array}
    yield {**others, name + "x": array}
    for other in (array[..., None], array.ravel(), array[:0], array.astype(np.float64), array.astype(np.int8)):
        if (other.shape, other.dtype) != (array.shape, array.dtype):
            yield {**others, name: other}
    if array.dtype.kind == "f" and array.size:
        for bad in (np.nan, np.inf):
            other = array.copy()
            other.flat[random.integers(array.size)] = bad
            yield {**others, name: other}


@pytest.mark.parametrize("kind", LOAD)
def test_arrays_that_do_not_fit_or_are_not_finite_are_bad_files(kind, originals, tmp_path):
    random, content = np.random.default_rng(2), read(originals / kind)
    for _ in range(6):
        for arrays in changed_arrays(content.arrays, random):
            write(tmp_path / "file", content._replace(arrays=arrays))
            assert not loads_or_is_bad(kind, tmp_path / "file")


@pytest.mark.parametrize("kind", LOAD)
def test_any_change_of_bytes_is_a_bad_file(kind, originals, tmp_path):
    random, good = np.random.default_rng(3), (originals / kind).read_bytes()
    path = tmp_path / "file"
    for _ in range(150):
        raw = bytearray(good)
        # two thirds of the changes are in the header, where they do more
        place = int(random.integers(len(raw) if random.random() < 1 / 3 else min(len(raw), 3000)))
        match random.integers(4):
            case 0:
                raw[place] ^= 1 << int(random.integers(8))
            case 1:
                del raw[place : place + int(random.integers(1, 9))]
            case 2:
                raw[place:place] = random.bytes(int(random.integers(1, 9)))
            case 3:
                del raw[place:]
        path.write_bytes(raw)
        with pytest.raises(BadFile):
            LOAD[kind](path)


def rewrite_header(path, change):
    raw = path.read_bytes()
    (length,) = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8 : 8 + length])
    change(header)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + raw[8 + length :])


def test_headers_with_odd_types_and_shapes_are_bad_files(originals, tmp_path):
    name = sorted(read(originals / "belief").arrays)[-1]
    odd = [{"dtype": word} for word in ("F64", "I8", "BF16", "F8_E4M3", "F8_E8M0", "F4", "C64", "OBJECT", "", None, 3)]
    odd += [{"shape": shape} for shape in ([], [-1], [10**30], [0, 2**62], [2**40, 2**40], "3", [1] * 100, [[1]])]
    odd += [{"data_offsets": offsets} for offsets in ([0, 10**15], [10, 0], [0], [2**64, 2**64 + 8], [-4, 4])]
    for change in odd:
        (tmp_path / "file").write_bytes((originals / "belief").read_bytes())
        rewrite_header(tmp_path / "file", lambda header, change=change: header[name].update(change))
        assert not loads_or_is_bad("belief", tmp_path / "file"), change
    for text in ("[" * 100_000, '{"a":' * 50_000, "9" * 5000):
        (tmp_path / "file").write_bytes(struct.pack("<Q", len(text)) + text.encode())
        with pytest.raises(BadFile):
            load(tmp_path / "file")


@pytest.mark.parametrize(
    "text",
    [
        *(
            "[" * 100_000,
            '{"belief":' * 50_000,
            '{"belief": ' + "9" * 5000 + "}",
            '{"belief": 1e999}',
            '{"belief": NaN}',
        ),
        *("{", "", "nothing", "\ud800".encode("utf-8", "surrogatepass").decode("latin-1")),
    ],
    ids=lambda text: text[:12],
)
def test_json_that_breaks_readers_is_a_bad_file(text, originals, tmp_path, monkeypatch):
    for kind in LOAD:
        content = read(originals / kind)
        with monkeypatch.context() as patch:  # `write`, but for what it is to say
            patch.setattr("priorax.files.json.dumps", lambda *_, **__: text)
            write(tmp_path / "file", content)
        with pytest.raises(BadFile):
            LOAD[kind](tmp_path / "file")


def changed(originals, kind, tmp_path, **fitted):
    content = read(originals / kind)
    content.description["fitted"].update(fitted)
    write(tmp_path / "file", content)
    return tmp_path / "file"


@pytest.mark.parametrize(
    ("kind", "fitted", "words"),
    [
        ("regressor", {"n_features_in_": 300_000_000}, r"x_mean_ has shape \(3,\) but \(300000000,\) is needed"),
        ("regressor", {"x_scale_": {"array": [1.0], "dtype": "float64"}}, r"x_scale_ has shape \(1,\)"),
        ("regressor", {"x_scale_": {"array": [1.0, 0.0, 1.0], "dtype": "float64"}}, "x_scale_ .* not above 0"),
        ("regressor", {"y_mean_": {"array": [1.0], "dtype": "float64"}}, r"y_mean_ has shape \(1,\)"),
        ("regressor", {"y_scale_": {"array": [1.0] * 3, "dtype": "float64"}}, r"y_scale_ has shape \(3,\)"),
        ("regressor", {"n_outputs_": 10**12}, r"shape \(2,\) but \(1000000000000,\)"),
        ("regressor", {"flat_y_": True}, "flat_y_=True contradicts n_outputs_=2"),
        ("regressor", {"noise_scale_": {"array": [1.0, 0.0], "dtype": "float64"}}, "noise_scale_ .* not above 0"),
        ("regressor", {"prior_scale_": -1.0}, "prior_scale_=-1.0 must be"),
        ("classifier", {"radius_": 0.0}, "radius_=0.0 must be"),
        ("classifier", {"classes_": {"array": ["a"], "dtype": "<U100000000"}}, "outputs with 1 classes"),
        ("classifier", {"classes_": {"array": ["b", "a"], "dtype": "<U1"}}, "sorted distinct labels"),
        ("classifier", {"classes_": {"array": [*"abc"], "dtype": "<U1"}}, "outputs with 3 classes"),
        ("classifier", {"classes_": {"array": ["a" * 2000, *["b"] * 2000], "dtype": "<U9"}}, "more than the file"),
    ],
)
def test_what_a_fit_left_must_fit_together(kind, fitted, words, originals, tmp_path):
    before = peak()
    with pytest.raises(BadFile, match=words):
        LOAD[kind](changed(originals, kind, tmp_path, **fitted))
    assert peak() - before < 50 * MEGABYTES


def test_words_are_as_wide_as_they_are(originals, tmp_path):
    """The type says 400 megabytes a word; the words have three letters."""
    before = peak()
    path = changed(originals, "classifier", tmp_path, classes_={"array": ["no", "yes"], "dtype": "<U100000000"})
    assert set(PriorEnsembleClassifier.load(path).predict(X)) <= {"no", "yes"}
    assert peak() - before < 50 * MEGABYTES


@pytest.mark.parametrize(
    "network",
    [
        {"kind": "MLP", "fields": {"widths": {"tuple": [10**12]}}},
        {"kind": "Table", "fields": {"num_rows": 10**15}},
        {"kind": "RandomFourier", "fields": {"num_features": 10**12}},
        {"kind": "Around", "fields": {"values": {"tuple": []}}},
        {"kind": "Tabulated", "fields": {"prior": {"kind": "Table", "fields": {"num_rows": 9}}, "num_rows": 10**12}},
    ],
    ids=lambda network: network["kind"],
)
def test_a_small_file_cannot_ask_for_much(network, tmp_path):
    before = peak()
    for outputs in (1, 10**12, 10**30):
        belief = {"kind": "Ensemble", "fields": {"network": network, "num_outputs": outputs}}
        for shape in ([], [10**12], [10**30]):
            x = {"shape": shape, "dtype": "float32"}
            write(tmp_path / "file", Content("belief", {"belief": belief, "x": x}, {}))
            with pytest.raises(BadFile):
                load(tmp_path / "file")
    assert peak() - before < 50 * MEGABYTES


def test_a_model_that_is_not_finite_is_not_saved(originals, tmp_path):
    """It could not be loaded."""
    model = PriorEnsembleRegressor.load(originals / "regressor")
    model.state_ = jax.tree.map(lambda leaf: leaf * np.nan if leaf.dtype.kind == "f" else leaf, model.state_)
    with pytest.raises(ValueError, match="holds NaN or infinity, so nothing is saved"):
        model.save(tmp_path / "model")
    assert not list(tmp_path.iterdir())
