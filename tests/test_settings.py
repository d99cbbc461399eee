"""Settings by agent: the table of what every agent and preset was, types, refusals, plug-ins that are broken."""

import dataclasses
import json
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path

import jax
import numpy as np
import pytest

from priorax import names
from priorax.agents import PRESETS, AgentSpec, Settings, agent_spec, agents, build, register, registry, settings
from priorax.agents.setting_values import checked, from_json, hints, meanings, parse
from priorax.agents.settings import INERT, EnsembleSettings, QSettings
from priorax.envs.inputs import Inputs
from priorax.envs.interface import Interface, Sight, TaskSpec, interface_of_environment
from priorax.envs.jax.cartpole import CartpoleSwingup
from priorax.networks import FourierCode

TABLE = json.loads((Path(__file__).parent / "data" / "agents.json").read_text())
SCALE = (1.0, 0.5, 2.0, 1.0, 0.1)
INTERFACES = {
    "states": Interface(Sight((), (), "int32"), 2, num_states=400, horizon=20),
    "numbers": Interface(Sight((5,), (5,), "float32"), 3, inputs=Inputs(SCALE)),
    "pictures": Interface(Sight((4, 84, 84), (4, 84, 84), "uint8"), 4),
    "continuous": Interface(Sight((5,), (5,), "float32"), 1, bound=1.0, inputs=Inputs(SCALE)),
}
NEW_SETTINGS = {
    "devices": 1,
    "sparse_rows": None,
    "fourier_features": 0,
    "fourier_lengthscale": 0.5,
    "fourier_grouped": 0.0,
    "squash_inputs": False,
    "prior_widths": None,
    "prior_activation": "relu",
    "prior_unit": False,
    "prior_ratio": 1.0,
    "prior_file": "",
    "inverse_temperature": EnsembleSettings.inverse_temperature,
    "bias_factor": EnsembleSettings.bias_factor,
    "bonus": "counts",
    "predictor_rate": EnsembleSettings.predictor_rate,
    "predictor_outputs": EnsembleSettings.predictor_outputs,
}
"""Settings that are newer than the table; at these values they change nothing (some: without Langevin, or a predictor).
"""
NEW_PARTS = ("code",)
"""Parts of networks that are newer than the table; None changes nothing."""

KEPT = [preset for preset in PRESETS if preset != "swingup"]
"""Presets of the table; `swingup` has changed since."""


def plain(value):
    return json.loads(json.dumps(value))


def leaves(tree, where=""):
    """Every part of a built agent by its path, and the type of each dataclass on the way."""
    if dataclasses.is_dataclass(tree):
        found = {f"{where}:type" if where else "type": type(tree).__name__}
        for field in dataclasses.fields(tree):
            found |= leaves(getattr(tree, field.name), f"{where}.{field.name}" if where else field.name)
        return found
    return {where: plain(tree.tolist() if isinstance(tree, (jax.Array, np.ndarray)) else tree)}


def is_new(name, part):
    return part is None and name.rsplit(".", 1)[-1] in NEW_PARTS


def applied(base, delta):
    return {**{k: v for k, v in base.items() if k not in delta["without"]}, **delta["set"]}


@pytest.mark.parametrize("agent", [agent for agent in names.AGENTS if agent not in ("rlsvi", "psrl", "ucrl")])
def test_the_preset_swingup_codes_the_inputs_that_the_environment_declares(agent):
    chosen = settings(agent, "swingup")
    assert (chosen.fourier_features, chosen.squash_inputs, chosen.hold, chosen.learn_every) == (256, True, 4, 4)
    task = CartpoleSwingup(pushes=()) if agent == "d4pg" else CartpoleSwingup()
    built = leaves(build(agent, chosen, interface_of_environment(task, ())))
    assert any(name.endswith("code.squashed") and part == [2, 3, 4] for name, part in built.items())
    with pytest.raises(ValueError, match=r"pass (squash_inputs=False|fourier_grouped=0)"):
        build(agent, chosen, INTERFACES["continuous" if agent == "d4pg" else "numbers"])


