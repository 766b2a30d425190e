"""The evaluator `modal`: one call per candidate to a container with a judge."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping
from typing import Any

import attrs
import modal

from kernelrl_core.api.components import registry, require_same_versions, worker_versions
from kernelrl_core.api.errors import InfrastructureError, MissingPrerequisite, UsageError
from kernelrl_core.api.evaluators import (
    Evaluation,
    EvaluationRequest,
    EvaluationSettings,
    Evaluator,
    Task,
    TaskAudit,
    from_json,
    read_response,
    to_json,
)
from kernelrl_judge.backend import UNTIMED
from kernelrl_judge.client.builds import backend_runner
from kernelrl_judge.findings import RULES
from kernelrl_plugin_modal.client import Calls, RemoteFunction, refuse_pickles, translated
from kernelrl_plugin_modal.config import ModalConfig, is_model_of
from kernelrl_plugin_modal.image import DISTRIBUTIONS, app_name

__all__ = ["ModalEvaluator"]

logger = logging.getLogger(__name__)

_QUEUED_PER_CONTAINER = 2
"""Calls in flight per container. The second waits at Modal, or is built, so that no GPU waits for the network."""


class ModalEvaluator(Evaluator):
    """Evaluates candidates in containers with a GPU; extensions are built in containers without one."""

    rules = RULES

    def __init__(self, config: ModalConfig) -> None:
        self._config = config
        self.capacity = _QUEUED_PER_CONTAINER * config.max_containers
        self._calls = Calls()
        self._gpu: RemoteFunction | None = None
        self._cpu: RemoteFunction | None = None
        self._facts: Mapping[str, Any] = {}
        self._app = contextlib.AsyncExitStack()
        self._name = ""

    async def start(self) -> None:
        """Find the app, start a container, and compare its versions; see `Evaluator.start`."""
        if self._facts:
            return
        refuse_pickles()
        self._name = await asyncio.to_thread(app_name, self._config)
        try:
            if self._gpu is None or self._cpu is None:
                self._gpu, self._cpu = await self._functions()
            logger.info("app %s: waiting for a container with GPU %s", self._name, self._config.gpu)
            facts = await self._calls.call(self._gpu, {"do": "describe"})
        except InfrastructureError as error:
            # No sample was generated yet: the user decides whether to wait.
            raise MissingPrerequisite(
                f"app {self._name}: {error.message}", fix=error.fix or "try again", see="modal"
            ) from error
        deploy = self._config.deploy_command
        here = worker_versions(registry(), *DISTRIBUTIONS)
        require_same_versions(here, facts["versions"], f"app {self._name}", distributions=DISTRIBUTIONS, fix=deploy)
        if not is_model_of(self._config.gpu, facts["gpu"]):
            text = f"app {self._name} requests GPU {self._config.gpu}, and its container has {facts['gpu'] or 'none'}"
            raise MissingPrerequisite(text, fix="choose another evaluator.gpu, or try again", see="modal")
        self._facts = facts

    async def _functions(self) -> tuple[RemoteFunction, RemoteFunction]:
        if self._config.mode == "ephemeral":
            from kernelrl_plugin_modal.app import make_app

            # Building the wheels blocks.
            app, functions = await asyncio.to_thread(self._app.enter_context, make_app(self._config))
            await translated(self._app.enter_async_context(app.run()))
            return functions
        found = [modal.Function.from_name(self._name, name) for name in ("gpu", "cpu")]
        try:
            for function in found:
                await translated(function.hydrate.aio())
        except MissingPrerequisite as error:
            if not isinstance(error.__cause__, modal.exception.NotFoundError):
                raise
            raise MissingPrerequisite(
                f"app {self._name} is not deployed, or was deployed with other options or another version of kernelrl",
                fix=self._config.deploy_command,
                see="modal",
            ) from error
        return found[0], found[1]

    def gpu_model(self) -> str:
        """See `Evaluator.gpu_model`."""
        return str(self._facts.get("gpu", ""))

    def identity(self) -> str:
        """GPU model and app; the app's name has the hash of the image."""
        return f"{self.gpu_model()} {self._name}"

    def why_untimed(self, backend: str, options: Mapping[str, Any]) -> str:
        """See `Evaluator.why_untimed`."""
        _, runner = backend_runner(backend)
        return UNTIMED.get(runner.mode(options, True), "")

    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        """See `Evaluator.evaluate`."""
        gpu, cpu = self._started()
        message: dict[str, Any] = {"request": to_json(request)}
        builds: Mapping[str, str] = {}
        if await _has_portable_builds(request):
            built = await self._calls.call(cpu, {"do": "build", "arch": self._facts["arch"], **message})
            builds = built.get("builds", {})
        message |= {"do": "evaluate", "gpu": self.gpu_model(), "builds": builds}
        response = await self._calls.call(gpu, message)
        found = read_response(response)
        model = str(found.provenance.get("gpu") or "")
        if model and model != self.gpu_model():
            raise InfrastructureError(f"a container measured on {model}, the run uses {self.gpu_model()}")
        provenance = {**found.provenance, "app": self._name}
        return attrs.evolve(found, provenance=provenance, seconds={**found.seconds, "gpu": float(response["seconds"])})

    async def audit(self, task: Task, settings: EvaluationSettings, timeout_s: float) -> TaskAudit:
        """See `Evaluator.audit`."""
        gpu, _ = self._started()
        message = {"do": "audit", "task": to_json(task), "settings": to_json(settings), "timeout_s": timeout_s}
        response = await self._calls.call(gpu, message)
        return from_json(TaskAudit, response["audit"])

    async def aclose(self) -> None:
        """End cancelled calls and an ephemeral app."""
        await self._calls.aclose()
        await self._app.aclose()

    def _started(self) -> tuple[RemoteFunction, RemoteFunction]:
        if not self._facts or self._gpu is None or self._cpu is None:
            raise UsageError("evaluator modal is not started", fix="await evaluator.start()", see="modal")
        return self._gpu, self._cpu


async def _has_portable_builds(request: EvaluationRequest) -> bool:
    """Whether extensions can be built in a container without a GPU. Code for the CPU of the machine (`-march`) cannot:
    containers have different CPUs."""
    _, runner = backend_runner(request.backend)
    spec = runner.toolchain(request.backend_options, runner.mode(request.backend_options, True))
    if spec is None or spec["language"] != "cuda" or "-march=" in request.source:
        return False

    def found() -> bool:
        # Imported here because the regular expressions of this module slow down the start of every command.
        from kernelrl_build.calls import find_inline_calls

        return any(call.complete for call in find_inline_calls(request.source))

    return await asyncio.to_thread(found)
