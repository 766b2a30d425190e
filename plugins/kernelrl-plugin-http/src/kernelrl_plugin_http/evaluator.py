"""The evaluator `http`: one request per candidate to a server of `kernelrl serve`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from kernelrl_core.api.components import registry, require_same_versions, worker_versions
from kernelrl_core.api.errors import MissingPrerequisite, UsageError
from kernelrl_core.api.evaluators import Evaluation, EvaluationRequest, Evaluator, read_response, to_json
from kernelrl_plugin_http.config import HttpConfig
from kernelrl_plugin_http.connection import Connection
from kernelrl_plugin_http.servers import Servers

__all__ = ["HttpEvaluator"]

_FINISHED = ("done", "failed")


class HttpEvaluator(Evaluator):
    """Evaluates candidates elsewhere; see `Evaluator`."""

    def __init__(self, config: HttpConfig) -> None:
        self._servers = Servers(config.servers, config.token, config.timeout_s, config.patience_s)
        # A server tries a failed evaluation again itself; a further try is for another server.
        self.attempts = max(1, len(config.servers))
        # Half of the limit: the server has the other half to respond that the evaluation is not finished.
        self._wait_s = config.timeout_s / 2

    @property
    def capacity(self) -> int:  # type: ignore[override]
        """The capacity of all reachable servers; changes with theirs."""
        return self._servers.capacity

    async def start(self) -> None:
        """Reach the servers and compare their versions; see `Evaluator.start`."""
        await self._servers.start()

    async def expect(self, backend: str) -> None:
        """Compare the versions of a backend; see `Evaluator.expect`."""
        facts = self._servers.facts
        if not facts:  # not started
            return
        plugin = registry().plugin_of("backends", backend).dist
        if backend not in facts["backends"]:
            raise MissingPrerequisite(f"the server lacks backend {backend}", fix=f"pip install {plugin} there")
        require_same_versions(
            worker_versions(registry()),
            facts["versions"],
            "the server",
            distributions=(plugin,),
            fix=f"install the same version of {plugin} on the server",
        )

    async def require_confinement(self) -> None:
        """Check that the servers accept tasks of others, which they confine; see `Evaluator.require_confinement`."""
        if refusing := self._servers.without_inline_tasks:
            raise UsageError(
                f"server {refusing[0]} accepts no sources of tasks from this client",
                fix="kernelrl serve --inline-tasks, or a token with that permission",
                see="service",
            )

    def gpu_model(self) -> str:
        """See `Evaluator.gpu_model`; all servers have the same."""
        return str(self._servers.facts.get("gpu_model", ""))

    def identity(self) -> str:
        """Identity of the servers' evaluators, and their versions of torch and Triton; see `Evaluator.identity`."""
        found = self._servers.facts
        versions = found.get("versions", {})
        return f"{found.get('identity', '')} torch {versions.get('torch')} triton {versions.get('triton')}"

    def why_untimed(self, backend: str, options: Mapping[str, Any]) -> str:
        """See `Evaluator.why_untimed`; as the server knows it for the default options of the backend."""
        known = self._servers.facts.get("backends", {})
        return str(known.get(backend, {}).get("untimed", ""))

    async def evaluate(self, request: EvaluationRequest) -> Evaluation:
        """See `Evaluator.evaluate`. `provenance["server"]` is the address of the server.

        Each request waits at the server. If it is cancelled, its connection is closed, and the server cancels the
        evaluation. Equal requests are one evaluation there, so a request may be sent again at any time.
        """
        body = to_json(request)

        async def finished(server: Connection) -> Evaluation:
            response: dict[str, Any] = {}
            while response.get("status") not in _FINISHED:
                response = await server.post(f"/v1/evaluations?wait={self._wait_s:g}", body)
            found = read_response(response)
            return attrs.evolve(found, provenance={**found.provenance, "server": server.url})

        return await self._servers.run(finished)

    async def aclose(self) -> None:
        """Close all connections; see `Evaluator.aclose`."""
        await self._servers.aclose()
