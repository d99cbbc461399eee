"""An agent in a Gymnasium environment: train, query its uncertainty, deploy, save and load."""

import gymnasium
import numpy as np

from priorax import Explorer

agent = Explorer("gymnasium:CartPole-v1", agent="bsp", seed=0)


def tell(round):
    if round.evaluation is not None:
        print(f"after {round.steps} actions: returns {round.evaluation}")
        return np.mean(round.evaluation) < 400  # False stops training
    return True


agent.learn(total_steps=6_000, callback=tell, evaluate_every=2_000, evaluation_episodes=5)

env = gymnasium.make("CartPole-v1")
obs, _ = env.reset(seed=0)
found = agent.values(obs)
print("values:", found.mean.round(1), "standard deviation over members:", found.spread.round(1))

total, over = 0.0, False
while not over:
    obs, reward, terminated, truncated, _ = env.step(agent.predict(obs))
    total, over = total + reward, terminated or truncated
print("return of the deployed policy:", total)

agent.save("cartpole")  # a run folder
again = Explorer.load("cartpole")
assert again.predict(obs) == agent.predict(obs)
