"""Reward components."""

from __future__ import annotations

from kernelrl_core import Component, hookimpl


@hookimpl
def kernelrl_rewards() -> list[Component]:
    return [
        _component("format", "Format", "1 for a reply with usable code"),
        _component("compile", "Compile", "1 for a kernel that builds"),
        _component("correctness", "Correctness", "1 for a correct kernel, on request a share for passed tests"),
        _component("speedup", "Speedup", "Speedup of a correct kernel over the baseline; needs timing"),
        _component("thinking", "Thinking", "Prefers replies with some thinking, but not too much"),
        _component("length", "Length", "Prefers short kernels"),
    ]


def _component(name: str, cls: str, summary: str) -> Component:
    package = "kernelrl_plugin_rewards"
    return Component(name, f"{package}.components:{cls}", f"{package}.config:{cls}Config", summary)
