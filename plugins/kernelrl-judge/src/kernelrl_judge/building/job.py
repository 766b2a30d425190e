"""One build, as a process of its own: `python -m kernelrl_judge.building.job`, an order on standard input (JSON), the
result on standard output (JSON).

The process looks into the store, waits for an equal build under way, prepares the toolchain when that was never done,
runs the compilers confined, and publishes. It imports no torch. The result has one of

    path, kind, bindings, …    what was built
    error                      the candidate's mistake: what the compiler says
    missing, fix               what this machine lacks
"""

from __future__ import annotations

import json
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import attrs

from kernelrl_judge import sandbox
from kernelrl_judge.building.compiling import CompileError, compile_extension
from kernelrl_judge.building.confined import Compilers, OutOfTime
from kernelrl_judge.building.prepare import Prepared, prepare
from kernelrl_judge.building.request import InlineRequest
from kernelrl_judge.building.store import BuildStore
from kernelrl_judge.building.toolchain import Toolchain, ToolchainMissing, find_toolchain

__all__ = ["main"]

_MAX_BYTES = 4 << 30
_LOG_TAIL_CHARACTERS = 4000


def main() -> None:
    """Serve the order on standard input."""
    sandbox.die_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    order = json.load(sys.stdin)
    try:
        result = _result(order)
    except ToolchainMissing as error:
        result = {"missing": error.args[0], "fix": error.args[1]}
    json.dump(result, sys.stdout)


def _result(order: dict[str, Any]) -> dict[str, Any]:
    directory = Path(order["directory"])
    request = InlineRequest.from_json(order["request"])
    toolchain = find_toolchain(request.language, directory)
    toolchain.require_arch(request.arch)
    key = request.key(toolchain.id)
    store = BuildStore(directory, _MAX_BYTES)
    found = store.read(key)
    if found is not None:
        return {**found, "cached": True}
    prepared = prepare(toolchain, directory / "toolchains")
    if not request.device_only:
        prepared.build_binder()
    with store.lock(key):
        found = store.read(key)
        if found is not None:
            return {**found, "cached": True}
        scratch = Path(tempfile.mkdtemp(prefix="build-", dir=_scratch(directory)))
        try:
            result, file, keep = _build(request, toolchain, prepared, scratch, order)
            if not keep:
                return result
            return {**store.write(key, result, file), "cached": False}
        finally:
            shutil.rmtree(scratch, ignore_errors=True)


def _build(
    request: InlineRequest, toolchain: Toolchain, prepared: Prepared, scratch: Path, order: dict[str, Any]
) -> tuple[dict[str, Any], Path | None, bool]:
    """What is answered, the file that belongs to it, and whether it is kept."""
    started = time.monotonic()
    compilers = Compilers(
        readable=[*toolchain.directories(), str(prepared.directory)],
        writable=str(scratch),
        memory_mib=order["memory_mib"],
        deadline=started + order["timeout_s"],
        path=toolchain.path(),
    )
    try:
        built = compile_extension(request, toolchain, prepared, scratch, run=compilers.run)
    except CompileError as error:
        return {"error": str(error), "seconds": time.monotonic() - started}, None, True
    except OutOfTime:
        # Another machine, or a quieter hour, may manage.
        return {"error": f"Compiling took longer than {order['timeout_s']:g} s."}, None, False
    result = attrs.asdict(built)
    del result["path"]
    result["log"] = built.log[-_LOG_TAIL_CHARACTERS:]
    return {**result, "binder": str(prepared.binder)}, Path(built.path), True


def _scratch(directory: Path) -> Path:
    scratch = directory / "scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    return scratch


if __name__ == "__main__":
    main()
