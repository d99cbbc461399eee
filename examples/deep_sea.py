"""Deep exploration: one path in 1,024 pays. An agent with priors finds it; one that dithers does not."""

from priorax import train

for agent in ("bsp", "eps_greedy"):
    run = train(agent, "deep_sea", size=10, seed=0, episodes=150)
    last = run.history[-1].total_return
    print(f"{agent:10}  learned in episode {run.episodes_to_learn}, last return {last:.2f}")
    assert agent != "bsp" or last > 0.98  # 0.99 is the best there is
