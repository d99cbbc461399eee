"""bsuite's scoring rules of DeepSea and cartpole swing-up, for rows of ours and of bsuite's alike."""

import numpy as np

DEEP_SEA = {"deep_sea": (0.9, 1), "deep_sea_stochastic": (0.8, 100)}
"""The fraction of bad episodes below which a size counts as learned, and the first episode that may count."""
PUBLISHED = {
    "deep_sea": {"picture": 1.00, "DreamerV3": 1.00},
    "deep_sea_stochastic": {"picture": 0.87, "DreamerV3": 0.90},
    "cartpole_swingup": {"picture": 0.28, "DreamerV3": 0.15},
}
"""Scores of bsuite's `boot_dqn` by source: read off the picture in bsuite's repository, and table 13 of the DreamerV3
paper."""
GOOD_RETURN = 700.0
"""Return per episode of cartpole swing-up that has no regret."""
GOOD_EPISODE = 100.0
"""Return of an episode of cartpole swing-up that counts as a success."""


def published_scores(experiment: str) -> str:
    """Format the published scores of bsuite's `boot_dqn`, with their sources.

    Args:
        experiment: A name in `PUBLISHED`.

    Returns:
        The text.
    """
    found = PUBLISHED[experiment]
    words = {"picture": "the picture in bsuite's repository", "DreamerV3": "table 13 of the DreamerV3 paper"}
    return ", ".join(f"{score:.2f} by {words[name]}" for name, score in found.items())


def learned_in_time(episode: float, size: int) -> bool:
    """Check whether a DeepSea was learned sooner than by dithering.

    Args:
        episode: The episode at which it was learned; infinity: never.
        size: N.

    Returns:
        Whether that was before episode 2^N + 100.
    """
    return episode < 2.0**size + 100


def swingup_score(mean_return: float, best: float) -> float:
    """Score one difficulty of cartpole swing-up.

    Args:
        mean_return: Mean return per episode.
        best: Return of the best episode.

    Returns:
        A half for the mean return, and a half for a single success.
    """
    return 0.5 * (float(np.clip(mean_return / GOOD_RETURN, 0, 1)) + float(best > GOOD_EPISODE))
