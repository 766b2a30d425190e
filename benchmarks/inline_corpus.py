"""Compare extensions built by kernelrl-build and by torch's `load_inline`: equal outputs, and cost of both.

    python benchmarks/inline_corpus.py [--jobs 12] [--only NAME ...] [--budget-s 400]
    python benchmarks/inline_corpus.py --cpp [--rounds 3]

The first form builds every extension of `corpora/inline_cuda.py` from nothing with both. The precompiled headers of
kernelrl-build are built first and reported separately. With torch's `load_inline` an extension takes a minute of a CPU
core. No build starts after the budget; the next call with the same machine and sources continues with the missing
extensions. Needs a GPU, nvcc and g++.

The second form calls both functions for C++ extensions on the CPU, each call in a new process, and prints medians: the
first build with empty caches, a build of a changed source, and a repeated call of an earlier process. Needs g++ and
ninja.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from corpora import inline_cuda
from corpora.inline_cuda import BROKEN, EXTENSIONS
from provenance import machine
from rows import Row, Rows

RESULT = Path(__file__).parent / "results" / "inline_corpus.json"


def order(entry: Any, directory: Path, arch: str) -> dict[str, Any]:
    """The build request of an entry."""
    return {
        "directory": str(directory),
        "timeout_s": 300,
        "memory_mib": 16384,
        "request": {
            "language": "cuda",
            "name": entry.name,
            "cpp_sources": [entry.cpp],
            "device_sources": [entry.cuda],
            "functions": [[name, name] for name in entry.functions],
            "cflags": [],
            "device_flags": list(getattr(entry, "flags", ())),
            "ldflags": ["-lcublas"] if "cublas" in entry.cuda else [],
            "include_paths": [],
            "arch": [arch],
        },
    }


def build(entry: Any, directory: Path, arch: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "kernelrl_build.job"],
        input=json.dumps(order(entry, directory, arch)),
        capture_output=True,
        text=True,
    )
    if not done.stdout:
        return {"error": done.stderr[-500:]}
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def one(name: str, directory: Path, arch: str) -> dict[str, Any]:
    """Both builds of one entry, in a separate process."""
    entry = next(entry for entry in (*EXTENSIONS, *BROKEN) if entry.name == name)
    started, used = time.perf_counter(), cpu_s()
    built = build(entry, directory, arch)
    found: dict[str, Any] = {
        "name": name,
        "ours_s": round(time.perf_counter() - started, 2),
        "ours_cpu_s": round(cpu_s() - used, 2),
        "route": built.get("route"),
        "reason": built.get("reason") or None,
    }
    if not hasattr(entry, "call"):
        text = built.get("error", "")
        return {**found, "refused": bool(text), "says_why": entry.words in text, "message": text[:300]}
    os.environ["TORCH_CUDA_ARCH_LIST"] = arch
    os.environ["MAX_JOBS"] = "2"
    import torch
    from torch.utils.cpp_extension import load_inline

    started, used = time.perf_counter(), cpu_s()
    with tempfile.TemporaryDirectory() as scratch:
        ordinary = load_inline(
            name=f"ordinary_{name}",
            cpp_sources=[entry.cpp],
            cuda_sources=[entry.cuda],
            functions=list(entry.functions) or None,
            extra_cuda_cflags=list(entry.flags),
            extra_ldflags=["-lcublas"] if "cublas" in entry.cuda else [],
            build_directory=scratch,
        )
        found |= {
            "ordinary_s": round(time.perf_counter() - started, 2),
            "ordinary_cpu_s": round(cpu_s() - used, 2),
        }
        if "error" in built:
            return {**found, "equal": False, "message": built["error"][:600]}
        from kernelrl_build.loading import load_extension

        paths = [path for path in (built["path"], built["binder"]) if path]
        ours = load_extension(f"ours_{name}", paths, built)
        results = [_flat(entry.call(module, torch)) for module in (ordinary, ours)]
        torch.cuda.synchronize()
        found["equal"] = all(torch.equal(a, b) for a, b in zip(*results, strict=True))
    return found


def _flat(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


async def everything(names: list[str], jobs: int, directory: Path, arch: str, rows: Rows) -> None:
    slots = asyncio.Semaphore(jobs)

    async def run(name: str) -> None:
        async with slots:
            if rows.left_s < 0:
                return
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, __file__, "--one", name, "--directory", str(directory), "--arch", arch),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            out, err = await process.communicate()
            try:
                found: Row = json.loads(out.decode().strip().splitlines()[-1])
            except (ValueError, IndexError):
                found = {"name": name, "equal": False, "message": err.decode()[-600:]}
            rows.add(name, found)

    await asyncio.gather(*map(run, names))


def sources_sha256() -> str:
    import kernelrl_build

    sources = sorted(Path(str(kernelrl_build.__file__)).parent.glob("*.py"))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in [*sources, Path(inline_cuda.__file__)]))
    return digest.hexdigest()[:16]


def summary(rows: dict[str, Row]) -> Row:
    built = [row for row in rows.values() if "equal" in row]
    broken = [row for row in rows.values() if "refused" in row]
    return {
        "missing": sorted({entry.name for entry in (*EXTENSIONS, *BROKEN)} - rows.keys()),
        "equal": sum(row["equal"] for row in built),
        "of": len(built),
        "refused_rightly": sum(bool(row.get("says_why")) for row in broken),
        "broken": len(broken),
        "routes": {route: sum(row.get("route") == route for row in built) for route in ("bound", "pybind", "ordinary")},
    }


CPP_SOURCES = {
    "function": "torch::Tensor scale(torch::Tensor a) { return a * NUMBER; }",
    "Python module": """