@pytest.mark.parametrize("preset", KEPT)
@pytest.mark.parametrize("agent", names.AGENTS)
def test_every_agent_and_preset_is_what_it_was(agent, preset):
    was = TABLE["agents"][f"{agent} {preset}"]
    if not any(was["built"].values()):
        with pytest.raises(ValueError, match=r"torso|l2"):
            build(agent, settings(agent, preset), INTERFACES["pictures"])
        return
    chosen = settings(agent, preset)
    old = {**NEW_SETTINGS, **TABLE["base"]["settings"], **was["settings"]}
    now = plain(dataclasses.asdict(chosen))
    assert now == {name: old[name] for name in now}
    for name, interface in INTERFACES.items():
        if was["built"][name] is None:
            with pytest.raises(ValueError, match=r"torso=|finite|continuous"):
                build(agent, chosen, interface)
        else:
            expected = applied(TABLE["base"]["built"][name], was["built"][name])
            built = leaves(build(agent, chosen, interface))
            assert {name: part for name, part in built.items() if not is_new(name, part)} == expected


def test_the_table_is_whole():
    assert set(TABLE["agents"]) == {f"{agent} {preset}" for agent in names.AGENTS for preset in KEPT}


def test_names_without_jax_are_those_of_the_registries():
    from priorax import experiments
    from priorax.envs import registry as environments

    assert list(names.PRESETS) == list(PRESETS)
    assert set(names.ENVIRONMENTS) == set(environments.OURS)
    assert set(names.EXPERIMENTS) == set(experiments.NAMES)
    assert {name: spec.name for name, spec in agents().items()} == {name: name for name in names.AGENTS}
    assert all(spec.summary for spec in agents().values())


@pytest.mark.parametrize("agent", names.AGENTS)
def test_every_setting_says_what_it_means_and_survives_json_and_text(agent):
    kind = agent_spec(agent).settings
    assert all(meanings(kind).values())
    for preset in PRESETS:
        try:
            chosen = settings(agent, preset)
        except ValueError:
            continue
        stored = plain(dataclasses.asdict(chosen))
        assert from_json(kind, stored) == chosen
        for name, value in dataclasses.asdict(chosen).items():
            text = ",".join(map(str, value)) or "()" if isinstance(value, tuple) else str(value)
            assert parse(kind, name, text) == value and type(parse(kind, name, text)) is type(value)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("widths", "50,50", (50, 50)),
        ("widths", "()", ()),
        ("widths", "(20,)", (20,)),
        ("epsilon", "none", None),
        ("epsilon", "0.5", 0.5),
        ("double_q", "TRUE", True),
        ("prior_scale", "auto", "auto"),
        ("prior_scale", "3", 3.0),
        ("num_members", "7", 7),
        ("head", "c51", "c51"),
    ],
)
def test_text_becomes_a_value_of_the_settings_type(name, text, value):
    found = parse(EnsembleSettings, name, text)
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("num_members", "many", "num_members='many' must be a whole number"),
        ("num_members", "2.5", "must be a whole number"),
        ("double_q", "yes", "must be true or false"),
        ("epsilon", "x", "must be a number or none"),
        ("learning_rate", "nan", "must be a number"),
        ("prior_scale", "x", "must be a number or 'auto'"),
        ("widths", "a,b", "must be whole numbers with commas"),
    ],
)
def test_text_of_another_type_is_refused(name, text, words):
    with pytest.raises(ValueError, match=words):
        parse(EnsembleSettings, name, text)


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("widths", 5, "widths=5 must be whole numbers"),
        ("num_members", 2.5, r"num_members=2\.5 must be a whole number"),
        ("num_members", True, "num_members=True must be a whole number"),
        ("double_q", 1, "double_q=1 must be true or false"),
        ("head", None, "head=None must be a word"),
    ],
)
def test_values_of_another_type_are_refused(name, value, words):
    with pytest.raises(ValueError, match=words):
        settings("bsp", **{name: value})


def test_whole_numbers_and_lists_are_taken_where_floats_and_tuples_are_meant():
    chosen = settings("bsp", prior_scale=3, widths=[5], num_members=np.int64(4))
    assert chosen.prior_scale == 3.0 and type(chosen.prior_scale) is float
    assert chosen.widths == (5,) and type(chosen.num_members) is int
    assert checked(QSettings, "epsilon", 1) == 1.0


