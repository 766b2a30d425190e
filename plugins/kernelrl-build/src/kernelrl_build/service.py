"""The build service: from the request for an extension to its files.

It has three users: the judge, when a candidate calls `load_inline`; the evaluator, which builds the extensions that a
source shows before a device is needed; and `load_inline` of this package. Each build is a process of its own
(`kernelrl_build.job`).
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import functools
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs

from kernelrl_build.calls import InlineCall, find_inline_calls
from kernelrl_build.errors import BadBuildRequest, BuildCrashed, BuildUnavailable
from kernelrl_build.imports import library_imports
from kernelrl_build.kernel_syntax import without_kernel_bodies
from kernelrl_build.lexing import Unreadable
from kernelrl_build.store import PATIENCE, BuildStore, kept_result
from kernelrl_core.api.config import nvidia_gpus, visible_gpus
from kernelrl_core.api.evaluators import CompiledKernel, EvaluationSettings, ExtensionBuild

__all__ = [
    "BadBuildRequest",
    "BuildCrashed",
    "BuildReply",
    "BuildService",
    "BuildUnavailable",
    "call_request",
    "device_arch",
    "target_archs",
]

_JOB = (sys.executable, "-P", "-m", "kernelrl_build.job")
_PREPARATION_S = 600.0
"""Time that the first build with a toolchain may take beyond its own limit."""
_POLL_S = 0.02
_MAX_ERROR_CHARACTERS = 200_000
_COPY_BYTES = 1 << 20
_ALL_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE


@attrs.frozen
class BuildReply:
    """Reply to a request for a build."""

    body: bytes
    """JSON for the process that sent the request: `error`, or `kind`, `bindings` and `module_name` for
    `loading.load_extension`. It contains no path and nothing about this machine."""
    descriptors: list[int]
    """Descriptors of copies of the extension and, for the kind `bound`, of the binder, in memory and sealed. The caller
    closes them. A process of the same user can open the file behind a descriptor again and write to it, so untrusted
    processes never get descriptors of the store's own files."""
    build: ExtensionBuild
    """Route and cost of the build."""
    kernels: tuple[CompiledKernel, ...] = ()
    """Kernels of the extension, with their resources."""
    library_symbols: tuple[str, ...] = ()
    """Symbols of libraries that the extension is linked to."""
    paths: tuple[str, ...] = ()
    """Files of the store that were copied."""


