"""The interface of the build service, for two users: the judge, when a candidate calls `load_inline`, and the
evaluator, which builds what can be read off the source before a device is needed. Both start the same job process."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs

from kernelrl_core.api.config import nvidia_gpus, visible_gpus
from kernelrl_core.api.evaluators import EvaluationSettings
from kernelrl_judge.build.calls import InlineCall, find_inline_calls
from kernelrl_judge.build.imports import library_imports
from kernelrl_judge.build.kernel_syntax import without_kernel_bodies
from kernelrl_judge.build.lexing import Unreadable
from kernelrl_judge.build.store import PATIENCE, BuildStore, kept_answer
from kernelrl_judge.protocol.frames import ProtocolError

__all__ = ["BuildCrashed", "BuildService", "BuildUnavailable", "call_request", "device_arch", "target_archs"]

_JOB = (sys.executable, "-P", "-m", "kernelrl_judge.build.job")
_PREPARATION_S = 600.0
"""How long the first build with a toolchain may take beyond its own limit."""
_POLL_S = 0.02
_FACTS = ("route", "reason", "cached", "seconds", "cpu_seconds", "stages")


class BuildUnavailable(Exception):
    """This machine lacks what a build needs; the arguments are what, and the fix."""


class BuildCrashed(Exception):
    """The build job failed, and fails for an empty source as well."""


class BuildService:
    """Builds of one machine.

    Args:
        directory: store of the builds, shared by all processes.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def answer(
        self,
        asked: bytes,
        spec: Mapping[str, Any],
        settings: EvaluationSettings,
        *,
        cancelled: Callable[[], bool],
        source: str = "",
        disabled: bool = False,
    ) -> tuple[bytes, list[int]]:
        """The answer to a runner about a build, and descriptors of what was built and of the binder.

        Args:
            asked: what `runner.builds` sends; from an untrusted process.
            spec: from `BackendRunner.toolchain`.
            source: the candidate's. What can be read off it is built before it runs, and kept. The rest is built
                whenever it is asked for: how long that takes would tell a candidate what others have asked.
            disabled: build kernels that do nothing.

        Raises:
            Unreadable: it is not certain that they would do nothing.
            ProtocolError: nothing that `runner.builds` would send.
            BuildUnavailable: this machine cannot build.
            BuildCrashed: a build ended without an answer.
            Cancelled: nobody waits any more.
        """
        request = _request(_read(asked), spec)
        calls = [call_request(call, spec) for call in find_inline_calls(source) if call.complete]
        # A source shows a build as it is, but for its name.
        shown = any({**call, "name": request["name"]} == request for call in calls)
        if disabled:
            if any("__global__" in flag for flag in request["device_flags"]):
                raise Unreadable("a macro of the flags makes kernels")
            request["device_sources"] = [without_kernel_bodies(text) for text in request["device_sources"]]
        order = self._order(request, settings)
        if not shown:
            order["scope"] = secrets.token_hex(16)
        result = (kept_answer(order) if shown else None) or self._run(order, cancelled)
        try:
            return self._told(result, spec)
        finally:
            if not shown and "key" in result:
                BuildStore(order["directory"]).drop(result["key"])

    @staticmethod
    def _told(result: Mapping[str, Any], spec: Mapping[str, Any]) -> tuple[bytes, list[int]]:
        if "missing" in result:
            raise BuildUnavailable(result["missing"], result["fix"])
        if "error" in result:
            facts = {"route": "failed", "seconds": result.get("seconds"), "cpu_seconds": result.get("cpu_seconds", 0.0)}
            facts["final"] = "until" not in result
            return json.dumps({"error": result["error"][-200_000:], "facts": facts}).encode(), []
        told = {name: result[name] for name in ("kind", "bindings", "module_name", "resources")}
        told["facts"] = {name: result[name] for name in _FACTS}
        told["library_symbols"] = library_imports(result["path"], spec["language"])
        # By descriptor and not by path: a runner does not see the files of its judge.
        paths = [path for path in (result["path"], result["binder"]) if path]
        return json.dumps(told).encode(), [os.open(path, os.O_RDONLY | os.O_CLOEXEC) for path in paths]

    async def prebuild(self, call: InlineCall, spec: Mapping[str, Any], settings: EvaluationSettings) -> str:
        """Have a build ready for the moment in which the candidate asks for it; returns its key in the store.

        Failures of this machine are found again then; their key is empty.
        """
        order = self._order(call_request(call, spec), settings)
        if (kept := await asyncio.to_thread(kept_answer, order)) is not None:
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
        kept = await asyncio.to_thread(kept_answer, order)
        return "" if kept is None else str(kept["key"])

    def _order(self, request: Mapping[str, Any], settings: EvaluationSettings) -> dict[str, Any]:
        limits = {"timeout_s": settings.build_timeout_s, "memory_mib": settings.build_memory_mib}
        return {"directory": str(self._directory), "request": request, **limits}

    @staticmethod
    def _run(order: Mapping[str, Any], cancelled: Callable[[], bool]) -> dict[str, Any]:
        try:
            return _job(order, cancelled)
        except _NoAnswer as crash:
            try:
                _job({**order, "control": True}, cancelled)
            except _NoAnswer as other:
                raise BuildCrashed(f"the build service {crash}; for an empty source it {other}") from None
            # The candidate learns nothing of the machine.
            return {"error": "The build ended without a result.", "until": 0.0}


