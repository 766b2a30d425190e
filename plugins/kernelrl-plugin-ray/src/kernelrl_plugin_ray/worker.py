"""Actors of the cluster: judges, one per GPU or core, and builders. They get and return plain JSON."""

from __future__ import annotations

import json
import logging
import os
import socket
from collections.abc import Mapping, Sequence
from typing import Any

from kernelrl_build.service import device_arch
from kernelrl_core.api.components import registry, worker_versions
from kernelrl_core.api.config import pack_files, unpack_files
from kernelrl_core.api.evaluators import (
    EvaluationRequest,
    EvaluationSettings,
    Task,
    from_json,
    serve_request,
    to_json,
)
from kernelrl_judge.client.builds import Builds
from kernelrl_judge.client.pool import JudgePool

__all__ = ["Builder", "Judge", "versions"]

logger = logging.getLogger(__name__)

_DISTRIBUTIONS = (
    "kernelrl-build",
    "kernelrl-devices",
    "kernelrl-judge",
    "kernelrl-plugin-ray",
    "kernelrl-sandbox",
    "kernelrl-sources",
    "torch",
    "triton",
)


def versions() -> dict[str, str]:
    """Versions that driver and workers share, and those of torch and Triton, which workers share with each other."""
    return worker_versions(registry(), *_DISTRIBUTIONS)


class Judge:
    """The judges of one GPU, or one judge on the CPU.

    Args:
        environment: variables of the driver.
        lanes: candidates evaluated concurrently.
    """

    def __init__(self, environment: Mapping[str, str], lanes: int) -> None:
        os.environ.update(environment)
        self._pool = JudgePool(workers=lanes, gpu_workers=lanes, build_workers=lanes)

    async def facts(self) -> dict[str, Any]:
        """Node, versions, GPU model and architecture."""
        return {
            "node": socket.gethostname(),
            "pid": os.getpid(),
            "versions": versions(),
            "gpu": self._pool.gpu_model(),
            "arch": device_arch() if self._pool.gpu_model() else "",
        }

    async def expect(self, backend: str) -> None:
        """Start a judge; see `Evaluator.expect`."""
        await self._pool.expect(backend)

    async def evaluate(self, request: str, builds: Sequence[tuple[str, Any]]) -> tuple[str, str]:
        """The response to a request as JSON, and the reason of the GPU's quarantine, empty without one.

        Args:
            builds: key of each build of a builder, and a Ray object with its files.
        """
        for key, files in builds:
            await self._keep(key, files)
        response = await serve_request(self._pool.evaluate, json.loads(request))
        return json.dumps(response), self._pool.on_gpu.quarantine

    async def audit(self, task: str, settings: str, timeout_s: float) -> str:
        """The audit of a task as JSON; see `Evaluator.audit`."""
        checked = from_json(EvaluationSettings, json.loads(settings))
        return json.dumps(to_json(await self._pool.audit(from_json(Task, json.loads(task)), checked, timeout_s)))

    async def quarantine(self) -> str:
        """Reason of the GPU's quarantine; empty without one."""
        return self._pool.on_gpu.quarantine

    async def aclose(self) -> None:
        """End all processes."""
        await self._pool.aclose()

    async def _keep(self, key: str, files: Any) -> None:
        builds = self._pool.builds
        if builds.store.read(key) is None:
            try:
                unpack_files(builds.directory, json.loads(await files))
            except Exception as error:
                # Its builder may be gone; the judge compiles it then.
                logger.warning("build %s was not received: %s", key[:12], error)


class Builder:
    """Compiles extensions on a core. Arguments as for `Judge`."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        os.environ.update(environment)
        self._builds = Builds(1)

    async def build(self, request: str, has_gpu: bool, arch: str) -> list[tuple[str, Any]]:
        """Key of each extension that the source of a request shows, and a Ray object with its files as JSON."""
        import ray

        keys = await self._builds.compile(from_json(EvaluationRequest, json.loads(request)), has_gpu, arch)
        packed = {key: pack_files(self._builds.directory, self._builds.store.files(key)) for key in keys}
        return [(key, ray.put(json.dumps(files))) for key, files in packed.items()]
