"""Deep exploration: one path out of 1,024 is rewarded. BSP finds it, epsilon-greedy does not."""

from priorax import train

for agent in ("bsp", "eps_greedy"):
    run = train(agent, "deep_sea", size=10, seed=0, episodes=150)
    last = run.history[-1].total_return
    print(f"{agent:10}  learned in episode {run.episodes_to_learn}, last return {last:.2f}")
    assert agent != "bsp" or last > 0.98  # the optimal return is 0.99
