import dataclasses
import json
import struct
import subprocess
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.base import clone

from conftest import forward, init
from priorax import (
    PriorEnsembleClassifier,
    PriorEnsembleRegressor,
    beliefs,
    convnets,
    heads,
    load,
    networks,
    priors,
    save,
)
from priorax.beliefs import (
    L2,
    METHODS,
    Adam,
    Counts,
    Ensemble,
    GaussianCount,
    HashCount,
    Langevin,
    OneHotCount,
    RMSProp,
    SharedTorso,
    TableCount,
    method,
)
from priorax.convnets import Convnet
from priorax.files import BadFile, Content, read, write, write_atomically
from priorax.heads import C51, Classes, Gaussian, Quantiles, Scalar
from priorax.networks import MLP, Dueling, FourierCode, Pair, Table, as_network
from priorax.noise import NOISES
from priorax.noise import Gaussian as GaussianNoise
from priorax.priors import (
    Around,
    Constant,
    Function,
    Independent,
    Linear,
    RandomFourier,
    RandomSize,
    Tabulated,
    UnitRows,
    UnitSize,
)
from priorax.storage import describe, rebuild

KEY = jax.random.key(0)
X = np.random.default_rng(0).standard_normal((20, 3)).astype(np.float32)
SMALL = {"num_members": 3, "hidden_widths": (8,), "steps": 30, "random_state": 0}


def some_state(belief, x):
    """A state of any numbers, which need not be drawn or learned to be saved; so nothing is compiled."""
    random = np.random.default_rng(0)
    shapes = eqx.filter_eval_shape(belief.init, KEY, x)
    return jax.tree.map(lambda leaf: jnp.asarray(random.uniform(0, 9, leaf.shape), leaf.dtype), shapes)


def same_after_loading(path, belief, x):
    state = some_state(belief, x)
    save(path, belief, state, x)
    again, restored = load(path)
    assert again == belief
    assert jax.tree.structure((again, restored)) == jax.tree.structure((belief, state))
    jax.tree.map(np.testing.assert_array_equal, restored, state)


@pytest.mark.parametrize("name", METHODS)
def test_every_belief_comes_back_to_the_bit(name, tmp_path):
    belief, _ = method(name, **({} if name == "exact" else {"network": MLP((6,))}))
    same_after_loading(tmp_path / "belief", belief, X[0])


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_what_every_belief_draws_is_the_same_after_loading(name, tmp_path):
    belief, _ = method(name, **({} if name == "exact" else {"network": MLP((6,))}))
    state = init(belief, KEY, X[0])
    save(tmp_path / "belief", belief, state, X[0])
    again, restored = load(tmp_path / "belief")
    np.testing.assert_array_equal(belief.functions(state, KEY, X, 3), again.functions(restored, KEY, X, 3))


NETWORKS = [
    MLP((4,), activation="tanh", gain=(1.0, 2.0, 3.0), weight_std=0.5),
    Table(5, (4,), bias_scale=0.1),
    Convnet(((2, 2, 1), (3, 2, 1)), (4,), bias_scale=0.1),
    Dueling(MLP((4,), code=FourierCode(6, 0.7, ((0, 2), (1,)), 0.5, (1,), seed=1)), advantage=0.5),
]
PRIORS = [
    Linear(0.5, bias_std=0.1),
    RandomFourier(2.0, num_features=8),
    Constant(),
    Tabulated(Table(5, (4,)), 5),
    Around(((0.0, 1.0),) * 5, std=0.1),
    UnitSize(Linear(), input_scale=(1.0, 2.0, 3.0)),
    UnitSize(Table(5, (4,)), num_rows=5),
    RandomSize(Linear(), 10.0),
    UnitRows(MLP((4,)), 3, 2),
    Independent(MLP((4,)), 2),
]
HEADS = [Scalar(), Gaussian(min_log_std=-3.0), Classes(3), C51(-1.0, 2.0, 5), Quantiles(5, huber=2.0)]
OPTIMIZERS = [Adam(3e-4, clip=1.0), RMSProp(1e-4, clip=None), Langevin(1e-3, inverse_temperature=1e4)]
DENSITIES = [TableCount(5), OneHotCount(), GaussianCount(ridge=0.1), HashCount(bits=4)]
SHARED = SharedTorso(Ensemble(2, MLP(()), prior=MLP((4,))), Convnet(((2, 2, 1),)), num_features=6, optimizer=RMSProp())
OWN_CODE = {Pair, Function}
"""What a user's functions are in."""
INSIDE = {FourierCode}
"""Parts of networks, which are in the lists inside them."""


