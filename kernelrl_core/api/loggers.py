"""Write a logger."""

from __future__ import annotations

from kernelrl_core.interfaces.loggers import Logger, LoggerConfig

__all__ = ["Logger", "LoggerConfig"]
