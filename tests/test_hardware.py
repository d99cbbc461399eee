"""The choices for CPUs and accelerators, each forced on this machine: both compute the same."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from priorax import hardware, train
from priorax.agents import agent_spec, build, settings
from priorax.beliefs import Ensemble
from priorax.envs.interface import TaskSpec
from priorax.estimators import evaluating, far_field
from priorax.networks import MLP
from priorax.training.setup import set_up

STATES = TaskSpec(2, 9)


@pytest.fixture(params=["cpu", "gpu"])
def platform(request, monkeypatch):
    """Programs compiled for another platform must not be found again."""
    monkeypatch.setattr(hardware.jax, "default_backend", lambda: request.param)
    jax.clear_caches()
    yield request.param
    jax.clear_caches()


def test_this_machine_is_what_jax_says():
    assert hardware.on_cpu() == (jax.devices()[0].platform == "cpu")


def test_rows_of_states_are_sparse_on_cpus_alone_unless_requested(platform):
    for name, dense, sparse in (("bsp", "no", "shared"), ("hypermodel", False, True), ("epinet", False, True)):
        found = [
            build(name, settings(name, sparse_rows=wanted), STATES).belief.sparse_rows for wanted in (None, False, True)
        ]
        assert found == [sparse if platform == "cpu" else dense, dense, sparse]
    assert build("bsp", settings("bsp", sparse_rows=True, target_period=2), STATES).belief.sparse_rows == "no"
    predictor = build("rnd", settings("rnd"), STATES).belief.predictor
    assert predictor.sparse_rows == ("shared" if platform == "cpu" else "no")


@pytest.mark.parametrize("backend", ["scan", "host"])
def test_a_run_keeps_the_choice_of_the_hardware_that_began_it(backend, monkeypatch):
    changes = {"num_members": 2, "widths": (4,)}
    with monkeypatch.context() as patch:
        patch.setattr(hardware.jax, "default_backend", lambda: "gpu")
        begun = set_up("bsp", "deep_sea", size=3, backend=backend, changes=changes)
    assert begun.config["settings"]["sparse_rows"] is False and begun.backend.agent.belief.sparse_rows == "no"
    stored = {name: begun.config["settings"][name] for name in ("sparse_rows", "num_members", "widths")}
    again = set_up("bsp", "deep_sea", size=3, backend=backend, changes={**stored, "widths": (4,)})
    assert again.config == begun.config and again.backend.agent.belief.sparse_rows == "no"


def test_a_run_with_dense_rows_learns_as_one_with_sparse_rows():
    """Row-sparse Adam is dense Adam to first order; until weights differ by as much, the actions are the same."""
    small = {"num_members": 3, "widths": (8,), "batch_size": 16, "learning_rate": 1e-3}
    runs = [
        train("bsp", "deep_sea", size=3, episodes=30, changes={**small, "sparse_rows": sparse})
        for sparse in (True, False)
    ]
    dense, sparse = (run.policy.values(np.arange(9)).members for run in runs)
    np.testing.assert_allclose(dense, sparse, atol=0.02)
    assert np.ptp(dense) > 1
    before = set_up("bsp", "deep_sea", size=3, changes=small).backend
    start = before.agent.values(before.state, jax.random.key(0), jnp.arange(9))[1]
    assert np.max(np.abs(start - dense)) > 0.1


def members_and_rows(num_rows):
    belief = Ensemble(3, network=MLP((8,)), prior=MLP((4,)))
    x = np.random.default_rng(0).normal(size=(num_rows, 5)).astype(np.float32)
    return belief, jax.jit(belief.init)(jax.random.key(0), x[0]), x


def test_members_in_turn_compute_what_all_at_once_compute(platform):
    belief, state, x = members_and_rows(2 * evaluating.BLOCK)
    program = jax.make_jaxpr(lambda x: evaluating.outputs(belief, state, x))(x)
    assert ("scan" in str(program)) == (platform == "cpu")
    found = [
        jax.jit(evaluating.outputs)(belief, state, x),
        evaluating.all_outputs(belief, (state.params, state.frozen), x),
    ]
    alone = [
        jax.vmap(lambda row, k=k: belief.member_output(state, jnp.asarray(k), row))(x)
        for k in range(belief.num_members)
    ]
    for each in found:
        np.testing.assert_allclose(each, np.stack(alone), rtol=1e-5, atol=1e-6)
    gaps = far_field.distance(x[:7], x)
    exact = np.sqrt(((x[:, None] - x[None, :7]) ** 2).sum(-1).min(1))
    np.testing.assert_allclose(gaps, exact, atol=2e-3)


def test_only_agents_with_tables_have_the_setting():
    assert hasattr(agent_spec("bsp").settings(), "sparse_rows") and hasattr(
        agent_spec("epinet").settings(), "sparse_rows"
    )
    assert not hasattr(agent_spec("dropout").settings(), "sparse_rows")