def example(part):
    """An input that it takes."""
    if isinstance(part, Table | Tabulated | Around | TableCount) or getattr(part, "num_rows", None):
        return np.int32(3)
    return np.ones((4, 4), np.float32) if isinstance(part, Convnet) else np.array([0, 1, 0], np.float32)


def with_part(part):
    """A belief that holds it."""
    small, x = MLP((4,)), example(part)
    if part in HEADS:
        return Ensemble(2, small, head=part)
    if part in OPTIMIZERS:
        return Ensemble(2, small, optimizer=part)
    if part in DENSITIES:
        return Counts(Ensemble(1, Table(5, (4,)) if x.ndim == 0 else small), part)
    if part in PRIORS:
        return Ensemble(2, Table(5, (4,)) if x.ndim == 0 else small, prior=part, num_outputs=2, l2=L2(to="prior"))
    return Ensemble(2, part, prior=part, num_outputs=2)


@pytest.mark.parametrize("part", [*NETWORKS, *PRIORS, *HEADS, *OPTIMIZERS, *DENSITIES], ids=lambda p: type(p).__name__)
def test_every_part_of_ours_is_in_the_file(part, tmp_path):
    same_after_loading(tmp_path / "belief", with_part(part), example(part))


def test_a_shared_torso_is_in_the_file(tmp_path):
    same_after_loading(tmp_path / "belief", SHARED, np.ones((4, 4), np.float32))


def test_no_kind_is_forgotten_above():
    """Whatever these modules have that a belief can hold is in one of the lists."""
    tested = {type(part) for part in (*NETWORKS, *PRIORS, *HEADS, *OPTIMIZERS, *DENSITIES)}
    for module in (networks, convnets, priors, heads, beliefs.gradient, beliefs.counts):
        for kind in vars(module).values():
            ours = dataclasses.is_dataclass(kind) and kind.__module__ == module.__name__
            if ours and not issubclass(kind, eqx.Module):
                assert kind in tested | OWN_CODE | INSIDE, f"add one of {kind} to the lists"


@pytest.mark.parametrize("name", NOISES)
@pytest.mark.slow
def test_noises_that_were_cloned_are_in_the_file(name, tmp_path):
    model = clone(PriorEnsembleRegressor(**SMALL, noise=NOISES[name]))
    assert model.noise is not NOISES[name]
    model.set_params(steps=2).fit(X, X[:, 0]).save(tmp_path / "model")
    assert PriorEnsembleRegressor.load(tmp_path / "model").noise == name


def test_a_cloned_gaussian_noise_is_in_the_file(tmp_path):
    model = clone(PriorEnsembleRegressor(**SMALL, noise=GaussianNoise(np.linspace(0, 1, 20)))).fit(X, X[:, 0])
    model.save(tmp_path / "model")
    again = PriorEnsembleRegressor.load(tmp_path / "model").noise
    np.testing.assert_array_equal(again.scale, model.noise.scale)


@pytest.mark.parametrize("prior", [PRIORS[0], Dueling(MLP((4,)))], ids=lambda p: type(p).__name__)
@pytest.mark.slow
def test_cloned_priors_and_networks_of_an_estimator_are_in_the_file(prior, tmp_path):
    model = PriorEnsembleRegressor(**{**SMALL, "steps": 2}, prior=prior, network=Dueling(MLP((4,))), l2=L2(0.1))
    model = clone(model).fit(X, X[:, 0])
    model.save(tmp_path / "model")
    again = PriorEnsembleRegressor.load(tmp_path / "model")
    assert (again.prior, again.network) == (prior, model.network)
    np.testing.assert_array_equal(model.predict(X), again.predict(X))


