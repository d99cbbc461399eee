"""bsuite: its tasks, its scores, and the scores of others."""
