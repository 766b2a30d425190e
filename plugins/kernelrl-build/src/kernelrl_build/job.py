"""One build, as a process of its own: `python -m kernelrl_build.job`, an order on standard input (JSON), the result on
standard output (JSON).

The process looks in the store, waits for an equal build that another process has started, prepares the toolchain if no
build did before, runs the compilers confined, and stores the result. It imports no torch. The result has one of these
groups of keys:

    path, kind, bindings, …    the extension
    error                      a mistake in the sources: the compiler's diagnosis
    missing, fix               a part that this machine lacks
    trouble                    a failure of this machine

A build that waited too long, or filled the disk, may be the mistake of the sources or of the machine. A control
decides: an empty source, compiled under the same limits. It is trouble if the control fails as well. An error that a
limit decided has `until`, the time until which it is stored.
"""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import attrs

from kernelrl_build.compilers import Compilers, OutOfTime, reached_limit
from kernelrl_build.compiling import CompileError, compile_extension
from kernelrl_build.inline_request import InlineRequest
from kernelrl_build.limits import MAX_EXTENSION_MIB
from kernelrl_build.prepare import Prepared, prepare
from kernelrl_build.store import PATIENCE, BuildStore, kept_result, keys, scratch
from kernelrl_build.toolchain import Toolchain, ToolchainMissing, find_toolchain
from kernelrl_sandbox import privileges

__all__ = ["main"]

_LOG_TAIL_CHARACTERS = 4000
_LIMITED_S = 600.0
"""Time for which a build that reached a limit is not repeated. Later it may succeed, if the machine has less load."""
_LITTLE_SPACE = 1 << 28
"""Free bytes of a disk below which it counts as full."""


def main() -> None:
    """Serve the order on standard input."""
    privileges.die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    order = json.load(sys.stdin)
    try:
        result = _result(order)
    except ToolchainMissing as error:
        result = {"missing": error.args[0], "fix": error.args[1]}
    except OSError as error:
        if error.errno == errno.ENOSPC:
            result = {"trouble": _no_space(order)}
        elif why := _unwritable(Path(order["directory"])):
            missing = f"the cache directory {order['directory']} cannot be written: {why}"
            result = {"missing": missing, "fix": "set KERNELRL_CACHE_DIR to a directory that can be written"}
        else:
            raise
    json.dump(result, sys.stdout)


@attrs.frozen
class _Doubtful(Exception):
    """A build reached a limit, and the machine may be the reason."""

    limit: str
    """Message if the machine is in order."""
    trouble: str
    """Message if it is not."""
    log: str = ""


def _result(order: dict[str, Any]) -> dict[str, Any]:
    if order.get("control"):
        return {"trouble": trouble} if (trouble := _control(order)) else {}
    directory = Path(order["directory"])
    request = InlineRequest.from_json(order["request"])
    toolchain = find_toolchain(request.language, directory)
    toolchain.require_arch(request.arch)
    key, limited = keys(order, request, toolchain)
    store = BuildStore(directory)
    prepared = prepare(toolchain, directory / "toolchains")
    prepared.prove(request.arch)
    with store.lock(key):
        if (found := kept_result(order)) is not None:
            return found
        try:
            with scratch(directory / "scratch") as place:
                result, file = _build(request, prepared, place, order)
                return {**store.write(limited if "limit" in result else key, result, file), "cached": False}
        except _Doubtful as doubtful:
            doubt = doubtful
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            doubt = _disk_full(order)
        found = _decided(doubt, order)
        return found if "trouble" in found else {**store.write(limited, found, None), "cached": False}


def _decided(doubt: _Doubtful, order: dict[str, Any]) -> dict[str, Any]:
    """The mistake of the sources, or trouble."""
    return {"trouble": doubt.trouble} if _control(order) else _limited(doubt.limit, doubt.log)