def test_a_fitted_regressor_comes_back_to_the_bit(tmp_path):
    model = PriorEnsembleRegressor(**SMALL, l2=L2(0.3), heteroscedastic=True).fit(X, X[:, :2])
    model.save(tmp_path / "model")
    again = PriorEnsembleRegressor.load(tmp_path / "model")
    for a, b in zip(model.predict_uncertainty(X), again.predict_uncertainty(X), strict=True):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(model.partial_fit(X, X[:, :2]).predict(X), again.partial_fit(X, X[:, :2]).predict(X))


def test_a_fitted_classifier_comes_back_with_its_labels(tmp_path):
    model = PriorEnsembleClassifier(**SMALL).fit(X, np.where(X[:, 0] > 0, "yes", "no"))
    model.save(tmp_path / "model")
    again = PriorEnsembleClassifier.load(tmp_path / "model")
    np.testing.assert_array_equal(model.predict(X), again.predict(X))
    with pytest.raises(BadFile, match="holds a PriorEnsembleClassifier, not a PriorEnsembleRegressor"):
        PriorEnsembleRegressor.load(tmp_path / "model")


def test_ones_own_code_is_not_in_the_file_and_is_asked_for(tmp_path):
    prior = Function(lambda x: jnp.sum(x))
    model = PriorEnsembleRegressor(**SMALL, prior=prior).fit(X, X[:, 0])
    model.save(tmp_path / "model")
    with pytest.raises(
        BadFile, match=r"prior is custom code, which is not in the file; pass it: load\(path, prior=...\)"
    ):
        PriorEnsembleRegressor.load(tmp_path / "model")
    again = PriorEnsembleRegressor.load(tmp_path / "model", prior=prior)
    np.testing.assert_array_equal(model.predict(X), again.predict(X))


def test_another_network_than_was_saved_is_refused(tmp_path):
    def pair(width):
        return as_network((lambda key, x: jax.random.normal(key, (3, width)), lambda p, x: jnp.sum(x @ p)))

    belief, _ = method("bs", network=pair(4), num_members=2)
    save(tmp_path / "belief", belief, some_state(belief, X[0]), X[0])
    with pytest.raises(BadFile, match=r"is float32\[2, 3, 4\], but float32\[2, 3, 5\] is needed"):
        load(tmp_path / "belief", network=pair(5))


@pytest.fixture
def saved(tmp_path):
    belief, _ = method("bsp", network=MLP((6,)), num_members=2)
    save(tmp_path / "belief", belief, some_state(belief, X[0]), X[0])
    return tmp_path / "belief"


def test_a_truncated_file_is_refused_at_every_length(saved):
    content = saved.read_bytes()
    for length in (0, 4, 20, len(content) // 2, len(content) - 1):
        saved.write_bytes(content[:length])
        with pytest.raises(BadFile, match="is not a priorax file, or is truncated"):
            load(saved)


def test_an_altered_number_is_noticed(saved):
    content = bytearray(saved.read_bytes())
    content[-3] ^= 1
    saved.write_bytes(content)
    with pytest.raises(BadFile, match="altered or damaged"):
        load(saved)


def rewrite_header(path, change):
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    change(header["__metadata__"])
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + content[8 + length :])


def test_an_altered_description_is_noticed(saved):
    rewrite_header(
        saved, lambda m: m.update(description=m["description"].replace('"prior_scale": 1.0', '"prior_scale": 9.0'))
    )
    with pytest.raises(BadFile, match="altered or damaged"):
        load(saved)


def test_a_foreign_file_and_another_version_are_refused(saved, tmp_path):
    rewrite_header(saved, lambda m: m.update(version="99"))
    with pytest.raises(BadFile, match="has format version '99', but this version of priorax reads 1"):
        load(saved)
    rewrite_header(saved, lambda m: m.update(format="other"))
    with pytest.raises(BadFile, match="was not written by priorax"):
        load(saved)
    (tmp_path / "text").write_text("hello")
    with pytest.raises(BadFile, match="is not a priorax file"):
        load(tmp_path / "text")
    with pytest.raises(FileNotFoundError, match="there is no file"):
        load(tmp_path / "nothing")


