"""One build, as a process of its own: `python -m kernelrl_judge.build.job`, an order on standard input (JSON), the
result on standard output (JSON).

The process looks into the store, waits for an equal build under way, prepares the toolchain when that was never done,
runs the compilers confined, and publishes. It imports no torch. The result has one of

    path, kind, bindings, …    what was built
    error                      the candidate's mistake: what the compiler says
    missing, fix               what this machine lacks
    trouble                    what failed here and is nobody's mistake
"""

from __future__ import annotations

import errno
import json
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import attrs

from kernelrl_judge.build.compiling import CompileError, compile_extension
from kernelrl_judge.build.confined import Compilers, MachineBusy, OutOfTime, reached_limit
from kernelrl_judge.build.kept import kept_answer, keys, store_of
from kernelrl_judge.build.prepare import Prepared, prepare
from kernelrl_judge.build.request import InlineRequest
from kernelrl_judge.build.toolchain import Toolchain, ToolchainMissing, find_toolchain
from kernelrl_judge.isolation import cgroups, cpus, sandbox

__all__ = ["main"]

_LOG_TAIL_CHARACTERS = 4000
_TOO_LATE_S = 600.0
"""How long a build that took too long is not tried again: another machine, or a quieter hour, may manage."""
_LITTLE_SPACE = 1 << 28
_MOST_MIB = 64
"""Of an extension: hundreds of times what a kernel has."""
_READ_BY_ASSEMBLY = re.compile(r"Error: (?:file not found|can't open (?:file )?[‘'`]?): ?(\S+)")


def main() -> None:
    """Serve the order on standard input."""
    sandbox.die_with_parent()
    cpus.spare()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    order = json.load(sys.stdin)
    try:
        result = _result(order)
    except ToolchainMissing as error:
        result = {"missing": error.args[0], "fix": error.args[1]}
    except MachineBusy:
        said = f"a compiler had a processor for less than half of {2 * order['timeout_s']:g} s"
        result = {"trouble": f"{said}; let fewer builds run at once on this machine"}
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        result = {"trouble": _no_space(order)}
    json.dump(result, sys.stdout)


def _result(order: dict[str, Any]) -> dict[str, Any]:
    directory = Path(order["directory"])
    request = InlineRequest.from_json(order["request"])
    toolchain = find_toolchain(request.language, directory)
    toolchain.require_arch(request.arch)
    key, limited = keys(order, request, toolchain)
    store = store_of(order)
    if (found := kept_answer(order)) is not None:
        return found
    prepared = prepare(toolchain, directory / "toolchains")
    prepared.prove(request.arch)
    if not request.device_only:
        prepared.build_binder()
    with store.lock(key):
        if (found := kept_answer(order)) is not None:
            return found
        scratch = Path(tempfile.mkdtemp(prefix="build-", dir=_scratch(directory)))
        try:
            result, file = _build(request, toolchain, prepared, scratch, order)
            if "trouble" in result:
                return result
            return {**store.write(limited if "limit" in result else key, result, file), "cached": False}
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def _build(
    request: InlineRequest, toolchain: Toolchain, prepared: Prepared, scratch: Path, order: dict[str, Any]
) -> tuple[dict[str, Any], Path | None]:
    """What is answered, and the file that belongs to it."""
    if group := cgroups.join():
        group.limit(order["memory_mib"])
    started = time.monotonic()
    compilers = Compilers(
        readable=[*toolchain.directories(), str(prepared.directory)],
        writable=str(scratch),
        memory_mib=order["memory_mib"],
        deadline=started + order["timeout_s"],
        latest=started + 2 * order["timeout_s"],
        path=toolchain.path(),
        knows_itself=toolchain.language == "hip",
    )
    prepared.on_wait = compilers.extend
    try:
        built = compile_extension(request, toolchain, prepared, scratch, run=compilers.run)
    except CompileError as error:
        text = str(error)
        if "No space left on device" in text and shutil.disk_usage(scratch).free < _LITTLE_SPACE:
            return {"trouble": _no_space(order)}, None
        result = {"error": text, "seconds": time.monotonic() - started}
        if limit := reached_limit(text, order["memory_mib"]):
            result |= {"error": f"{limit}\n{text}", "limit": limit}
        elif file := _READ_BY_ASSEMBLY.search(text):
            result["error"] = f"denied: assembly reads a file that is not of this build: {file.group(1)}\n{text}"
        return result, None
    except OSError as error:
        if error.errno != errno.E2BIG:
            raise
        return {"error": "denied: the flags are longer than a command may be"}, None
    except OutOfTime as late:
        limit = f"Compiling took longer than {order['timeout_s']:g} s and was ended."
        log = str(late).replace(f"{scratch}/", "").strip()[-_LOG_TAIL_CHARACTERS:]
        said = f"The compiler had said:\n{log}" if log else "The compiler had said nothing."
        return {"error": f"{limit} {said}", "limit": limit, "until": time.time() + _TOO_LATE_S}, None
    size_mib = Path(built.path).stat().st_size / (1 << 20)
    if size_mib > _MOST_MIB:
        text = f"What was built has {size_mib:.0f} MiB, and may have {_MOST_MIB}: take memory when the code runs."
        return {"error": text, "seconds": time.monotonic() - started}, None
    result = attrs.asdict(built)
    del result["path"]
    own = resource.getrusage(resource.RUSAGE_SELF)
    result["stages"]["service"] = round(own.ru_utime + own.ru_stime, 3)
    result["cpu_seconds"] = round(result["cpu_seconds"] + result["stages"]["service"], 3)
    result["log"] = built.log[-_LOG_TAIL_CHARACTERS:]
    return {**result, "binder": str(prepared.binder)}, Path(built.path)


def _no_space(order: dict[str, Any]) -> str:
    return f"no space is left in {order['directory']}; free some, or set KERNELRL_CACHE_DIR to a place that has it"


def _scratch(directory: Path) -> Path:
    scratch = directory / "scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    return scratch


if __name__ == "__main__":
    main()
