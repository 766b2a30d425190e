"""Policy trained in this process with PyTorch."""

from __future__ import annotations

from kernelrl_core import Component, hookimpl


@hookimpl
def kernelrl_policies() -> list[Component]:
    return []
