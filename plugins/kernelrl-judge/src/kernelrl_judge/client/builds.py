"""Builds of the extensions that a candidate's source contains as text, before a judge evaluates the candidate."""

from __future__ import annotations

import asyncio
import functools
import importlib
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from kernelrl_core.api.backends import BackendRunner
from kernelrl_core.api.components import registry
from kernelrl_core.api.config import cache_directory, visible_gpus
from kernelrl_core.api.evaluators import EvaluationRequest

if TYPE_CHECKING:
    from kernelrl_build.calls import InlineCall
    from kernelrl_build.service import BuildReply, BuildService
    from kernelrl_build.store import BuildStore

__all__ = ["Builds", "backend_runner"]

logger = logging.getLogger(__name__)


@functools.cache
def backend_runner(backend: str) -> tuple[str, BackendRunner]:
    """Target (`module:attribute`) and instance of the runner class of a backend."""
    target = str(registry().load("backends", backend).runner)
    module, _, attribute = target.partition(":")
    runner: BackendRunner = getattr(importlib.import_module(module), attribute)()
    return target, runner


def _toolchain(request: EvaluationRequest, arch: str, *, has_gpu: bool) -> Mapping[str, Any] | None:
    """Build settings for the extensions of a candidate, from `BackendRunner.toolchain`; None: it builds none."""
    _, runner = backend_runner(request.backend)
    options = request.backend_options
    spec: Mapping[str, Any] | None = runner.toolchain(options, runner.mode(options, has_gpu))
    if spec is not None and arch and spec["language"] == "cuda" and not spec["arch"]:
        return {**spec, "arch": [arch]}
    return spec


@functools.cache
def _arch(gpu: str) -> str:
    """Compute capability of a GPU; empty if it is not known."""
    return next((found.arch for found in visible_gpus() if found.id == gpu), "")


class Builds:
    """Compiles extensions for judges of this machine, or of another machine with an equal toolchain.

    For a judge on another machine, copy `store.files` of each key to its `directory`. The judge then finds the builds.

    Args:
        jobs: largest number of extensions that are compiled concurrently.
    """

    def __init__(self, jobs: int) -> None:
        self._jobs = asyncio.Semaphore(jobs)
        self.directory = cache_directory() / "builds"
        self._started_languages: set[str] = set()
        """Languages for which a build has started."""

    async def compile(self, request: EvaluationRequest, has_gpu: bool, arch: str = "") -> list[str]:
        """Build the extensions that can be read from the source. The judge builds others on request.

        Args:
            has_gpu: whether the machine of the judge has a GPU.
            arch: compute capability of that GPU; empty: that of the GPU of this machine.

        Returns:
            Keys of the builds in `store`.
        """
        spec = _toolchain(request, arch, has_gpu=has_gpu)
        if spec is None:
            return []
        # Imported here because the regular expressions of these modules slow down the start of every command.
        from kernelrl_build.calls import find_inline_calls
        from kernelrl_build.survey import precompiled_headers

        calls = find_inline_calls(request.source)
        language = spec["language"]
        if calls and language not in self._started_languages and not spec.get("device_only"):
            self._started_languages.add(language)
            if not await asyncio.to_thread(precompiled_headers, language):
                logger.warning("the first build precompiles PyTorch's headers, once: 1 to 3 minutes")

        async def build(call: InlineCall) -> str:
            async with self._jobs:
                return await self._service.prebuild(call, spec, request.settings)

        keys = await asyncio.gather(*(build(call) for call in calls if call.complete))
        return [key for key in keys if key]

    def serve(
        self,
        request: EvaluationRequest,
        requested: bytes,
        gpu: str,
        check_cancelled: Callable[[], None],
        *,
        disabled: bool,
    ) -> BuildReply:
        """The build that the candidate of a request wants while it is loaded or called. Blocks.

        Args:
            requested: the request that the candidate's `load_inline` sent.
            gpu: GPU of its judge, as `CUDA_VISIBLE_DEVICES` names it; empty: none.
            check_cancelled: see `BuildService.build`.
            disabled: build kernels that do nothing.

        Raises:
            What `BuildService.build` raises.
        """
        from kernelrl_build.service import BadBuildRequest

        spec = _toolchain(request, _arch(gpu), has_gpu=bool(gpu))
        if spec is None:
            raise BadBuildRequest(f"a build request, but backend {request.backend} builds no extensions")
        return self._service.build(
            requested,
            spec,
            request.settings,
            check_cancelled=check_cancelled,
            source=request.source,
            disabled=disabled,
        )

    @functools.cached_property
    def store(self) -> BuildStore:
        """Results of the builds of this machine."""
        from kernelrl_build.store import BuildStore

        return BuildStore(self.directory)

    @functools.cached_property
    def _service(self) -> BuildService:
        from kernelrl_build.service import BuildService

        return BuildService(self.directory)
