"""Show a run while it trains: progress, alarms, the step line, and time by activity."""

from __future__ import annotations

from kernelrl_core.monitoring.alarms import FINDING_PREFIX, Alarms
from kernelrl_core.monitoring.console import LINE_EVERY_S, step_line
from kernelrl_core.monitoring.progress import progress_text
from kernelrl_core.monitoring.timeline import TIME_KINDS

__all__ = [
    "FINDING_PREFIX",
    "LINE_EVERY_S",
    "TIME_KINDS",
    "Alarms",
    "progress_text",
    "step_line",
]
