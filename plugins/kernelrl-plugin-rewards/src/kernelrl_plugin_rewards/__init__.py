"""Reward components."""

from __future__ import annotations

from kernelrl_core.api import Component, hookimpl


@hookimpl
def kernelrl_rewards() -> list[Component]:
    return [
        _component("format", "Format", "1 for a reply with usable code"),
        _component("compile", "Compile", "1 for a kernel that builds"),
        _component("correctness", "Correctness", "1 for a correct kernel; optionally partial credit for passed trials"),
        _component("speedup", "Speedup", "Speedup of a correct kernel relative to the baseline; needs timing"),
        _component("milestone", "Milestone", "-1 incorrect, 1 correct, 2 faster than eager, 3 than torch.compile"),
        _component("coverage", "Coverage", "Share of device time in the candidate's own kernels; needs a profile"),
        _component("cuda_l1", "CudaL1", "Speedup of a correct kernel, rounded towards 1; robust to timing noise"),
        _component("thinking", "Thinking", "Prefers replies with thinking of moderate length"),
        _component("length", "Length", "Prefers short kernels"),
        _component("overlong", "Overlong", "0, falling to -1 for replies near or above a token limit, as in DAPO"),
    ]


def _component(name: str, cls: str, summary: str) -> Component:
    package = "kernelrl_plugin_rewards"
    return Component(name, f"{package}.components:{cls}", f"{package}.config:{cls}Config", summary)