def test_a_file_can_name_no_class_but_ours(tmp_path):
    """A well-formed file with a valid checksum, made by a stranger: nothing it names is imported or called."""
    evil = {
        "belief": {"kind": "os.system", "fields": {"command": "touch pwned"}},
        "x": {"shape": [1], "dtype": "float32"},
    }
    write(tmp_path / "evil", Content("belief", evil, {}))
    with pytest.raises(BadFile, match=r"unknown kind 'os.system'"):
        load(tmp_path / "evil")


@pytest.mark.parametrize(
    "belief",
    [
        {"kind": "MLP", "fields": {"no_such_field": 1}},
        {"kind": "Ensemble", "fields": {"num_members": "many"}},
        {"kind": "Ensemble"},
        {},
        [],
    ],
)
def test_a_description_of_nothing_is_a_bad_file(belief, tmp_path):
    huge = {"shape": [10**12], "dtype": "float32"}
    write(tmp_path / "odd", Content("belief", {"belief": belief, "x": huge}, {}))
    with pytest.raises(BadFile):
        load(tmp_path / "odd")


def test_a_file_cannot_replace_an_estimators_methods(tmp_path):
    noise = GaussianNoise(np.linspace(0, 1, 20))
    PriorEnsembleRegressor(**SMALL, noise=noise).fit(X, X[:, 0]).save(tmp_path / "model")
    content = read(tmp_path / "model")
    content.description["fitted"]["predict"] = 1
    write(tmp_path / "model", content)
    with pytest.raises(BadFile, match="attribute 'predict' that no fitted estimator has"):
        PriorEnsembleRegressor.load(tmp_path / "model")


def test_a_write_that_fails_leaves_the_old_file_and_no_rest(tmp_path):
    """A full disk, for real: a child process may write no more than 1,000 bytes to any file."""
    target = tmp_path / "file"
    write_atomically(target, b"old")
    script = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN);"
        "from priorax.files import write_atomically;"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000));"
        "write_atomically(sys.argv[1], b'x' * 100_000)"
    )
    result = subprocess.run([sys.executable, "-c", script, str(target)], capture_output=True, text=True, check=False)
    assert "File too large" in result.stderr
    assert target.read_bytes() == b"old"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="is not a folder; create it first"):
        write_atomically(tmp_path / "no" / "file", b"")


def test_what_is_read_is_what_was_written(tmp_path):
    content = Content("kind", {"a": [1, None, "x"]}, {"array": np.arange(6).reshape(2, 3)})
    write(tmp_path / "file", content)
    again = read(tmp_path / "file")
    assert (again.kind, again.description) == (content.kind, content.description)
    np.testing.assert_array_equal(again.arrays["array"], content.arrays["array"])


def test_settings_come_back_as_they_were():
    """Through JSON; sizes that the file does not hold are refused, other numbers may be as large as they like."""
    settings = {"weights": {0: 1.0, "b": (2, [None, "x"])}, "head": C51(0.0, 1e9), "steps": 10**12, "on": True}
    described = json.loads(json.dumps(describe(settings)))
    assert rebuild(described, {}, 1000) == settings
    with pytest.raises(BadFile, match="num_atoms=1001 is more than the file holds"):
        rebuild(describe(C51(num_atoms=1001)), {}, 1000)


def test_forward_is_the_same_after_loading(tmp_path):
    belief, _ = method("bsp", network=MLP((6,)), num_members=2)
    state = init(belief, KEY, X[0])
    save(tmp_path / "belief", belief, state, X[0])
    found = forward(*load(tmp_path / "belief"), X, KEY)
    np.testing.assert_array_equal(found, forward(belief, state, X, KEY))
    assert np.all(np.isfinite(found))
