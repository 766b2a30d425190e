"""Policy that returns replies from a file."""

from __future__ import annotations

from kernelrl_core.api import Component, hookimpl


@hookimpl
def kernelrl_policies() -> list[Component]:
    return [
        Component(
            "scripted",
            "kernelrl_plugin_scripted.policy:ScriptedPolicy",
            config="kernelrl_plugin_scripted.config:ScriptedConfig",
            summary="Returns replies from a file: for tests and trial runs, without a model",
        )
    ]
