"""Path of one training sample through the core: modules, and calls between packages.

    python benchmarks/sample_path.py

Trains one step of the recipe `smoke` with one task, one turn and two episodes (the minimum for a comparison), sampled
sequentially. A profiler records each function of `kernelrl_core` that is called from the start of the step to the end
of its update, except values (`types`), `monitoring` and the plugin system (`plugins`). Prints one JSON document: the
modules in the order of their first call, and how often control enters `training`.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import threading
from pathlib import Path
from types import FrameType
from typing import Any

from provenance import provenance

import kernelrl_core
from kernelrl_core.monitoring.console import Console
from kernelrl_core.planning.load import load_recipe
from kernelrl_core.plugins.registry import registry
from kernelrl_core.runs.directory import RunDir
from kernelrl_core.training import execution, loop

OVERRIDES = (
    "train.tasks_per_step=1",
    "train.group_size=2",
    "train.steps=1",
    "sampling.concurrency=1",
    "episode.turns=1",
    "eval.at_start=false",
    "eval.at_end=false",
    "eval.every=0",
)
TARGET_MODULES, TARGET_ENTRIES = 26, 4
ROOT = Path(kernelrl_core.__file__).parent
NOT_COUNTED = ("types", "monitoring", "plugins")


class Trace:
    """Functions of the core in call order. The continuation of a coroutine is not a call."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, str]] = []
        self._begun: set[FrameType] = set()

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if event != "call" or frame in self._begun:
            return
        called = _place(frame)
        if called is None:
            return
        self._begun.add(frame)
        back = frame.f_back
        while back is not None and _place(back) is None:
            back = back.f_back
        caller = _place(back) if back is not None else None
        self.calls.append((*called, caller[0] if caller else ""))

    def modules(self) -> list[str]:
        return list(dict.fromkeys(module for module, _, _ in self.calls))

    def functions(self) -> list[str]:
        return list(dict.fromkeys(f"{module}:{name}" for module, name, _ in self.calls))

    def entries(self, package: str) -> list[str]:
        """Functions of a package that are called from outside: by another package or by the event loop."""
        inside = f"{package}."
        return list(
            dict.fromkeys(
                f"{module}:{name}"
                for module, name, caller in self.calls
                if module.startswith(inside) and not caller.startswith(inside)
            )
        )


def _place(frame: FrameType) -> tuple[str, str] | None:
    """Module, relative to the core, and function of a frame; None outside of the core and in excluded packages."""
    path, name = frame.f_code.co_filename, frame.f_code.co_name
    if not path.startswith(str(ROOT)) or not path.endswith(".py") or name.startswith("<"):
        return None
    module = str(Path(path).relative_to(ROOT)).removesuffix(".py").replace(os.sep, ".")
    return None if module.partition(".")[0] in NOT_COUNTED else (module, name)


def main() -> None:
    loaded = load_recipe("smoke", OVERRIDES, registry=registry())
    trace, train_step = Trace(), loop.train_step

    async def traced(*arguments: Any) -> Any:
        sys.setprofile(trace)
        threading.setprofile(trace)
        try:
            return await train_step(*arguments)
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    loop.train_step = traced  # type: ignore[assignment]
    begun = provenance("attrs")
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        run = RunDir.create(Path(folder) / "run", loaded.resolved, {})
        asyncio.run(execution._train(run, loaded.recipe, loaded.resolved, registry(), Console()))
    modules, entries = trace.modules(), trace.entries("training")
    result = {
        "benchmark": "sample_path",
        "modules": modules,
        "n_modules": len(modules),
        "entries_into_training": entries,
        "n_entries_into_training": len(entries),
        "functions": trace.functions(),
        "targets": {"n_modules": TARGET_MODULES, "n_entries_into_training": TARGET_ENTRIES},
        "reached": len(modules) <= TARGET_MODULES and len(entries) <= TARGET_ENTRIES,
        "provenance": begun,
    }
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
