"""Positive controls: each baseline on a task that it should solve, and our agents compared with those of others.

A baseline that fails on DeepSea should be shown to work elsewhere. On CartPole-v1, where every step is rewarded,
NoisyNet, dropout, Bayes by Backprop, C51, QR-DQN, bootstrapped DQN and epsilon-greedy DQN are run with one preset
(`gymnasium`). Our DQN is also compared with that of Stable-Baselines3, with the same network, learning rate,
minibatches, replay, target network, epsilon and number of updates (its loss is Huber's, ours is squared); and BSP on
DeepSea with the default agent of bsuite's JAX `boot_dqn`, with 20 members.
"""

from typing import Any

import numpy as np
from matplotlib.figure import Figure

from priorax.analysis.parallel import Task
from priorax.experiments.sweep import fresh_seeds, task
from priorax.report.intervals import mean_interval, median_interval
from priorax.report.looks import LOOKS
from priorax.report.plots import panels
from priorax.report.rows import Row, where
from priorax.training.records import Result

ENV = "gymnasium:CartPole-v1"
BASELINES: dict[str, dict[str, Any]] = {
    "bsp": {},
    "bs": {},
    "eps_greedy": {},
    "noisy": {},
    "dropout": {"p_keep": 0.8, "widths": (100, 100)},
    "bbb": {"kl_weight": 0.01},
    "c51": {"lowest": 0.0, "highest": 100.0},
    "qr": {},
}
"""Changes to the preset `gymnasium`: C51's atoms cover the returns; dropout keeps most units of a wider network, as its
authors do; Bayes by Backprop has a smaller weight of the KL divergence."""
SAME: dict[str, Any] = {
    "widths": (64, 64),
    "learning_rate": 1e-3,
    "batch_size": 64,
    "capacity": 50_000,
    "learn_after": 1000,
    "learn_every": 1,
    "target_period": 500,
    "epsilon": 0.1,
    "epsilon_episodes": 0,
    "clip": 10.0,
    "lanes": 1,
}
"""Settings of both our DQN and that of Stable-Baselines3."""
STEPS = {"quick": 3_000, "full": 50_000}
SEEDS = {"quick": 1, "full": 5}
SIZES = {"quick": (5,), "full": (10, 20)}
BOOT_DQN_EPISODES = {"quick": 50, "full": 2000}
BOOT_DQN_SEEDS = {"quick": 1, "full": 3}
EVALUATED = 20
"""Episodes of the evaluation at the end, without exploration."""
SB3, OURS, BOOT_DQN = "stable-baselines3", "priorax, same settings", "bsuite boot_dqn"


def ladders(budget: str) -> list[Any]:
    """List every run separately.

    Args:
        budget: Size of the experiment, `quick` or `full`.

    Returns:
        Ladders of tasks (`priorax.analysis.parallel`).
    """
    steps = STEPS[budget]
    found: list[Task] = []
    for seed in fresh_seeds(SEEDS[budget]):
        found += [_cartpole(name, name, seed, steps, "gymnasium", changes) for name, changes in BASELINES.items()]
        found.append(_cartpole(OURS, "eps_greedy", seed, steps, "tuned", SAME))
        found.append(Task(SB3, {"seed": seed, "steps": steps}, stable_baselines, needs="stable-baselines3"))
    for size in SIZES[budget]:
        for seed in fresh_seeds(BOOT_DQN_SEEDS[budget]):
            arguments = {"size": size, "seed": seed, "episodes": BOOT_DQN_EPISODES[budget]}
            found.append(Task(BOOT_DQN, arguments, boot_dqn, needs="dm-haiku"))
            found.append(task("bsp", "bsp", size, seed, BOOT_DQN_EPISODES[budget]))
    return [[[item]] for item in found]


def _cartpole(name: str, agent: str, seed: int, steps: int, preset: str, changes: dict[str, Any]) -> Task:
    arguments = {"agent": agent, "env": ENV, "size": 1, "seed": seed, "steps": steps, "preset": preset}
    evaluated = {"evaluate_every": steps, "evaluation_episodes": EVALUATED}
    return Task(name, {**arguments, "changes": changes, **evaluated})


def outcome(result: Result) -> list[dict[str, Any]]:
    """Make one row: on CartPole the return of the deployed policy at the end, on DeepSea the time to learn.

    Args:
        result: Result of the run.

    Returns:
        The rows.
    """
    if result.tells_regret:
        return [{"episodes_to_learn": result.episodes_to_learn, "episodes": result.episodes}]
    return [{"evaluation": result.evaluation, "last_100": result.mean_return, "episodes": result.episodes}]


