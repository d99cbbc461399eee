"""Replay: transitions stored once, with K bootstrap masks; on the device, or as frames on the host."""

from priorax.replay.base import Path, Replay, Sampled, Transition, owned_mean, td_errors
from priorax.replay.device import Buffer, DeviceReplay, Stored
from priorax.replay.frames import FrameLayout, FrameReplay, LaneStep, check_holds

__all__ = [
    "Buffer",
    "DeviceReplay",
    "FrameLayout",
    "FrameReplay",
    "LaneStep",
    "Path",
    "Replay",
    "Sampled",
    "Stored",
    "Transition",
    "check_holds",
    "owned_mean",
    "td_errors",
]
