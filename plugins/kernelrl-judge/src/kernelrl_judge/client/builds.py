"""Extensions that a candidate's source shows, compiled before a judge has the candidate."""

from __future__ import annotations

import asyncio
import functools
import importlib
import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kernelrl_core.api.components import registry
from kernelrl_core.api.config import cache_directory
from kernelrl_core.api.evaluators import EvaluationRequest

if TYPE_CHECKING:
    from kernelrl_judge.build.service import BuildService
    from kernelrl_judge.build.store import BuildStore

__all__ = ["Builds", "runner_half"]

logger = logging.getLogger(__name__)


@functools.cache
def runner_half(backend: str) -> tuple[str, Any]:
    """Target (`module:attribute`) and instance of a backend's runner half."""
    target = str(registry().load("backends", backend).runner)
    module, _, attribute = target.partition(":")
    return target, getattr(importlib.import_module(module), attribute)()


class Builds:
    """Compiles for judges of this machine, or for a judge on another one with an equal toolchain.

    For the latter, copy `store.files` of each key to `directory` there; the judge then finds the builds.

    Args:
        jobs: extensions compiled concurrently.
    """

    def __init__(self, jobs: int) -> None:
        self._jobs = asyncio.Semaphore(jobs)
        self.directory = cache_directory() / "builds"
        self._languages: set[str] = set()
        """Of which the first build has begun."""

    async def compile(self, request: EvaluationRequest, has_gpu: bool, arch: str = "") -> list[str]:
        """Build the extensions that can be read from the source; the judge builds the others on request.

        Args:
            has_gpu: whether the machine of the judge has one.
            arch: compute capability of that GPU; empty: of the GPU of this machine.

        Returns:
            Their keys in `store`.
        """
        _, runner = runner_half(request.backend)
        options = request.backend_options
        spec: Mapping[str, Any] | None = runner.toolchain(options, runner.mode(options, has_gpu))
        if spec is None:
            return []
        if arch and spec["language"] == "cuda" and not spec["arch"]:
            spec = {**spec, "arch": [arch]}
        # Patterns of text that this module prepares take longer than most commands have.
        from kernelrl_judge.build.calls import find_inline_calls
        from kernelrl_judge.build.survey import precompiled_headers

        calls = find_inline_calls(request.source)
        language = spec["language"]
        if calls and language not in self._languages and not spec.get("device_only"):
            self._languages.add(language)
            if not await asyncio.to_thread(precompiled_headers, language):
                logger.warning("the first build precompiles PyTorch's headers, once: 1 to 3 minutes")

        async def build(call: Any) -> str:
            async with self._jobs:
                return await self._service.prebuild(call, spec, request.settings)

        return [key for key in await asyncio.gather(*(build(call) for call in calls if call.complete)) if key]

    @functools.cached_property
    def store(self) -> BuildStore:
        """Finished builds of this machine."""
        from kernelrl_judge.build.store import BuildStore

        return BuildStore(self.directory)

    @functools.cached_property
    def _service(self) -> BuildService:
        from kernelrl_judge.build.service import BuildService

        return BuildService(self.directory)