def stable_baselines(seed: int, steps: int) -> list[dict[str, Any]]:
    """Train the DQN of Stable-Baselines3 with the settings of `SAME`.

    Args:
        seed: Random seed.
        steps: Number of environment steps.

    Returns:
        One row, as of our runs.

    Raises:
        ImportError: If Stable-Baselines3 is not installed.
    """
    try:
        import gymnasium
        from stable_baselines3 import DQN
        from stable_baselines3.common.evaluation import evaluate_policy
        from stable_baselines3.common.monitor import Monitor
    except ImportError as error:
        raise ImportError("the comparison needs Stable-Baselines3; pip install 'priorax[peers]'") from error
    env: Any = Monitor(gymnasium.make("CartPole-v1"))
    model = DQN(
        "MlpPolicy",
        env,
        learning_rate=SAME["learning_rate"],
        buffer_size=SAME["capacity"],
        learning_starts=SAME["learn_after"],
        batch_size=SAME["batch_size"],
        tau=1.0,
        gamma=0.99,
        train_freq=SAME["learn_every"],
        gradient_steps=1,
        target_update_interval=SAME["target_period"],
        exploration_initial_eps=SAME["epsilon"],
        exploration_final_eps=SAME["epsilon"],
        max_grad_norm=SAME["clip"],
        policy_kwargs={"net_arch": list(SAME["widths"])},
        seed=seed,
        device="cpu",
    )
    model.learn(total_timesteps=steps)
    returns, _ = evaluate_policy(
        model, Monitor(gymnasium.make("CartPole-v1")), n_eval_episodes=EVALUATED, return_episode_rewards=True
    )
    history = env.get_episode_rewards()
    return [
        {
            "env": ENV,
            "evaluation": float(np.mean(returns)),
            "last_100": float(np.mean(history[-100:])),
            "episodes": len(history),
        }
    ]


def boot_dqn(size: int, seed: int, episodes: int) -> list[dict[str, Any]]:
    """Train bsuite's JAX boot_dqn on bsuite's DeepSea: its default agent, with 20 members.

    Args:
        size: Size of DeepSea.
        seed: Random seed of agent and environment.
        episodes: Most episodes.

    Returns:
        One row, as of our runs: it learned when fewer than nine tenths of its episodes missed the treasure.

    Raises:
        ImportError: If bsuite's baselines are not installed.
    """
    try:
        from bsuite.baselines.jax.boot_dqn import default_agent
        from bsuite.environments.deep_sea import DeepSea
    except ImportError as error:
        raise ImportError("the comparison needs bsuite's baselines; pip install 'priorax[peers]'") from error
    env = DeepSea(size, mapping_seed=seed)
    agent = default_agent(env.observation_spec(), env.action_spec(), num_ensemble=20, seed=seed)
    bad, learned, episode = 0, None, 0
    while episode < episodes and learned is None:
        timestep, best = env.reset(), 0.0
        while not timestep.last():
            action = agent.select_action(timestep)
            after = env.step(action)
            agent.update(timestep, action, after)
            timestep, best = after, max(best, float(after.reward))
        episode += 1
        bad += best < 0.5  # the treasure is worth 1, and all moves together cost 0.01
        if episode >= 30 and bad / episode < 0.9:
            learned = episode
    return [{"env": "deep_sea", "episodes_to_learn": learned, "episodes": episode}]


def figure(rows: list[Row]) -> Figure:
    """Plot the final return on CartPole, and the time to learn DeepSea.

    Args:
        rows: Rows of the experiment.

    Returns:
        The figure.
    """
    drawing, axes = panels(1, 2, width=5.2, height=3.8, share=False)
    left, right = axes[0]
    names = [name for name in (*BASELINES, OURS, SB3) if where(rows, name=name, env=ENV)]
    for i, name in enumerate(reversed(names)):
        found = [row["evaluation"] for row in where(rows, name=name, env=ENV)]
        color = LOOKS[name].color if name in LOOKS else "#444444"
        left.plot(found, [i] * len(found), "o", color=color, ms=4, alpha=0.5)
        estimate = mean_interval(found)
        left.plot([estimate.low, estimate.high], [i, i], color=color, lw=2)
        left.plot(estimate.value, i, "|", color=color, ms=12, mew=2)
    left.set_yticks(range(len(names)), [_label(name) for name in reversed(names)], fontsize=8)
    left.set(xlim=(0, 510), xlabel="return without exploration, CartPole-v1", title="where every step is rewarded")
    for name, color, marker in (("bsp", LOOKS["bsp"].color, "o"), (BOOT_DQN, "#444444", "s")):
        mine = [row for row in where(rows, name=name) if row.get("env") == "deep_sea"]
        for row in mine:
            time = row.get("episodes_to_learn")
            right.plot(row["size"], time or row["episodes"], marker, color=color, mfc=color if time else "none", ms=5)
        right.plot([], [], marker, color=color, label=_label(name))
    right.set(yscale="log", xlabel="DeepSea size N", ylabel="episodes to learn (hollow: not learned)")
    right.set_xticks(sorted({row["size"] for row in rows if row.get("env") == "deep_sea"}))
    right.legend(fontsize=8, frameon=False)
    return drawing


def _label(name: str) -> str:
    label = LOOKS[name].short if name in LOOKS else name
    return f"DQN, {name}" if name in (OURS, SB3) else label


def summary(rows: list[Row]) -> list[tuple[str, ...]]:
    """Tabulate the final return on CartPole and the time to learn DeepSea, with 95% bootstrap intervals.

    Args:
        rows: Rows of the experiment.

    Returns:
        The table: a header, then rows.
    """
    table: list[tuple[str, ...]] = [("agent", "task", "mean return, or median episodes to learn", "runs")]
    for name in (*BASELINES, OURS, SB3):
        found = [row["evaluation"] for row in where(rows, name=name, env=ENV)]
        if found:
            table.append((_label(name), "CartPole-v1", mean_interval(found).words(".0f"), str(len(found))))
    for size in sorted({row["size"] for row in rows if row.get("env") == "deep_sea"}):
        for name in ("bsp", BOOT_DQN):
            mine = [row for row in where(rows, name=name, size=size) if row.get("env") == "deep_sea"]
            times = [float(row.get("episodes_to_learn", "inf")) for row in mine]
            if times:
                table.append((_label(name), f"DeepSea {size}", median_interval(times).words(), str(len(times))))
    return table
