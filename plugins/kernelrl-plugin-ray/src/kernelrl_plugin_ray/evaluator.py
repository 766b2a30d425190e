"""The evaluator `ray`: judges are actors of a Ray cluster. The driver needs neither a GPU nor torch."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Mapping
from typing import Any

import attrs

from kernelrl_core.api.components import registry, require_same_versions
from kernelrl_core.api.errors import InfrastructureError, MissingPrerequisite
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
from kernelrl_plugin_ray.actors import ActorPool
from kernelrl_plugin_ray.config import RayConfig
from kernelrl_plugin_ray.connection import connect, handlers_kept
from kernelrl_plugin_ray.plan import Plan, make_plan

__all__ = ["RayEvaluator"]

_SHARED = (
    "python",
    "kernelrl",
    "kernelrl-build",
    "kernelrl-devices",
    "kernelrl-judge",
    "kernelrl-plugin-ray",
    "kernelrl-sandbox",
    "kernelrl-sources",
)
_QUARANTINES = 3
"""GPUs in quarantine to which one request may have been given."""


class RayEvaluator(Evaluator):
    """Evaluates candidates on a Ray cluster; see `Evaluator`."""

    rules = RULES

    def __init__(self, config: RayConfig) -> None:
        self._config = config
        self._cores = len(os.sched_getaffinity(0))
        self._ray: Any = None
        self._connected_here = False
        self._judges: ActorPool | None = None
        self._builders: ActorPool | None = None
        self._facts: Mapping[str, Any] = {}
        """Of the first judge; all others have the same GPU model and versions."""
        self._lock = asyncio.Lock()

    @property
    def capacity(self) -> int:  # type: ignore[override]
        """See `Evaluator.capacity`; follows the number of judges."""
        pools = [pool for pool in (self._judges, self._builders) if pool is not None]
        return max(1, sum(pool.capacity for pool in pools))

    async def start(self) -> None:
        """Connect, and wait for the first judge; see `Evaluator.start`."""
        async with self._lock:
            if self._judges is not None:
                return
            try:
                await self._start()
            except BaseException:
                await asyncio.shield(self._close())
                raise

    async def _start(self) -> None:
        with handlers_kept():
            self._ray, self._connected_here = await asyncio.to_thread(connect, self._config.address, self._cores)
        plan = await asyncio.to_thread(self._plan)
        self._judges = self._pool("judge", lambda plan: plan.judges, plan.depth, self._accept, self._make_judge(plan))
        if not await self._judges.start(self._config.start_timeout_s):
            raise MissingPrerequisite(
                f"no judge started on the Ray cluster within {self._config.start_timeout_s:g} s"
                + (f": {self._judges.why_not}" if self._judges.why_not else f"; each requests {_stated(plan)}"),
                fix="ray status on the head node shows the resources; on each node, pip install -r requirements.txt",
                see="ray",
            )
        if plan.builders:
            # One more than it works on, so that its core is never idle.
            self._builders = self._pool("builder", lambda plan: plan.builders, 2, lambda _: None, self._make_builder())
            await self._builders.start(0.0)

    def _pool(self, name: str, count: Any, depth: int, accept: Any, make: Any) -> ActorPool:
        errors = self._ray.exceptions
        return ActorPool(
            name,
            make=make,
            wanted=lambda: count(self._plan()),
            depth=depth,
            accept=accept,
            lost=(errors.RayActorError, errors.NodeDiedError, errors.WorkerCrashedError, errors.ObjectLostError),
            kill=self._ray.kill,
            cancel=self._ray.cancel,
        )

    def _plan(self) -> Plan:
        return make_plan(self._ray.nodes(), self._config)

    def _make_judge(self, plan: Plan) -> Any:
        from kernelrl_plugin_ray.worker import Judge

        # More calls than evaluations: those for facts and health must not wait for them.
        options = {**plan.options, "max_concurrency": plan.depth + 8}
        actor = self._ray.remote(Judge).options(**options)
        return lambda: actor.remote(self._environment(), plan.lanes)

    def _make_builder(self) -> Any:
        from kernelrl_plugin_ray.worker import Builder

        actor = self._ray.remote(Builder).options(num_cpus=1, max_concurrency=8)
        return lambda: actor.remote(self._environment())

    def _environment(self) -> dict[str, str]:
        found = {name: os.environ[name] for name in self._config.environment if name in os.environ}
        if self._config.shared_cache is not None:
            found["KERNELRL_CACHE_DIR"] = self._config.shared_cache
        return found

    def _accept(self, facts: Mapping[str, Any]) -> None:
        from kernelrl_plugin_ray.worker import versions

        where = f"worker {facts['node']}"
        fix = "install the same versions there: pip install -r requirements.txt in the same clone"
        here = {name: version for name, version in versions().items() if name not in ("torch", "triton")}
        require_same_versions(here, facts["versions"], where, distributions=_SHARED, fix=fix)
        if not self._facts:
            self._facts = facts
        if facts["gpu"] != self._facts["gpu"]:
            raise MissingPrerequisite(
                f"{where} has {facts['gpu'] or 'no GPU'}, worker {self._facts['node']} has {self._facts['gpu']}; "
                "their times are not comparable",
                fix="choose a GPU type with evaluator.resources",
                see="ray",
            )
        require_same_versions(
            self._facts["versions"], facts["versions"], where, distributions=("torch", "triton"), fix=fix
        )

    # --- contract ---------------------------------------------------------------------------------------------------

    async def expect(self, backend: str) -> None:
        """Compare the versions of a backend, and start a judge process for it; see `Evaluator.expect`."""
        if self._judges is None:
            return
        from kernelrl_plugin_ray.worker import versions

        plugin = registry().plugin_of("backends", backend).dist
        require_same_versions(
            versions(), self._facts["versions"], f"worker {self._facts['node']}",
            distributions=(plugin,), fix=f"install {plugin} on each node",
        )  # fmt: skip
        for handle in self._judges.handles:
            handle.expect.remote(backend)

    def why_untimed(self, backend: str, options: Mapping[str, Any]) -> str:
        """See `Evaluator.why_untimed`."""
        _, runner = backend_runner(backend)
        return UNTIMED.get(runner.mode(options, self._has_gpu), "")

    def gpu_model(self) -> str:
        """See `Evaluator.gpu_model`."""
        return str(self._facts.get("gpu", ""))

    def identity(self) -> str:
        """GPU model, and the versions of torch and Triton on the workers; see `Evaluator.identity`."""
        found = self._facts.get("versions", {})
        return f"{self.gpu_model()} torch {found.get('torch')} triton {found.get('triton')}"

    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        """Evaluate one candidate on the judge with the fewest requests; see `Evaluator.evaluate`."""
        judges = self._started()
        text = json.dumps(to_json(request))
        builds = await self._built(request, text)
        for _ in range(_QUARANTINES):
            (response, quarantine), facts = await judges.call(lambda judge: judge.evaluate.remote(text, builds))
            if quarantine:
                judges.rest(facts, quarantine, lambda judge: judge.quarantine.remote())
            try:
                evaluation = read_response(json.loads(response))
            except InfrastructureError:
                if not quarantine:
                    raise
                continue
            return attrs.evolve(evaluation, provenance={**evaluation.provenance, "node": facts["node"]})
        raise InfrastructureError(f"every GPU that had this request is in quarantine; the last: {quarantine}")

    async def audit(self, task: Task, settings: EvaluationSettings, timeout_s: float) -> TaskAudit:
        """See `Evaluator.audit`."""
        texts = json.dumps(to_json(task)), json.dumps(to_json(settings))
        found, _ = await self._started().call(lambda judge: judge.audit.remote(*texts, timeout_s))
        return from_json(TaskAudit, json.loads(found))

    async def aclose(self) -> None:
        """End all actors, and a local cluster; see `Evaluator.aclose`."""
        async with self._lock:
            await self._close()

    async def _close(self) -> None:
        for pool in (self._judges, self._builders):
            if pool is not None:
                await pool.aclose()
        self._judges = self._builders = None
        if self._connected_here:
            self._connected_here = False
            await asyncio.to_thread(self._ray.shutdown)

    async def _built(self, request: EvaluationRequest, text: str) -> list[Any]:
        """Extensions that a builder compiled for the judge; empty if the judge compiles them."""
        if self._builders is None or not self._builders.capacity:
            return []
        _, runner = backend_runner(request.backend)
        options = request.backend_options
        if runner.toolchain(options, runner.mode(options, self._has_gpu)) is None:
            return []
        arch = self._facts["arch"]
        built, _ = await self._builders.call(lambda builder: builder.build.remote(text, self._has_gpu, arch))
        return list(built)

    @property
    def _has_gpu(self) -> bool:
        return bool(self.gpu_model())

    def _started(self) -> ActorPool:
        if self._judges is None:
            raise InfrastructureError("the evaluator ray is not started, or closed")
        return self._judges


def _stated(plan: Plan) -> str:
    own = {name: value for name, value in plan.options.items() if value and name != "resources"}
    return ", ".join(f"{name} {value:g}" for name, value in {**own, **plan.options.get("resources", {})}.items())
