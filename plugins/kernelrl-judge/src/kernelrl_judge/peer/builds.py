"""Extensions that a candidate requests while it is loaded or called."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from typing import Any

import attrs

from kernelrl_build.service import BadBuildRequest, BuildReply, BuildUnavailable
from kernelrl_core.api.errors import MissingPrerequisite
from kernelrl_core.api.evaluators import CompiledKernel, EvaluationRequest, ExtensionBuild
from kernelrl_judge.limits import LIMITS
from kernelrl_judge.peer.main_process import MainProcess
from kernelrl_judge.protocol.frames import ProtocolError

__all__ = ["CandidateBuilds"]


@attrs.define(eq=False)
class CandidateBuilds:
    """Builds for one candidate."""

    _main_process: MainProcess
    _request: EvaluationRequest
    _toolchain: Mapping[str, Any] | None
    """From `BackendRunner.toolchain`; None where the backend builds no extensions."""
    _kernels_off: bool
    """Build kernels that do nothing."""
    seconds: float = 0.0
    """Time that builds took."""
    requests: list[bytes] = attrs.field(factory=list)
    """Bodies of the requests that the main process received."""
    _replies: list[BuildReply] = attrs.field(factory=list)
    _n_requested: int = 0

    @property
    def builds(self) -> tuple[ExtensionBuild, ...]:
        """Route and cost of each build."""
        return tuple(reply.build for reply in self._replies)

    @property
    def kernels(self) -> tuple[CompiledKernel, ...]:
        """Device kernels of all builds, with their resources."""
        return tuple(kernel for reply in self._replies for kernel in reply.kernels)

    @property
    def library_symbols(self) -> tuple[str, ...]:
        """Symbols of libraries that the extensions are linked to."""
        return tuple(symbol for reply in self._replies for symbol in reply.library_symbols)

    @property
    def language(self) -> str:
        """Language of the device code: `cuda`, `hip` or `cpp`; empty where the backend builds no extensions."""
        return str(self._toolchain["language"]) if self._toolchain is not None else ""

    def build(self, requested: bytes) -> tuple[bytes, list[int]]:
        """Body of the reply to a `BUILD` frame, and descriptors of the built files, which the caller closes.

        Raises:
            ProtocolError: the request is malformed, or the backend builds no extensions.
            MissingPrerequisite: this machine cannot build.
            kernelrl_build.lexing.Unreadable: kernels are off, and it is not certain that they would do nothing.
            kernelrl_build.service.BuildCrashed: a build ended without a reply.
        """
        self._n_requested += 1
        if self._n_requested > LIMITS.builds:
            return _refused(f"denied: a candidate may build {LIMITS.builds} different extensions"), []
        started = time.monotonic()
        reply = self._reply(requested)
        self.requests.append(requested)
        self._replies.append(reply)
        self.seconds += time.monotonic() - started
        return reply.body, reply.descriptors

    def _reply(self, requested: bytes) -> BuildReply:
        limit_s = self._request.settings.build_timeout_s
        if self.seconds > limit_s:
            body = _refused(f"denied: the extensions of a candidate took longer than {limit_s:g} s to build together")
            return BuildReply(body, [], ExtensionBuild("denied"))
        if self._toolchain is None:
            raise ProtocolError(f"a build request, but backend {self._request.backend} builds no extensions")
        try:
            return self._main_process.build(requested, disabled=self._kernels_off)
        except BadBuildRequest as error:
            raise ProtocolError(str(error)) from None
        except BuildUnavailable as error:
            missing, fix = error.args
            raise MissingPrerequisite(missing, fix=fix) from None


def _refused(reason: str) -> bytes:
    return json.dumps({"error": reason}).encode()
