"""One network instead of twenty: agents that learn with one, and an ensemble distilled into one."""

import numpy as np

from priorax import distil, load, train

# 1. A hypermodel explores DeepSea 8: a member is a draw of its random index, kept for an episode.
run = train("hypermodel", "deep_sea", size=8, seed=0, episodes=120)
print(f"hypermodel: learned after {run.episodes_to_learn} episodes, {run.steps_per_second:.0f} steps per second")
assert run.episodes_to_learn is not None

# 2. BSP explores it with twenty members, which become one network for deployment.
ensemble = train("bsp", "deep_sea", size=8, seed=0, episodes=120).policy
row, column = np.divmod(np.arange(64), 8)
states = np.flatnonzero(column <= row)  # the states that can be reached
one = distil(ensemble, states, directions=4, steps=3000)
print(
    f"same action at {one.agreement:.0%} of the states, rank correlation of uncertainties {one.spread_correlation:.2f}"
)
one.policy.save("one.safetensors")
assert load("one.safetensors").predict(states[0]) == one.policy.predict(states[0])