def _control(order: dict[str, Any]) -> str:
    """Compile an empty source under the limits of the order; returns the failure, or an empty text."""
    directory = Path(order["directory"])
    toolchain = find_toolchain(order["request"]["language"], directory)
    with scratch(directory / "scratch") as place:
        if shutil.disk_usage(place).free < _LITTLE_SPACE:
            return _no_space(order)
        (place / "control.cpp").touch()
        try:
            command = [toolchain.cxx, "-c", "control.cpp", "-o", "control.o"]
            status, log, _ = _compilers(toolchain, [], place, order).run(command, place)
        except OutOfTime:
            return _too_late(order)
    return f"{toolchain.cxx} cannot compile an empty source: {log.strip()[-300:]}" if status else ""


def _limited(limit: str, log: str) -> dict[str, Any]:
    return {"error": f"{limit}\n{log}".strip(), "limit": limit, "until": time.time() + _LIMITED_S}


def _compilers(toolchain: Toolchain, readable: list[str], place: Path, order: dict[str, Any]) -> Compilers:
    started = time.monotonic()
    return Compilers(
        readable=[*toolchain.directories(), *readable],
        writable=str(place),
        memory_mib=order["memory_mib"],
        deadline=started + order["timeout_s"],
        latest=started + PATIENCE * order["timeout_s"],
        path=toolchain.path(),
        knows_itself=toolchain.language == "hip",
    )


def _build(
    request: InlineRequest, prepared: Prepared, place: Path, order: dict[str, Any]
) -> tuple[dict[str, Any], Path | None]:
    """The result, and its file."""
    started = time.monotonic()
    compilers = _compilers(prepared.toolchain, [str(prepared.directory)], place, order)
    prepared.on_wait = compilers.extend
    try:
        built = compile_extension(request, prepared, place, run=compilers.run)
    except CompileError as error:
        text = str(error)
        if "No space left on device" in text and shutil.disk_usage(place).free < _LITTLE_SPACE:
            raise _disk_full(order, text) from None
        limit = reached_limit(text, order["memory_mib"])
        found = _limited(limit, text) if limit else {"error": text}
        return {**found, "seconds": time.monotonic() - started}, None
    except OSError as error:
        if error.errno != errno.E2BIG:
            raise
        return {"error": "denied: the flags are longer than a command may be"}, None
    except OutOfTime as late:
        limit = f"Compiling took longer than {order['timeout_s']:g} s and was ended."
        log = str(late).replace(f"{place}/", "").strip()[-_LOG_TAIL_CHARACTERS:]
        output = f"The compiler had said:\n{log}" if log else "The compiler had said nothing."
        if late.waited:
            raise _Doubtful(limit, _too_late(order), output) from None
        return _limited(limit, output), None
    size_mib = Path(built.path).stat().st_size / (1 << 20)
    if size_mib > MAX_EXTENSION_MIB:
        size = f"The extension has {size_mib:.0f} MiB, and may have {MAX_EXTENSION_MIB}"
        return {"error": f"{size}: allocate memory when the code runs.", "seconds": time.monotonic() - started}, None
    result = attrs.asdict(built)
    del result["path"]
    own = resource.getrusage(resource.RUSAGE_SELF)
    result["stages"]["service"] = round(own.ru_utime + own.ru_stime, 3)
    result["cpu_seconds"] = round(result["cpu_seconds"] + result["stages"]["service"], 3)
    binder = os.path.relpath(prepared.binder(), order["directory"]) if built.kind == "bound" else ""
    return {**result, "binder": binder}, Path(built.path)


def _unwritable(directory: Path) -> str:
    """The reason why a directory does not take files; empty if it does."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            return ""
    except OSError as error:
        return error.strerror or str(error)


def _no_space(order: dict[str, Any]) -> str:
    return f"no space is left in {order['directory']}; free some, or set KERNELRL_CACHE_DIR to a place that has it"


def _too_late(order: dict[str, Any]) -> str:
    waited_s = PATIENCE * order["timeout_s"]
    return f"the compilers did not end within {waited_s:g} s, not even for an empty source; look at the machine's load"


def _disk_full(order: dict[str, Any], log: str = "") -> _Doubtful:
    return _Doubtful("The files of the build filled the disk.", _no_space(order), log)


if __name__ == "__main__":
    main()