@pytest.mark.parametrize(
    ("agent", "changes", "words"),
    [
        (
            "dropout",
            {"num_members": 3},
            r"setting='num_members' does not exist for agent='dropout'; agents that have it: bsp, bsr, ",
        ),
        (
            "psrl",
            {"prior_scale": 3},
            r"agent='psrl'; agents that have it: bsp.*; did you mean 'prior_std'",
        ),
        ("noisy", {"l2": 0.1}, r"setting='l2' does not exist for agent='noisy'; agents that have it: .*dropout"),
        ("dropout", {"bonus_scale": 0.1}, "setting='bonus_scale' does not exist for agent='dropout'"),
        ("d4pg", {"head": "qr"}, "setting='head' does not exist for agent='d4pg'"),
        ("bsp", {"prior_scal": 3}, "setting='prior_scal' is unknown; did you mean 'prior_scale'"),
        ("bsp", {"prior": "netwrk"}, "prior='netwrk' is unknown; did you mean 'network'"),
        ("bsp", {"head": "c52"}, "head='c52' is unknown; did you mean 'c51'"),
        ("bsp", {"torso": "big"}, "torso='big' is unknown"),
        ("bsp", {"bonus_at": "death"}, "bonus_at='death' is unknown"),
        ("bsp", {"sample_outcomes": True}, "sample_outcomes=True needs a distribution of returns, .* use head='c51'"),
        ("bsp", {"num_members": 0}, "num_members=0 must be a whole number of at least 1"),
        ("bsp", {"mask_prob": 0.0}, r"mask_prob=0\.0 must be above 0"),
        ("bsp", {"prior_scale": "auto"}, "prior_scale='auto' needs an environment"),
        ("bsp", {"prior_scale": -3.0}, r"prior_scale=-3\.0 must be a finite number of at least 0"),
        ("ucrl", {"discount": 1.5}, r"discount=1\.5 must be between 0 and 1; pass for example 0\.99"),
        ("ucrl", {"lanes": 0}, "lanes=0 must be"),
    ],
)
def test_what_means_nothing_is_refused_before_anything_is_built(agent, changes, words):
    with pytest.raises(ValueError, match=words):
        settings(agent, **changes)


@pytest.mark.parametrize(
    ("agent", "changes", "words"),
    [
        ("bs", {"prior_scale": 3}, r"prior_scale=3\.0 has no effect on agent='bs' with prior='none'; change prior too"),
        ("bsp", {"fourier_lengthscale": 0.1}, r"fourier_lengthscale=0\.1 has no effect .* fourier_features=0"),
        ("eps_greedy", {"epsilon": None, "epsilon_episodes": 5}, "epsilon_episodes=5 has no effect .* epsilon=None"),
        ("bsp", {"lowest": -2.0}, r"lowest=-2\.0 has no effect .* head='scalar'"),
        ("bsp", {"prior": "constant", "prior_widths": (5,)}, r"prior_widths=\(5,\) has no effect .* prior='constant'"),
        ("bsp", {"prior": "optimal", "prior_unit": True}, r"prior_unit=True has no effect .* prior='optimal'"),
        (
            "bsp",
            {"predictor_rate": 0.1},
            "predictor_rate=.* has no effect .* bonus_scale=0",
        ),
    ],
)
def test_a_setting_that_another_one_disables_is_warned_of(agent, changes, words):
    with pytest.warns(UserWarning, match=words):
        settings(agent, **changes)


def test_a_setting_that_has_its_effect_is_not_warned_of():
    settings("bs", prior="network", prior_scale=3)
    settings("bsp", fourier_features=8, fourier_lengthscale=0.1)
    settings("c51", lowest=-2.0)
    settings("d4pg", lowest=-2.0)


def test_settings_that_may_have_no_effect_exist_beside_the_ones_that_disable_them():
    both = [set(hints(spec.settings)) for spec in agents().values()]
    for name, others in INERT.items():
        for other, values in others:
            assert any({name, other} <= mine for mine in both) and values, name


