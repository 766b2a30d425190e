"""Sends a held-out evaluation that was made outside of a run to the loggers of the run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernelrl_core.errors import MissingPrerequisite, UsageError
from kernelrl_core.heldout.split import numeric_results
from kernelrl_core.monitoring.loggers import LoggerThreads
from kernelrl_core.plugins.registry import Registry
from kernelrl_core.runs.directory import RunDir
from kernelrl_core.training.continuation import run_recipe

__all__ = ["RunLoggers"]


class RunLoggers:
    """The loggers of a run that no process is working on."""

    def __init__(self, run: RunDir, registry: Registry) -> None:
        """Check that an evaluation can be sent later.

        Raises:
            UsageError: the recipe of the run has no logger, or another process works on the run.
            MissingPrerequisite: a logger needs something that this machine lacks.
        """
        self._run, self._registry, self._loaded = run, registry, run_recipe(run, registry)
        self.names = tuple(self._loaded.recipe.loggers)
        if not self.names:
            raise UsageError(
                f"run {run.path} has no loggers",
                fix=f"write loggers: {{tensorboard: {{use: tensorboard}}}} into {run.path / 'recipe.yaml'}, "
                "then repeat this",
                see="tensorboard",
            )
        uses = self._loaded.recipe.loggers.values()
        found = [one for use in uses for one in registry.missing(registry.find("loggers", use.use), use.options)]
        if found:
            raise MissingPrerequisite(
                "\n".join(f"missing: {one.what}" for one in found), fix="; ".join(one.fix for one in found)
            )
        run.lock()
        run.unlock()

    def send(self, report: Mapping[str, Any], step: int) -> None:
        """Send the report of `evaluate_job` as the evaluation after `step` steps. An exception of a logger is logged.

        Raises:
            UsageError: another process works on the run.
            KernelRLError: the run directory cannot be written.
        """
        run, recipe = self._run, self._loaded.recipe
        state = run.state()[0]
        run.lock()
        try:
            done = max((int(row["step"]) for row in run.each_row("metrics")), default=-1) + 1
            loggers = LoggerThreads({name: self._registry.make("loggers", use) for name, use in recipe.loggers.items()})
            loggers.start(run.path, self._loaded.resolved, done, run.steps_after)
            loggers.evaluation({"step": step, **numeric_results(report)})
            loggers.finish(state if state in ("finished", "failed") else "stopped")
        finally:
            run.unlock()
