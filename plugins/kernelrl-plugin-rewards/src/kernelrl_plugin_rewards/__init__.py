"""Reward components."""

from __future__ import annotations

from kernelrl_core import Component, hookimpl


@hookimpl
def kernelrl_rewards() -> list[Component]:
    return []