@pytest.mark.parametrize("agent", ["dropout", "rlsvi", "d4pg"])
def test_a_preset_for_pictures_is_refused_by_agents_without_a_torso(agent):
    with pytest.raises(ValueError, match=f"preset='small' is for agents with the setting torso.*agent='{agent}'"):
        settings(agent, "small")


def test_settings_of_another_agent_are_refused():
    with pytest.raises(ValueError, match="settings=NoisySettings must be EnsembleSettings for agent='bsp'"):
        build("bsp", settings("noisy"), TaskSpec(2, 4))


@dataclass(frozen=True)
class OwnSettings(Settings):
    """Of an agent of someone else's."""

    learning_rate: float = 0.5
    """Learning rate."""
    own: int = 1
    """Its own."""


OWN = AgentSpec(
    "own",
    OwnSettings,
    lambda settings, task: build("eps_greedy", registry.settings("eps_greedy"), task),
    changes={"own": 2},
    aliases=("mine",),
    presets={"small": {"own": 3}, "special": {"own": 4}},
)


@pytest.fixture
def plugged(monkeypatch):
    """Entry points as if packages that have them were installed."""

    def plug(*points):
        monkeypatch.setattr(names, "plugins", lambda group: points if group == names.AGENT_PLUGINS else ())

    yield plug


def point(name, value):
    return EntryPoint(name, value, names.AGENT_PLUGINS)


def test_an_agent_of_someone_else_gets_presets_and_messages(plugged):
    plugged(point("own", "test_settings:OWN"))
    assert settings("own") == OwnSettings(own=2)
    assert settings("own", "paper") == OwnSettings(learning_rate=1e-3, learn_every=0, own=2)
    assert settings("own", "small").own == 3, "its own changes to a preset that it could not have had otherwise"
    assert settings("own", "special", learning_rate=1) == OwnSettings(learning_rate=1.0, own=4)
    with pytest.raises(ValueError, match="preset='special' is unknown"):
        settings("bsp", "special")
    with pytest.raises(ValueError, match="agent='mine' is called 'own' here"):
        settings("mine")
    with pytest.raises(ValueError, match="setting='own' does not exist for agent='bsp'; agents that have it: own"):
        settings("bsp", own=1)
    assert list(agents()) == [*names.AGENTS, "own"]


def test_a_broken_plug_in_is_named_and_the_others_work(plugged):
    plugged(point("broken", "no_such_module:SPEC"), point("own", "test_settings:OWN"), point("other", "json:dumps"))
    with pytest.warns(UserWarning) as warned:
        assert list(agents()) == [*names.AGENTS, "own"]
    assert [("broken" in str(each.message), "other" in str(each.message)) for each in warned] == [
        (True, False),
        (False, True),
    ]
    with pytest.raises(ValueError, match=r"plug-in 'no_such_module' .*cannot be loaded: ModuleNotFoundError"):
        settings("broken")
    with pytest.raises(ValueError, match=r"plug-in 'json' .*must be an AgentSpec with name='other'"):
        settings("other")
    assert settings("own").own == 2 and settings("bsp").num_members == 20


def test_a_name_that_is_taken_is_refused(plugged, monkeypatch):
    plugged(point("bsp", "test_settings:OWN"))
    with pytest.warns(UserWarning, match=r"plug-in 'test_settings' .*name is taken"):
        assert agents()["bsp"].settings is EnsembleSettings
    plugged()
    monkeypatch.setattr(registry, "_registered", {})
    with pytest.raises(ValueError, match="agent='bsp' is taken"):
        register(dataclasses.replace(OWN, name="bsp"))
    assert register(OWN) is OWN and agent_spec("own") is OWN and "own" in agents()
    with pytest.raises(ValueError, match="agent='own' is taken"):
        register(OWN)


def test_a_spec_whose_changes_its_settings_do_not_have_is_refused():
    with pytest.raises(ValueError, match="a setting of agent 'own'='num_members' is unknown"):
        dataclasses.replace(OWN, changes={"num_members": 2})
    assert "num_members" not in hints(OwnSettings)


