"""Your own Gymnasium environment: a combination lock."""

import gymnasium
import numpy as np

from priorax import Explorer


class Lock(gymnasium.Env):
    """Eight binary digits. A correct digit costs 0.01, a wrong one ends the episode, the last one has reward 1."""

    observation_space = gymnasium.spaces.Discrete(8)
    action_space = gymnasium.spaces.Discrete(2)
    digits = (1, 0, 0, 1, 1, 1, 0, 1)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = 0
        return self.place, {}

    def step(self, action):
        right = int(action) == self.digits[self.place]
        opened = right and self.place == 7
        self.place = min(self.place + right, 7)
        reward = float(opened) - 0.01 * right
        return self.place, reward, opened or not right, False, {}


for name in ("bsp", "eps_greedy"):
    # Lock is called once for each lane; a single object, Lock(), works too
    agent = Explorer(Lock, agent=name, seed=0)
    agent.learn(total_steps=1_000)
    best = max(episode.total_return for episode in agent.history)
    deployed = np.mean(agent.evaluate(episodes=4))
    print(f"{name:10}  best episode {best:.2f}, deployed policy {deployed:.2f}")
    agent.close()
