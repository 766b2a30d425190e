"""Evaluators: build, run, compare and time candidates.

The core adds capacity limits, coalescing of identical requests in flight, retries and the evaluation cache. A bad
kernel is an `Evaluation`; a broken machine raises `InfrastructureError`. An `EvaluationRequest` is plain data:
`to_json` and `from_json` carry it to another machine.

`kernelrl plugins new evaluators NAME` writes a sample plugin.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import attrs

from kernelrl_core.errors import UsageError
from kernelrl_core.interfaces.config import ComponentConfig
from kernelrl_core.interfaces.requirements import Requires
from kernelrl_core.types.audits import TaskAudit
from kernelrl_core.types.evaluations import Evaluation, EvaluationRequest, EvaluationSettings
from kernelrl_core.types.outcomes import Rule
from kernelrl_core.types.tasks import Task

__all__ = ["Evaluator", "EvaluatorConfig"]


@attrs.frozen
class EvaluatorConfig(ComponentConfig):
    """Options of an evaluator."""

    def settings_here(self, settings: EvaluationSettings) -> EvaluationSettings | None:
        """Settings of the evaluations on this machine, which then needs the prerequisites of the backend. None: only
        other machines build and execute candidates."""
        return settings

    def requires_for(self, settings: EvaluationSettings) -> Requires:
        """Prerequisites that depend on the evaluation settings."""
        return Requires()

    def prices(self) -> Mapping[str, float]:
        """Prices in USD by key of the recipe block `cost.prices`: `gpu_hour`."""
        return {}


class Evaluator(ABC):
    """Evaluates candidates."""

    rules: ClassVar[Sequence[Rule]] = ()
    """Rules of the findings that its evaluations can contain, for `kernelrl explain` and the documentation."""
    capacity: int
    """Maximum number of concurrent requests; at least 1, set by the constructor. It may change later: the core reads it
    whenever an evaluation begins or ends."""
    attempts: int = 3
    """Largest number of tries of an evaluation with infrastructure errors, including the first. 1: this evaluator is a
    client of another one, which has tried again."""

    @abstractmethod
    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        """Evaluate one candidate. A bad kernel is an `Evaluation`; a broken machine raises.

        Raises:
            InfrastructureError: the evaluation could not be carried out; the core retries it.
            UsageError, MissingPrerequisite: the task or the options cannot be used; the run ends.
        """

    async def start(self) -> None:
        """Connect or start processes, and check versions and GPUs elsewhere. Called before the policy starts and before
        the first evaluation or audit; may be called again.

        Raises:
            UsageError, MissingPrerequisite: it cannot work with its options, or lacks a prerequisite.
        """

    async def expect(self, backend: str) -> None:
        """A request for this backend will follow soon: start what it needs, and do not wait for it. May be called
        before `start`. The default does nothing.

        Raises:
            MissingPrerequisite: the workers lack the backend, or have another version of it.
        """

    async def require_confinement(self) -> None:
        """Check that tasks of others (`EvaluationRequest.domain`) cannot reach files, network and processes here, and
        that no judge serves tasks of two domains. The core calls it before the first request with a domain.

        Raises:
            UsageError: this evaluator confines no tasks. The default.
            MissingPrerequisite: this machine lacks isolation layers.
        """
        raise UsageError(
            f"evaluator {type(self).__name__} does not confine tasks of others",
            fix="--evaluator local",
            see="arguments",
        )

    def why_untimed(self, backend: str, options: Mapping[str, Any]) -> str:
        """Why kernels of a backend cannot be timed here; empty: they can, or it is not known.

        Args:
            options: of the backend, as in `EvaluationRequest.backend_options`.
        """
        return ""

    def gpu_model(self) -> str:
        """Model of the GPUs that execute candidates, as their driver names it; several are separated by `, `; empty:
        none, or not known. Times of different models are not comparable: the core refuses several if it measures
        times. Called after `start`."""
        return ""

    def identity(self) -> str:
        """Everything that an evaluation depends on besides the request and the versions of the plugins. Part of the key
        of the evaluation cache; called after `start`. The default: the GPU model."""
        return self.gpu_model()

    async def audit(self, task: Task, settings: EvaluationSettings, timeout_s: float) -> TaskAudit:
        """Run a task's reference in a separate process and flag shortcuts that would pass its comparison.

        A task that hangs, exhausts memory or ends its process is `unaudited`. One with a domain is confined; the core
        calls `require_confinement` before.

        Raises:
            InfrastructureError: the process could not be started.
            UsageError: this evaluator does not audit tasks.
        """
        raise UsageError(f"evaluator {type(self).__name__} audits no tasks", fix="--evaluator local", see="arguments")

    async def equal_tasks(self, tasks: Sequence[Task]) -> Mapping[str, tuple[str, ...]]:
        """Compare tasks by the outputs of their references, for `train.decontaminate`. The default compares nothing.

        Returns:
            Content hash of a task -> those of the others that compute the same.

        Raises:
            InfrastructureError: the sandboxes of the references do not start.
        """
        return {}

    async def aclose(self) -> None:
        """End all processes and connections. May be called twice."""
