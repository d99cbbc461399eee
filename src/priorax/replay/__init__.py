"""Replay buffers: transitions stored once, K masks beside them; in the compiled loop, and on the host."""

from priorax.replay.device import Buffer, EnsembleBuffer, Transition
from priorax.replay.frames import Drawn, LaneStep, SequenceBuffer, SequenceSettings

__all__ = ["Buffer", "Drawn", "EnsembleBuffer", "LaneStep", "SequenceBuffer", "SequenceSettings", "Transition"]