class BuildService:
    """Builds of one machine.

    Args:
        directory: store of the builds, shared by all processes.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def build(
        self,
        requested: bytes,
        spec: Mapping[str, Any],
        settings: EvaluationSettings,
        *,
        check_cancelled: Callable[[], None],
        source: str | None = None,
        disabled: bool = False,
    ) -> BuildReply:
        """Build an extension, or find it in the store.

        Args:
            requested: JSON of `inline.request`; may come from an untrusted process.
            spec: of the toolchain, from `BackendRunner.toolchain`.
            settings: limits of the build.
            check_cancelled: called while the build runs; raises what the caller wants raised if nobody waits for the
                result any more.
            source: of the candidate that sent the request; None for a trusted caller, whose builds are all stored. A
                build that a candidate's source shows happens before the candidate is executed, and is stored. Every
                other one is built again on each request: its duration could reveal the requests of other candidates.
            disabled: build kernels that do nothing.

        Raises:
            Unreadable: `disabled`, and it is not certain that the kernels would do nothing.
            BadBuildRequest: the request is malformed.
            BuildUnavailable: this machine cannot build.
            BuildCrashed: the build ended without a result.
        """
        request = _request(_read(requested), spec)
        is_stored = source is None or _shows(source, request, spec)
        if disabled:
            _disable_kernels(request)
        order = self._order(request, settings)
        if not is_stored:
            order["scope"] = secrets.token_hex(16)
        found = kept_result(order) if is_stored else None
        result = found or self._run(order, check_cancelled)
        try:
            return _reply(result, spec["language"])
        finally:
            if not is_stored and "key" in result:
                BuildStore(order["directory"]).drop(result["key"])

    async def prebuild(self, call: InlineCall, spec: Mapping[str, Any], settings: EvaluationSettings) -> str:
        """Store the build of a call for the moment when the candidate requests it; returns its key in the store.

        The key is empty if this machine failed; the request of the candidate finds the reason again.
        """
        order = self._order(call_request(call, spec), settings)
        kept = await asyncio.to_thread(kept_result, order)
        if kept is not None:
            return str(kept["key"])
        process = await asyncio.create_subprocess_exec(
            *_JOB, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.DEVNULL
        )
        try:
            await process.communicate(json.dumps(order).encode())
        except BaseException:
            if process.returncode is None:
                process.kill()
            raise
        kept = await asyncio.to_thread(kept_result, order)
        return "" if kept is None else str(kept["key"])

    def _order(self, request: Mapping[str, Any], settings: EvaluationSettings) -> dict[str, Any]:
        return {
            "directory": str(self._directory),
            "request": request,
            "timeout_s": settings.build_timeout_s,
            "memory_mib": settings.build_memory_mib,
        }

    @staticmethod
    def _run(order: Mapping[str, Any], check_cancelled: Callable[[], None]) -> dict[str, Any]:
        try:
            return _job_result(order, check_cancelled)
        except _NoResult as crash:
            try:
                _job_result({**order, "control": True}, check_cancelled)
            except _NoResult as control:
                raise BuildCrashed(f"the build service {crash}; for an empty source it {control}") from None
            # The text says nothing about the machine, because a candidate reads it.
            return {"error": "The build ended without a result.", "until": 0.0}


def _shows(source: str, request: Mapping[str, Any], spec: Mapping[str, Any]) -> bool:
    """Whether a source contains the call of a request, with all its arguments except the name."""
    calls = [call_request(call, spec) for call in find_inline_calls(source) if call.complete]
    return any({**call, "name": request["name"]} == request for call in calls)


def _disable_kernels(request: dict[str, Any]) -> None:
    if any("__global__" in flag for flag in request["device_flags"]):
        raise Unreadable("a macro of the flags makes kernels")
    request["device_sources"] = [without_kernel_bodies(text) for text in request["device_sources"]]


def _reply(result: Mapping[str, Any], language: str) -> BuildReply:
    if "missing" in result:
        raise BuildUnavailable(result["missing"], result["fix"])
    if "error" in result:
        failed = ExtensionBuild(
            "failed",
            seconds=result.get("seconds"),
            cpu_seconds=result.get("cpu_seconds", 0.0),
            final="until" not in result,
        )
        error = result["error"][-_MAX_ERROR_CHARACTERS:]
        return BuildReply(json.dumps({"error": error}).encode(), [], failed)
    body = {name: result[name] for name in ("kind", "bindings", "module_name")}
    build = ExtensionBuild(
        result["route"],
        reason=result["reason"],
        cached=result["cached"],
        seconds=result["seconds"],
        cpu_seconds=result["cpu_seconds"],
        stages=result["stages"],
    )
    kernels = tuple(CompiledKernel(**kernel) for kernel in result["resources"])
    symbols = tuple(library_imports(result["path"], language))
    paths = tuple(path for path in (result["path"], result["binder"]) if path)
    descriptors = [_sealed_copy(path) for path in paths]
    return BuildReply(json.dumps(body).encode(), descriptors, build, kernels, symbols, paths)


def _sealed_copy(path: str) -> int:
    """Descriptor of a copy of a file that nobody can change."""
    copy = os.memfd_create("extension", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with open(path, "rb") as file, open(copy, "wb", closefd=False) as target:
        shutil.copyfileobj(file, target, _COPY_BYTES)
    fcntl.fcntl(copy, fcntl.F_ADD_SEALS, _ALL_SEALS)
    os.lseek(copy, 0, os.SEEK_SET)
    return copy


class _NoResult(Exception):
    """A build process ended without a result. The text is the predicate of a sentence about it."""


def _job_result(order: Mapping[str, Any], check_cancelled: Callable[[], None]) -> dict[str, Any]:
    latest = time.monotonic() + PATIENCE * order["timeout_s"] + _PREPARATION_S
    with contextlib.ExitStack() as stack:
        # A file and no pipe: `communicate` writes to a pipe no more after its first timeout.
        order_file = stack.enter_context(tempfile.TemporaryFile())
        order_file.write(json.dumps(order).encode())
        order_file.seek(0)
        process = stack.enter_context(
            subprocess.Popen(_JOB, stdin=order_file, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        )
        try:
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    output, errors = process.communicate(timeout=_POLL_S)
                    break
                check_cancelled()
                if time.monotonic() > latest:
                    raise _NoResult("does not end")
        finally:
            process.kill()
    try:
        result: dict[str, Any] = json.loads(output)
    except ValueError:
        last_line = errors.decode("utf-8", "replace").strip().splitlines()[-1:] or ["without a word"]
        raise _NoResult(f"failed: {last_line[0]}") from None
    if "trouble" in result:
        raise BuildCrashed(result["trouble"])
    return result


def call_request(call: InlineCall, spec: Mapping[str, Any]) -> dict[str, Any]:
    """The request of a call in a source, with the facts that the toolchain adds."""
    requested = {
        **attrs.asdict(call, recurse=False),
        "cpp_sources": [piece.text for piece in call.cpp_sources],
        "device_sources": [piece.text for piece in call.cuda_sources],
        "functions": call.functions or (),
    }
    return _request(requested, spec)


@functools.cache
def device_arch() -> str:
    """Architecture of the first GPU that this process may use, or of the first one of the machine, such as `9.0`; empty
    without a GPU."""
    return next((gpu.arch for gpu in (*visible_gpus(), *nvidia_gpus()) if gpu.arch), "")


def target_archs(spec: Mapping[str, Any]) -> list[str]:
    """Architectures that a toolchain's specification selects on this machine."""
    archs = [str(name) for name in spec.get("arch", ())]
    return archs or ([device_arch() or "9.0"] if spec["language"] == "cuda" else [])


_LISTS = ("cpp_sources", "device_sources", "cflags", "device_flags", "ldflags", "include_paths")


def _read(requested: bytes) -> dict[str, Any]:
    def is_texts(value: object) -> bool:
        return isinstance(value, list) and all(isinstance(item, str) for item in value)

    try:
        data = json.loads(requested)
        lists = [[data["name"]], *(data[name] for name in _LISTS), *data["functions"]]
        is_valid = all(map(is_texts, lists)) and all(len(pair) == 2 for pair in data["functions"])
    except (ValueError, TypeError, KeyError, RecursionError):
        is_valid = False
    if not is_valid:
        raise BadBuildRequest("a malformed build request")
    return dict(data)


def _request(requested: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of an `InlineRequest` as data."""
    request: dict[str, Any] = {name: [str(text) for text in requested[name]] for name in _LISTS}
    has_device = spec["language"] != "cpp"
    if not has_device:
        # Without a device compiler, an empty device source is no device source.
        request["device_sources"] = [text for text in request["device_sources"] if text.strip()]
    request["device_flags" if has_device else "cflags"] += [str(flag) for flag in spec.get("flags", ())]
    return {
        **request,
        "language": spec["language"],
        "name": str(requested["name"]),
        "functions": [[str(name), str(documentation)] for name, documentation in requested["functions"]],
        "arch": target_archs(spec),
        "device_only": bool(spec.get("device_only")),
    }
