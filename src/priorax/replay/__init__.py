"""Replay: the paper's `ensemble_buffer`, masks instead of K copies."""

from priorax.replay.ensemble_buffer import Buffer, EnsembleBuffer, Transition

__all__ = ["Buffer", "EnsembleBuffer", "Transition"]