class _NoAnswer(Exception):
    """A job ended without an answer; the text is how."""


def _job(order: Mapping[str, Any], cancelled: Callable[[], bool]) -> dict[str, Any]:
    from kernelrl_judge.peer.process import Cancelled

    latest = time.monotonic() + PATIENCE * order["timeout_s"] + _PREPARATION_S
    with contextlib.ExitStack() as stack:
        # Of a pipe, `communicate` would write no more after its first time limit.
        given = stack.enter_context(tempfile.TemporaryFile())
        given.write(json.dumps(order).encode())
        given.seek(0)
        process = stack.enter_context(
            subprocess.Popen(_JOB, stdin=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        )
        try:
            while process.returncode is None:
                try:
                    output, trouble = process.communicate(timeout=_POLL_S)
                except subprocess.TimeoutExpired:
                    if cancelled():
                        raise Cancelled from None
                    if time.monotonic() > latest:
                        raise _NoAnswer("does not end") from None
        finally:
            process.kill()
    try:
        result: dict[str, Any] = json.loads(output)
    except ValueError:
        last = trouble.decode("utf-8", "replace").strip().splitlines()[-1:] or ["without a word"]
        raise _NoAnswer(f"failed: {last[0]}") from None
    if "trouble" in result:
        raise BuildCrashed(result["trouble"])
    return result


def call_request(call: InlineCall, spec: Mapping[str, Any]) -> dict[str, Any]:
    """The build that a call in a source asks for."""
    asked = {
        **attrs.asdict(call, recurse=False),
        "cpp_sources": [piece.text for piece in call.cpp_sources],
        "device_sources": [piece.text for piece in call.cuda_sources],
        "functions": call.functions or (),
    }
    return _request(asked, spec)


@functools.cache
def device_arch() -> str:
    """Architecture of the first GPU that this process may use, or else has, such as `9.0`; empty without a GPU."""
    return next((gpu.arch for gpu in (*visible_gpus(), *nvidia_gpus()) if gpu.arch), "")


def target_archs(spec: Mapping[str, Any]) -> list[str]:
    """Architectures that a toolchain's specification stands for on this machine."""
    archs = [str(name) for name in spec.get("arch", ())]
    return archs or ([device_arch() or "9.0"] if spec["language"] == "cuda" else [])


_LISTS = ("cpp_sources", "device_sources", "cflags", "device_flags", "ldflags", "include_paths")


def _read(asked: bytes) -> dict[str, Any]:
    def is_texts(value: object) -> bool:
        return isinstance(value, list) and all(isinstance(item, str) for item in value)

    try:
        data = json.loads(asked)
        lists = [[data["name"]], *(data[name] for name in _LISTS), *data["functions"]]
        sound = all(map(is_texts, lists)) and all(len(pair) == 2 for pair in data["functions"])
    except (ValueError, TypeError, KeyError, RecursionError):
        sound = False
    if not sound:
        raise ProtocolError("a malformed order for a build")
    return dict(data)


def _request(asked: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
    request = {name: [str(text) for text in asked[name]] for name in _LISTS}
    device = spec["language"] != "cpp"
    if not device:
        # An empty text stands for no device code where there is none to compile.
        request["device_sources"] = [text for text in request["device_sources"] if text.strip()]
    request["device_flags" if device else "cflags"] += [str(flag) for flag in spec.get("flags", ())]
    return {
        **request,
        "language": spec["language"],
        "name": str(asked["name"]),
        "functions": [[str(name), str(text)] for name, text in asked["functions"]],
        "arch": target_archs(spec),
        "device_only": bool(spec.get("device_only")),
    }
