"""Feedback formatters."""

from __future__ import annotations

from kernelrl_core import Component, hookimpl


@hookimpl
def kernelrl_feedback() -> list[Component]:
    return []
