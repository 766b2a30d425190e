"""The plugin `core`: the advantage estimators, offered through the same hook as anyone's."""

from __future__ import annotations

from kernelrl_core.component import Component
from kernelrl_core.hookspecs import hookimpl


@hookimpl
def kernelrl_advantages() -> list[Component]:
    return []
