"""Looking at runs: checkpoints described, episodes recorded, many runs in parallel."""
