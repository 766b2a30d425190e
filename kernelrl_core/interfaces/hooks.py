"""All hooks of kernelrl.

A plugin is a module named by an entry point of the group `kernelrl`. It contains hook implementations and nothing else.
Each returns a list of `Component`, which names its implementation without importing it. `kernelrl_core.interfaces` has
one file per kind, with the base classes and a complete sample plugin.

    from kernelrl_core.api import Component, hookimpl

    @hookimpl
    def kernelrl_rewards() -> list[Component]:
        return [
            Component(
                "brevity",
                target="kernelrl_plugin_brevity.reward:Brevity",
                config="kernelrl_plugin_brevity.options:BrevityConfig",
                summary="Prefers short kernels",
            )
        ]
"""

from __future__ import annotations

from collections.abc import Iterable

import pluggy

from kernelrl_core.interfaces.component import Component

__all__ = ["GROUP", "KINDS", "Hooks", "hookimpl", "hookspec"]

GROUP = "kernelrl"
"""Entry-point group and pluggy project name."""

hookspec = pluggy.HookspecMarker(GROUP)
hookimpl = pluggy.HookimplMarker(GROUP)
"""Decorator of a hook implementation. A function without it is never called."""


class Hooks:
    """One hook for each kind of component."""

    @hookspec
    def kernelrl_backends(self) -> Iterable[Component]:
        """Languages a kernel can be written in: `interfaces.backends`."""
        raise AssertionError("a hook specification is never called")

    @hookspec
    def kernelrl_evaluators(self) -> Iterable[Component]:
        """Evaluators, which build, run, compare and time candidates: `interfaces.evaluators`."""
        raise AssertionError("a hook specification is never called")

    @hookspec
    def kernelrl_tasks(self) -> Iterable[Component]:
        """Sources of tasks: `interfaces.tasks`."""
        raise AssertionError("a hook specification is never called")

    @hookspec
    def kernelrl_retrievers(self) -> Iterable[Component]:
        """Retrievers of worked examples: `interfaces.retrievers`."""
        raise AssertionError("a hook specification is never called")

    @hookspec
    def kernelrl_rewards(self) -> Iterable[Component]:
        """Reward components: `interfaces.rewards`."""
        raise AssertionError("a hook specification is never called")

    @hookspec
    def kernelrl_checkers(self) -> Iterable[Component]:
        """Checkers, which report reward hacks: `interfaces.checkers`."""
        raise AssertionError("a hook specification is never called")

    @hookspec
    def kernelrl_feedback(self) -> Iterable[Component]:
        """Feedback formatters: `interfaces.feedback`."""
        raise AssertionError("a hook specification is never called")

    @hookspec
    def kernelrl_policies(self) -> Iterable[Component]:
        """Policies, which sample replies and learn: `interfaces.policies`."""
        raise AssertionError("a hook specification is never called")

    @hookspec
    def kernelrl_advantages(self) -> Iterable[Component]:
        """Advantages, plain functions: `interfaces.advantages`."""
        raise AssertionError("a hook specification is never called")

    @hookspec
    def kernelrl_loggers(self) -> Iterable[Component]:
        """Loggers, which observe a run: `interfaces.loggers`."""
        raise AssertionError("a hook specification is never called")

    @hookspec
    def kernelrl_commands(self) -> Iterable[Component]:
        """Further commands of the command line: a `click.Command`."""
        raise AssertionError("a hook specification is never called")


KINDS = tuple(name.removeprefix("kernelrl_") for name in vars(Hooks) if name.startswith("kernelrl_"))
"""Names of the kinds, in the order of the hooks."""
