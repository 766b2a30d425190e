"""Evaluator on this machine."""

from __future__ import annotations

from kernelrl_core import Component, hookimpl


@hookimpl
def kernelrl_evaluators() -> list[Component]:
    return []
