"""Every agent behaves alike on every backend, or is refused there with a remedy (`priorax doctor --agents`)."""

import pytest

from priorax.analysis import conformance
from priorax.cli import main
from priorax.names import AGENTS

FAST = {("bsp", "scan"), ("bsp", "host"), ("rlsvi", "scan")}
EVERY = [
    pytest.param(agent, backend, marks=() if (agent, backend) in FAST else pytest.mark.slow)
    for backend in ("scan", "host")
    for agent in AGENTS
]
HAS = {
    "bsp": {"members differ", "masks", "priorities"},
    "bsr": {"members differ", "masks", "priorities"},
    "bs": {"members differ", "masks", "priorities"},
    "ensemble": {"members differ", "masks", "priorities"},
    "eps_greedy": {"epsilon", "priorities"},
    "dropout": {"priorities"},
    "noisy": {"priorities"},
    "bbb": {"priorities"},
    "hypermodel": {"priorities"},
    "epinet": {"priorities"},
    "c51": {"epsilon", "priorities"},
    "qr": {"epsilon", "priorities"},
    "ucb": {"bonus", "epsilon", "priorities"},
    "rnd": {"bonus", "epsilon", "priorities"},
    "lmcdqn": {"epsilon", "priorities"},
    "rlsvi": set(),
    "psrl": set(),
    "ucrl": set(),
    "d4pg": {"priorities"},
}


@pytest.mark.parametrize(("agent", "backend"), EVERY)
def test_every_agent_behaves_or_is_refused_with_a_remedy(agent, backend):
    found = conformance.check(agent, backend)
    if (agent, backend) == ("d4pg", "host"):
        assert "continuous actions" in found.refused and found.holds
        return
    assert found.refused is None
    checked = {name for name, held in found.checks.items() if held is not None}
    assert checked == {"learns", "resumes", *HAS[agent]}
    assert found.holds, found.checks


@pytest.mark.slow
@pytest.mark.xdist_group("ray")
@pytest.mark.parametrize("agent", list(AGENTS))
def test_on_ray_agents_learn_from_replay_or_are_refused_with_a_remedy(agent):
    found = conformance.check(agent, "ray")
    assert found.holds, found
    assert (found.refused is not None) == (agent in ("rlsvi", "psrl", "ucrl", "ucb", "rnd", "d4pg"))


def test_an_agent_that_does_not_learn_fails_the_table(monkeypatch, capsys):
    monkeypatch.setitem(conformance.CHANGES, "learn_after", 1900)  # more than will ever be there
    found = conformance.check("eps_greedy", "scan")
    assert found.checks["priorities"] is False and not found.holds
    assert main(["doctor", "--agents", "--agent", "eps_greedy", "--backend", "scan"]) == 1
    assert "failed: priorities" in capsys.readouterr().out


def test_agents_and_backends_are_options_of_the_table_only(capsys):
    assert main(["doctor", "--agent", "bsp"]) == 2
    assert "pass --agents too" in capsys.readouterr().err
    assert main(["doctor", "--agents", "--backend", "gpu"]) == 2
