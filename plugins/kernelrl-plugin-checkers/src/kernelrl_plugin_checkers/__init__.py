"""Hack-checkers on the source of a candidate."""

from __future__ import annotations

from kernelrl_core import Component, hookimpl


@hookimpl
def kernelrl_checkers() -> list[Component]:
    return []
