"""Training: agents in environments (`live`, algorithm 3), with logs, checkpoints and evaluation."""
