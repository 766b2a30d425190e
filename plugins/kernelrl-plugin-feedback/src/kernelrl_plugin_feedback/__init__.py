"""Feedback formatters."""

from __future__ import annotations

from kernelrl_core.api import Component, hookimpl


@hookimpl
def kernelrl_feedback() -> list[Component]:
    return [
        Component(
            "structured",
            "kernelrl_plugin_feedback.structured:Structured",
            config="kernelrl_plugin_feedback.config:StructuredConfig",
            summary="Category, cause, numbers and one line of guidance",
            default=True,
        ),
        Component(
            "profile",
            "kernelrl_plugin_feedback.profiled:Profiled",
            config="kernelrl_plugin_feedback.config:ProfileConfig",
            summary="`structured`, and for a correct kernel the limits of its speed, in words",
        ),
        Component(
            "raw",
            "kernelrl_plugin_feedback.raw:Raw",
            config="kernelrl_plugin_feedback.config:RawConfig",
            summary="Outcome and the whole message, up to a limit",
        ),
        Component(
            "minimal",
            "kernelrl_plugin_feedback.minimal:Minimal",
            summary="One short line of constant phrases, for small models",
        ),
        Component(
            "none",
            "kernelrl_plugin_feedback.silent:Silent",
            summary="No feedback: the control for measuring the effect of feedback",
        ),
    ]