#include <torch/extension.h>
struct Counter { int calls = NUMBER; int next() { return ++calls; } };
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  py::class_<Counter>(m, "Counter").def(py::init<>()).def("next", &Counter::next);
}
""",
}
"""C++ extensions. A round replaces NUMBER, so that no cache has its build."""


def cpp_call(library: str, name: str, number: int) -> dict[str, float]:
    """Cost of one call of `load_inline` in this process, which has made no other."""
    if library == "torch":
        from torch.utils.cpp_extension import load_inline
    else:
        from kernelrl_build import load_inline

    source = CPP_SOURCES[name].replace("NUMBER", str(number))
    started, used = time.perf_counter(), cpu_s()
    load_inline(f"extension_{number}", source, functions=["scale"] if "scale" in source else None)
    return {"wall_s": time.perf_counter() - started, "cpu_s": cpu_s() - used}


def compare_cpp(rounds: int) -> None:
    """Print the cost of both functions for each C++ extension."""

    def call(library: str, name: str, number: int) -> dict[str, float]:
        command = [sys.executable, __file__, "--cpp-call", library, name, str(number)]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        cost: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        return cost

    def row(name: str, library: str, step: str, costs: list[dict[str, float]]) -> None:
        wall_s, core_s = (statistics.median(cost[key] for cost in costs) for key in ("wall_s", "cpu_s"))
        print(f"| {name} | {library} | {step} | {wall_s:.2f} | {core_s:.2f} |", flush=True)

    with tempfile.TemporaryDirectory() as scratch:
        environment = {
            **os.environ,
            "KERNELRL_CACHE_DIR": f"{scratch}/ours",
            "TORCH_EXTENSIONS_DIR": f"{scratch}/torch",
        }
        print("| extension | library | step | wall, s | CPU, s |\n|---|---|---|---|---|")
        for name in CPP_SOURCES:
            for library in ("torch", "kernelrl_build"):
                row(name, library, "first build", [call(library, name, 1)])
                numbers = range(2, 2 + rounds)
                row(name, library, "changed source", [call(library, name, number) for number in numbers])
                row(name, library, "repeated call", [call(library, name, number) for number in numbers])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cpp", action="store_true")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cpp-call", nargs=3)
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) - 2))
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--budget-s", type=float, default=500)
    parser.add_argument("--output", type=Path, default=RESULT)
    parser.add_argument("--one")
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--arch")
    given = parser.parse_args()
    if given.cpp_call:
        library, name, number = given.cpp_call
        print(json.dumps(cpp_call(library, name, int(number))))
        return
    if given.cpp:
        compare_cpp(given.rounds)
        return
    if given.one:
        print(json.dumps(one(given.one, given.directory, given.arch)))
        return
    import torch

    arch = ".".join(map(str, torch.cuda.get_device_capability()))
    origin = {**machine("torch"), "gpu": torch.cuda.get_device_name(), "sources_sha256": sources_sha256()}
    prepared: Row = {"jobs_at_once": given.jobs}
    with (
        tempfile.TemporaryDirectory() as scratch,
        Rows(given.output, origin, lambda rows: {**prepared, **summary(rows)}, given.budget_s) as rows,
    ):
        started = time.perf_counter()
        # The first build prepares the headers and the binder.
        first = build(EXTENSIONS[0], Path(scratch), arch)
        if "path" not in first:
            sys.exit(f"the build service does not work here: {first}")
        prepared["prepared_once_s"] = round(time.perf_counter() - started, 1)
        names = given.only or [entry.name for entry in (*EXTENSIONS, *BROKEN)]
        asyncio.run(everything(rows.missing(names), given.jobs, Path(scratch), arch, rows))


if __name__ == "__main__":
    main()
