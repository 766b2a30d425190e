'''Evaluators: build, run, compare and time candidates.

The core adds capacity limits, coalescing of identical requests in flight, retries and the evaluation cache. A bad
kernel is an `Evaluation`; a broken machine raises `InfrastructureError`. An `EvaluationRequest` is plain data:
`to_json` and `from_json` carry it to another machine.

    # src/kernelrl_plugin_cluster/__init__.py
    """Evaluator `cluster` for kernelrl."""

    from kernelrl_core.api import Component, Requires, hookimpl


    @hookimpl
    def kernelrl_evaluators() -> list[Component]:
        return [
            Component(
                "cluster",
                target="kernelrl_plugin_cluster.evaluator:Cluster",
                config="kernelrl_plugin_cluster.options:ClusterConfig",
                summary="Evaluates through a program, on any machine",
                requires=Requires(modules=("kernelrl_plugin_local",), fix="pip install kernelrl-plugin-local"),
            )
        ]

    # src/kernelrl_plugin_cluster/options.py
    """Options of the evaluator `cluster`."""

    import sys

    import attrs

    from kernelrl_core.api.config import PositiveInt
    from kernelrl_core.api.evaluators import EvaluationSettings, EvaluatorConfig


    @attrs.frozen
    class ClusterConfig(EvaluatorConfig):
        """Options."""

        command: tuple[str, ...] = (sys.executable, "-m", "kernelrl_plugin_cluster.worker")
        """Program that reads an order as JSON and writes the result as JSON. To use another machine, begin with
        `ssh` and its name."""
        capacity: PositiveInt = PositiveInt(2)
        """Maximum number of concurrent requests."""
        timing: bool = False
        """True if the program can time kernels."""

        def settings_here(self, settings: EvaluationSettings) -> None:
            """The machine of the program needs the backend, and this one need not have it."""

    # src/kernelrl_plugin_cluster/evaluator.py
    """The evaluator `cluster`."""

    import asyncio
    import json
    from asyncio.subprocess import PIPE
    from collections.abc import Mapping
    from typing import Any

    from kernelrl_core.api.errors import InfrastructureError
    from kernelrl_core.api.evaluators import (
        Evaluation,
        EvaluationRequest,
        EvaluationSettings,
        Evaluator,
        Task,
        TaskAudit,
        from_json,
        to_json,
    )
    from kernelrl_plugin_cluster.options import ClusterConfig


    class Cluster(Evaluator):
        """Starts one process per candidate."""

        def __init__(self, config: ClusterConfig) -> None:
            self.capacity = config.capacity
            self._command, self._timing = config.command, config.timing

        def identity(self) -> str:
            return " ".join(self._command)

        def why_untimed(self, backend: str, options: Mapping[str, Any]) -> str:
            return "" if self._timing else "the option timing is false"

        async def evaluate(self, request: EvaluationRequest) -> Evaluation:
            return from_json(Evaluation, await self._call({"request": to_json(request)}))

        async def audit(self, task: Task, settings: EvaluationSettings, timeout_s: float) -> TaskAudit:
            order = {"task": to_json(task), "settings": to_json(settings), "timeout_s": timeout_s}
            return from_json(TaskAudit, await self._call(order))

        async def _call(self, order: Mapping[str, Any]) -> Any:
            process = await asyncio.create_subprocess_exec(*self._command, stdin=PIPE, stdout=PIPE, stderr=PIPE)
            try:
                output, errors = await process.communicate(json.dumps(order).encode())
            finally:
                if process.returncode is None:  # cancelled
                    process.kill()
                    await process.wait()
            if process.returncode:
                raise InfrastructureError(f"{self.identity()} failed: {errors.decode(errors='replace')[-500:]}")
            return json.loads(output)

    # src/kernelrl_plugin_cluster/worker.py
    """The worker of the evaluator `cluster`: carries out the order on stdin with evaluator `local`."""

    import asyncio
    import json
    import sys
    from collections.abc import Mapping
    from typing import Any

    from kernelrl_core.api.components import component_block, registry
    from kernelrl_core.api.evaluators import EvaluationRequest, EvaluationSettings, Task, from_json, to_json


    async def work(order: Mapping[str, Any]) -> Any:
        use = component_block("evaluator", {"use": "local", "workers": 1}, registry())
        evaluator = registry().make("evaluators", use)
        try:
            await evaluator.start()
            if "request" in order:
                return to_json(await evaluator.evaluate(from_json(EvaluationRequest, order["request"])))
            task, settings = from_json(Task, order["task"]), from_json(EvaluationSettings, order["settings"])
            return to_json(await evaluator.audit(task, settings, order["timeout_s"]))
        finally:
            await evaluator.aclose()


    if __name__ == "__main__":
        json.dump(asyncio.run(work(json.load(sys.stdin))), sys.stdout)

    # tests/test_cluster.py
    """Contract of the evaluator `cluster`, with a worker that executes no candidate."""

    import asyncio
    import sys
    from types import MappingProxyType

    import pytest

    from kernelrl_core.api.errors import InfrastructureError
    from kernelrl_core.testing.contracts import EvaluatorContract
    from kernelrl_core.testing.values import make_request
    from kernelrl_plugin_cluster.evaluator import Cluster
    from kernelrl_plugin_cluster.options import ClusterConfig

    pytest.importorskip("kernelrl_plugin_triton", reason="the contract evaluates the example of backend triton")

    WORKER = """
    import ast, json, sys

    request = json.load(sys.stdin)["request"]
    source = request["source"]
    if request["backend"] != "triton" or "planted" in request["task_source"]:
        raise SystemExit("the request cannot be carried out")
    try:
        ast.parse(source)
        outcome = "runtime_error" if "planted" in source else "incorrect" if "zeros(())" in source else "correct"
    except SyntaxError:
        outcome = "compile_error"
    correct = outcome == "correct"
    found = {"outcome": outcome, "message": "" if correct else outcome, "tests_passed": 5 * correct, "tests_total": 5}
    json.dump(found, sys.stdout)
    """
    """Decides by the text of a candidate of the contract."""


    class TestContract(EvaluatorContract):
        component = "cluster"
        options = MappingProxyType({"command": (sys.executable, "-c", WORKER)})
        backend = "triton"


    def test_a_program_that_fails_is_an_infrastructure_error() -> None:
        config = ClusterConfig(command=(sys.executable, "-c", "raise SystemExit('no GPU')"))
        evaluator = Cluster(config)
        with pytest.raises(InfrastructureError, match="no GPU"):
            asyncio.run(evaluator.evaluate(make_request()))

In a recipe:

    evaluator: {use: cluster, command: [ssh, gpu-box, python, -m, kernelrl_plugin_cluster.worker], timing: true}
'''

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

        A task that hangs, exhausts memory or ends its process is `unaudited`.

        Raises:
            InfrastructureError: the process could not be started.
            UsageError: this evaluator does not audit tasks.
        """
        raise UsageError(f"evaluator {type(self).__name__} audits no tasks", fix="--evaluator local", see="arguments")

    async def aclose(self) -> None:
        """End all processes and connections. May be called twice."""
