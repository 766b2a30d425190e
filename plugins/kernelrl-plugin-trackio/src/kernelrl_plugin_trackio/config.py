"""Options of logger `trackio`."""

from __future__ import annotations

import attrs

from kernelrl_core.api.loggers import LoggerConfig

__all__ = ["TrackioConfig"]


@attrs.frozen
class TrackioConfig(LoggerConfig):
    """Options of logger `trackio`."""

    project: str = "kernelrl"
    """Project of Trackio: `trackio show --project NAME` draws it."""