def test_the_command_line_shows_agents_and_the_settings_of_one(capsys):
    from priorax.cli import main

    assert main(["agents"]) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in names.AGENTS)
    assert main(["agents", "psrl"]) == 0
    out = capsys.readouterr().out
    assert "concentration" in out and "prior_scale" not in out and "swingup" in out
    assert all(len(line) <= 80 for line in out.splitlines())
    assert main(["agents", "psrl", "--preset", "swingup"]) == 0
    assert "0.98" in capsys.readouterr().out
    assert main(["agents", "--preset", "swingup"]) == 2
    assert main(["agents", "dqn"]) == 2
    assert "is called 'eps_greedy' here" in " ".join(capsys.readouterr().err.split())
    assert main(["environments"]) == 0
    assert "deep_sea_stochastic" in capsys.readouterr().out


def test_help_lists_what_the_registries_have(capsys, monkeypatch):
    from priorax.cli import main

    monkeypatch.setenv("COLUMNS", "200")
    for command, known in (("train", [*names.AGENTS, *names.PRESETS, *names.ENVIRONMENTS]), ("compare", names.AGENTS)):
        with pytest.raises(SystemExit):
            main([command, "--help"])
        out = " ".join(capsys.readouterr().out.split())
        assert all(name in out for name in known)
    with pytest.raises(SystemExit):
        main(["reproduce", "--help"])
    out = capsys.readouterr().out
    assert all(name in out for name in names.EXPERIMENTS)


def with_inputs(interface):
    return dataclasses.replace(interface, inputs=Inputs(SCALE, ((0, 1, 2), (3, 4)), (0.0, 0.0, 1.0, 0.5, 0.0)))


def test_fourier_features_reach_networks_priors_and_d4pg():
    changes = {"fourier_features": 8, "fourier_lengthscale": 0.7, "fourier_grouped": 0.6, "squash_inputs": True}
    code = FourierCode(8, 0.7, ((0, 1, 2), (3, 4)), 0.6, (2, 3))
    for preset, dueling in (("tuned", False), ("swingup", True)):
        chosen = settings("bsp", preset, dueling=dueling, prior_gain=1.0, **changes)
        agent = build("bsp", chosen, with_inputs(INTERFACES["numbers"]))
        for network in (agent.belief.network, agent.belief.prior):
            inner = network.network if dueling else network
            assert inner.code == code and inner.gain == (SCALE[0], SCALE[1], 1.0, 2.0, SCALE[4])
    d4pg = build("d4pg", settings("d4pg", "swingup", **changes), with_inputs(INTERFACES["continuous"]))
    nets = d4pg.init(jax.random.key(0), jax.numpy.zeros(5)).nets
    assert (nets.actor[0].weight.shape[0], nets.critic[0].weight.shape[0]) == (13, 14) and d4pg.code == code


@pytest.mark.parametrize("changes", [{"fourier_features": 8}, {"squash_inputs": True}])
def test_codes_of_vectors_are_refused_for_states_and_images(changes):
    with pytest.raises(ValueError, match="need array observations, and this environment has state indices; pass 0"):
        build("bsp", settings("bsp", **changes), INTERFACES["states"])
    with pytest.raises(ValueError, match="torso='small' sees images; pass 0"):
        build("bsp", settings("bsp", "small", **changes), INTERFACES["pictures"])


def test_what_an_environment_does_not_say_is_refused():
    with pytest.raises(ValueError, match=r"needs an environment with `inputs.knees`; pass squash_inputs=False"):
        build("bsp", settings("bsp", squash_inputs=True), INTERFACES["numbers"])
    with pytest.raises(ValueError, match=r"fourier_grouped=0.5 needs an environment with `inputs.groups`"):
        build("bsp", settings("bsp", fourier_features=8, fourier_grouped=0.5), INTERFACES["numbers"])


def test_groups_and_knees_of_an_environment_are_in_its_interface_and_in_json():
    env = CartpoleSwingup()
    shown = interface_of_environment(env, ())
    assert shown.inputs == env.inputs
    assert Interface.from_json(json.loads(json.dumps(shown.as_json()))) == shown
    assert shown.task_spec().inputs == env.inputs


@pytest.mark.parametrize("name", ["fourier_features", "fourier_lengthscale", "fourier_grouped"])
def test_impossible_codes_are_refused(name):
    with pytest.raises(ValueError, match=f"{name}=-1"):
        settings("bsp", **{name: -1})
