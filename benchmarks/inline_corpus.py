"""Compare extensions built by the build service and by torch's `load_inline`: equal outputs, and cost of both ways.

    python benchmarks/inline_corpus.py [--jobs 12] [--only NAME ...] [--budget-s 400]

Both ways build every extension of `corpora/inline_cuda.py` from nothing. The precompiled headers of the service are
built first and reported separately. With `load_inline` an extension takes a minute of a whole CPU core. No build starts
after the budget; the next call with the same GPU, torch and service continues with the missing ones. Needs a GPU, nvcc
and g++.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import hashlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from corpora import inline_cuda
from corpora.inline_cuda import BROKEN, EXTENSIONS

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
        [sys.executable, "-m", "kernelrl_judge.build.job"],
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
        from kernelrl_judge.runner.builds import _load

        files = [os.open(path, os.O_RDONLY) for path in (built["path"], built["binder"])]
        ours = _load(f"ours_{name}", files, built)
        results = [_flat(entry.call(module, torch)) for module in (ordinary, ours)]
        torch.cuda.synchronize()
        found["equal"] = all(torch.equal(a, b) for a, b in zip(*results, strict=True))
    return found


def _flat(value: Any) -> list[Any]:
    return list(value) if isinstance(value, list | tuple) else [value]


async def everything(names: list[str], jobs: int, directory: Path, arch: str, budget_s: float) -> list[dict[str, Any]]:
    slots = asyncio.Semaphore(jobs)
    begun = time.perf_counter()

    async def run(name: str) -> dict[str, Any] | None:
        async with slots:
            if time.perf_counter() - begun > budget_s:
                return None
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, __file__, "--one", name, "--directory", str(directory), "--arch", arch),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            out, err = await process.communicate()
            try:
                found: dict[str, Any] = json.loads(out.decode().strip().splitlines()[-1])
            except (ValueError, IndexError):
                found = {"name": name, "equal": False, "message": err.decode()[-600:]}
            print(json.dumps(found), flush=True)
            return found

    return [row for row in await asyncio.gather(*map(run, names)) if row is not None]


def provenance() -> dict[str, Any]:
    """Properties that rows of several calls must share to form one result."""
    import torch

    import kernelrl_judge.build

    sources = sorted(Path(str(kernelrl_judge.build.__file__)).parent.glob("*.py"))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in [*sources, Path(inline_cuda.__file__)]))
    return {
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "cores": os.cpu_count(),
        "sources_sha256": digest.hexdigest()[:16],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=max(1, (os.cpu_count() or 2) - 2))
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--budget-s", type=float, default=500)
    parser.add_argument("--output", type=Path, default=RESULT)
    parser.add_argument("--one")
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--arch")
    given = parser.parse_args()
    if given.one:
        print(json.dumps(one(given.one, given.directory, given.arch)))
        return
    import torch

    arch = ".".join(map(str, torch.cuda.get_device_capability()))
    origin = provenance()
    before = json.loads(given.output.read_text()) if given.output.exists() else {}
    kept = before["rows"] if all(before.get(name) == value for name, value in origin.items()) else []
    wanted = given.only or [entry.name for entry in (*EXTENSIONS, *BROKEN)]
    names = [name for name in wanted if name not in {row["name"] for row in kept}]
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        started = time.perf_counter()
        # The first build prepares the headers and the binder.
        first = build(EXTENSIONS[0], directory, arch)
        if "path" not in first:
            sys.exit(f"the build service does not work here: {first}")
        prepared_s = time.perf_counter() - started
        rows = kept + asyncio.run(everything(names, given.jobs, directory, arch, given.budget_s))
    right = [row for row in rows if "equal" in row]
    summary = {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        **origin,
        "jobs_at_once": given.jobs,
        "prepared_once_s": round(prepared_s, 1),
        "missing": sorted(set(wanted) - {row["name"] for row in rows}),
        "equal": sum(row["equal"] for row in right),
        "of": len(right),
        "refused_rightly": sum(bool(row.get("says_why")) for row in rows if "refused" in row),
        "broken": sum("refused" in row for row in rows),
        "routes": {route: sum(row.get("route") == route for row in right) for route in ("bound", "pybind", "ordinary")},
        "rows": rows,
    }
    given.output.write_text(json.dumps(summary, indent=1) + "\n")
    print(json.dumps({key: value for key, value in summary.items() if key != "rows"}, indent=1))


if __name__ == "__main__":
    main()
