"""Experiments: checks of kernels, audits of tasks, held-out evaluations and samples of a policy, searches for a better
kernel, and the effect of a change to a recipe.

The commands compose the rollouts and runs of the core. They have the core's version and may import its private modules.
"""

from __future__ import annotations

from kernelrl_core.api import Component, hookimpl


@hookimpl
def kernelrl_commands() -> list[Component]:
    return [
        Component(
            "ablate",
            target="kernelrl_experiments.ablate_command:command",
            summary="Measure the effect of a change to a recipe.",
        ),
        Component(
            "check",
            target="kernelrl_experiments.check.command:command",
            summary="Evaluate kernel files against a task.",
        ),
        Component(
            "eval",
            target="kernelrl_experiments.eval_command:command",
            summary="Measure a policy or a checkpoint on a split.",
        ),
        Component(
            "optimize",
            target="kernelrl_experiments.optimize.command:command",
            summary="Improve a kernel with a language model.",
        ),
        Component(
            "sample",
            target="kernelrl_experiments.sample_command:command",
            summary="Sample kernels for one task and evaluate them.",
        ),
        Component(
            "tasks audit",
            target="kernelrl_experiments.audit_command:command",
            summary="Find tasks that a shortcut would pass.",
        ),
    ]
