"""A prior's scale without guessing: what is proposed, and what a run says of the one it has."""

import numpy as np
import pytest

from priorax import Explorer, train
from priorax.agents import settings
from priorax.envs.registry import make_world
from priorax.training.advice import LEAST_UPDATES, Adviser, Doubt, better, measure
from priorax.training.prior_scale import episode_totals, propose, to_come
from priorax.training.request import parse_changes

FEW = {"num_members": 4, "lanes": 2, "batch_size": 8, "learn_after": 8, "widths": (8,), "capacity": 500}


def test_returns_to_come_are_discounted_to_each_episodes_end():
    rewards, ended = np.array([[1.0], [2.0], [4.0], [8.0]]), np.array([[False], [True], [False], [False]])
    np.testing.assert_allclose(to_come(rewards, ended, 0.5)[:, 0], [2.0, 2.0, 8.0, 8.0])
    assert episode_totals(rewards, ended) == [3.0]


def test_clipped_rewards_and_logits_are_known_for_what_they_are():
    world = make_world("gymnasium:Taxi-v4", 2)  # pays -10 at times
    plain, clipped = (
        propose("bsp", settings("bsp", "finite", clip_rewards=c), world, steps=100) for c in (False, True)
    )
    assert clipped.returns < plain.returns / 2
    with pytest.raises(ValueError, match="priors on logits"):
        propose("bsp", settings("bsp", "finite", head="c51"), world, steps=10)


def test_in_deep_sea_it_proposes_about_what_was_found_best_there():
    for size in (10, 20):
        found = propose("bsp", settings("bsp", "tuned"), make_world("deep_sea", 4, size=size), steps=400)
        assert 7 < found.scale < 14  # `tuned` has 10


def test_rewards_ten_times_as_large_ask_for_a_prior_ten_times_as_large():
    class Paid:
        """A world that pays more."""

        def __init__(self, world, factor):
            self.world, self.factor = world, factor

        def __getattr__(self, name):
            return getattr(self.world, name)

        def step(self, actions):
            turn = self.world.step(actions)
            return turn._replace(reward=turn.reward * self.factor)

    chosen = settings("bsp", "gymnasium")
    one, ten = (
        propose("bsp", chosen, Paid(make_world("gymnasium:CartPole-v1", 4), factor), steps=400) for factor in (1, 10)
    )
    np.testing.assert_allclose(ten.scale, 10 * one.scale, rtol=1e-4)
    assert one.episodes > 5 and one.best > one.worst >= 8


def test_what_is_proposed_does_not_depend_on_the_scale_at_hand():
    small, large = (
        propose(
            "bsp", settings("bsp", "gymnasium", prior_scale=s), make_world("gymnasium:CartPole-v1", 4), steps=200
        ).scale
        for s in (0.1, 100)
    )
    assert small == large


@pytest.mark.slow
def test_auto_is_a_number_by_the_time_a_run_begins(tmp_path):
    agent = Explorer("gymnasium:CartPole-v1", prior_scale="auto", **FEW)
    assert (
        agent.settings.prior_scale == pytest.approx(agent.trainer.backend.agent.belief.prior_scale) and agent.steps == 0
    )
    assert agent.settings.prior_scale > 1
    train("bsp", "deep_sea", size=4, episodes=5, changes=parse_changes("bsp", ["prior_scale=auto"]), out=tmp_path)
    train("bsp", "deep_sea", size=4, episodes=5, changes={"prior_scale": "auto"}, out=tmp_path, resume=True)
    for changes, words in (({"prior_scale": "big"}, "a number or 'auto'"), ({"prior": "none"}, "has none")):
        with pytest.raises(ValueError, match=words):
            Explorer("gymnasium:CartPole-v1", **{"prior_scale": "auto", **FEW, **changes})


@pytest.mark.slow
def test_at_the_start_all_of_the_prior_is_in_the_values_and_learning_takes_it_out():
    changes = {**FEW, "widths": (20, 20), "learning_rate": 1e-2, "target_period": 1, "learn_every": 1, "discount": 0.5}
    agent = Explorer("gymnasium:FrozenLake-v1", prior_scale=30, **changes)

    def looked():
        drawn = agent.trainer.backend.replay.sample(np.random.default_rng(0), 100)
        return measure(agent.trainer.backend.agent.belief, agent.state.belief, drawn.obs, drawn.action)

    agent.learn(8)
    assert agent.trainer.backend.updates == 0
    before = looked()
    agent.learn(800)
    after = looked()
    assert 0.8 < before.left < 1.3 and before.explained > 0.8
    assert after.left < before.left / 2
    assert after.kept < before.kept < 2


def test_agents_without_priors_have_nothing_to_measure():
    agent = Explorer("gymnasium:CartPole-v1", "bs", **FEW).learn(40)
    belief, obs = agent.trainer.backend.agent.belief, np.zeros((3, 4), np.float32)
    assert measure(belief, agent.state.belief, obs, np.zeros(3, int)) is None


LATE = LEAST_UPDATES + 1


def said(found, updates=LATE, cells=50, learned=False, looks=2):
    adviser = Adviser(7.0)
    return [adviser.look(found, updates, cells, [0.5] * 50, learned) for _ in range(looks)]


def test_a_prior_that_data_does_not_replace_looks_too_large():
    found = Doubt(left=0.9, explained=0.9, differ=0.5, kept=0.9)
    assert said(found, updates=LEAST_UPDATES - 1) == [None, None]
    first, again = said(found)
    assert "prior_scale=7 looks too large" in first and again is None  # once is enough
    assert said(found._replace(explained=0.1)) == [None, None]  # members differ by other things


def test_hopes_far_beyond_all_returns_look_too_large_once_nothing_new_is_seen():
    found = Doubt(left=0.0, explained=0.0, differ=40.0, kept=0.1)
    first, second = said(found)
    assert first is None and "prior_scale=7 looks too large" in second  # at first, all is new
    assert said(found, learned=True) == [None, None]


def test_agreement_before_anything_is_found_looks_too_small():
    found = Doubt(left=0.0, explained=0.0, differ=0.01, kept=0.02)
    first, second = said(found)
    assert first is None and "prior_scale=7 looks too small" in second
    assert said(found, learned=True) == said(found._replace(kept=0.5)) == said(found, cells=None) == [None, None]


def test_returns_are_better_when_the_last_are_clearly_above_the_first():
    noise = np.random.default_rng(0).normal(size=20).tolist()
    assert better([*noise, *(np.array(noise) + 1)]) and not better([*noise, *noise])
    assert better(noise)  # too few to say


@pytest.mark.slow
def test_a_run_says_that_its_prior_is_too_small_or_large_and_a_good_one_says_nothing():
    """DeepSea 20."""
    words = {}
    for scale in (0.01, 10.0, 1e4):
        words[scale] = []
        train("bsp", size=20, episodes=800, changes={"prior_scale": scale}, announce=words[scale].append)
    assert len(words[0.01]) == len(words[1e4]) == 1 and words[10.0] == []
    assert "too small" in words[0.01][0] and "too large" in words[1e4][0]
