"""Presets: named sets of hyperparameter changes; each change applies to agents that have the setting.

`tuned`, the default, is the best configuration found on DeepSea; it serves N=10 to 100 (see `scale_with_states`). It
does NOT bootstrap: every member sees every transition (mask 1), and members differ only by prior and initialisation;
halving the data only slows members down. As far as measured this holds with noise too: DeepSea with wind is solved
(`priorax reproduce bsuite`), and on `bernoulli_bandit` (2,000 steps, 4 seeds) regret is 4 to 11, against 11 to 55 with
mask 0.5 and 100 at random. results/README.md has the ablation.

`paper` is appendix B: K=20, 20 units, Adam 1e-3, batch 128, prior scale 10, lambda 0.1, mask 0.5, independent
minibatches per member, learning at episode ends only, target period 1. The paper leaves open, and we chose: discount
0.99, two hidden layers, replay of 100,000 transitions, one update per episode.

`swingup` is for cartpole swing-up; results/README.md has the hyperparameter search. Actions are repeated for 0.04 s, so
that a discount of 0.98 has a horizon of two seconds. Members and priors see 256 random Fourier features of the
observation beside it, most of them of the pole or the cart alone, with velocities and position squashed: with a smooth
prior on the plain observation, what is learned at rest generalises to the upright position, and the uncertainty that
should lead there is gone; a ReLU prior is also largest at high speeds. Replay is prioritized and keeps everything.

`apex` is Horgan et al. 2018 as published, with ten heads on one torso: 19 updates of batch size 512 per second with
12,500 actions, which is about one update per 640 actions. `small` is the same agent for two cores: the network of Mnih
et al. 2013, batch size 32, one update per 4 actions, Adam.

`gymnasium` is for third-party environments with array observations, tuned on CartPole and MountainCar: slow target
networks, without which values diverge, and a prior with an input gain of three. `finite` is for third-party
environments with discrete observations, tuned on slippery FrozenLake: a plain table of values, without a hidden layer
that would generalise bad values from one state to others. If transitions are deterministic (Taxi), raise the learning
rate: learning_rate=0.1.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Preset:
    """A named set of changes to the default hyperparameters."""

    changes: Mapping[str, Any] = field(default_factory=dict)
    """New values by setting; settings that an agent does not have are skipped."""
    needs: tuple[str, ...] = ()
    """Settings that the agent must have; other agents are refused."""


PAPER = {
    "learning_rate": 1e-3,
    "batch_size": 128,
    "shared_batch": False,
    "mask_prob": 0.5,
    "scale_with_states": False,
    "learn_every": 0,
}
SWINGUP = {
    "widths": (50, 50),
    "fourier_features": 256,
    "fourier_lengthscale": 0.5,
    "fourier_grouped": 0.6,
    "squash_inputs": True,
    "learning_rate": 1e-3,
    "batch_size": 128,
    "capacity": 1_000_000,
    "priority": 0.6,
    "prior_scale": 5.0,
    "prior_bias": 1.0,
    "discount": 0.98,
    "target_period": 10,
    "double_q": True,
    "n_step": 3,
    "clip": 10.0,
    "hold": 4,
    "learn_every": 4,
    "lowest": -20.0,
    "highest": 200.0,
}
APEX = {
    "num_members": 10,
    "torso": "nature",
    "features": 512,
    "widths": (),
    "dueling": True,
    "optimizer": "rmsprop",
    "learning_rate": 6.25e-5,
    "clip": 40.0,
    "batch_size": 512,
    "capacity": 2_000_000,
    "priority": 0.6,
    "discount": 0.99,
    "target_period": 2500,
    "double_q": True,
    "n_step": 3,
    "learn_every": 640,
    "learn_after": 50_000,
    "lanes": 16,
    "clip_rewards": True,
    "epsilon_episodes": 0,
    "epsilon_ladder": 7.0,
    "prior_bias": 1.0,
}
SMALL = {
    **APEX,
    "torso": "small",
    "features": 256,
    "optimizer": "adam",
    "learning_rate": 2.5e-4,
    "batch_size": 32,
    "capacity": 200_000,
    "target_period": 500,
    "learn_every": 4,
    "learn_after": 2_000,
    "lanes": 8,
}
GYMNASIUM = {
    "widths": (50, 50),
    "learning_rate": 1e-3,
    "batch_size": 128,
    "priority": 0.6,
    "prior_scale": 10.0,
    "prior_gain": 3.0,
    "prior_bias": 1.0,
    "target_rate": 0.02,
    "double_q": True,
    "n_step": 3,
    "learn_every": 4,
    "learn_after": 200,
    "lanes": 8,
}
FINITE = {
    **GYMNASIUM,
    "widths": (),
    "learning_rate": 2e-3,
    "batch_size": 256,
    "priority": 0.0,
    "prior_scale": 3.0,
    "prior_bias": 0.0,
    "target_period": 4,
    "target_rate": 1.0,
    "n_step": 1,
}
PRESETS: dict[str, Preset] = {
    "tuned": Preset(),
    "paper": Preset(PAPER),
    "swingup": Preset(SWINGUP),
    "apex": Preset(APEX, needs=("torso",)),
    "small": Preset(SMALL, needs=("torso",)),
    "gymnasium": Preset(GYMNASIUM),
    "finite": Preset(FINITE),
}
