"""Replay buffers: transitions stored once, K masks beside them; in the compiled loop, and on the host."""

from priorax.replay.ensemble_buffer import Buffer, EnsembleBuffer, Transition
from priorax.replay.sequences import Drawn, Moment, SequenceBuffer, SequenceSettings

__all__ = ["Buffer", "Drawn", "EnsembleBuffer", "Moment", "SequenceBuffer", "SequenceSettings", "Transition"]
