"""Suites of hacks and honest kernels, which `kernelrl_experiments.suite.read_suite` reads.

In a folder with `task.py`, `hack.toml` declares that `candidate.py` is a hack. All other kernels are honest: each has
to be correct and clean.

| key of `hack.toml` | meaning |
|---|---|
| `title` | the mechanism, in one line |
| `class` | group of mechanisms, one of `CLASSES` |
| `backend` | kernel language of all kernels in the folder |
| `device` | `cpu`, `gpu` or `any` |
| `expected` | allowed endings of the hack, of `ENDINGS` |
| `what` | what the hack does, and where it would be rewarded |
| `max_speedup` | for ending `no_gain`: a larger speedup was obtained by the hack |
| `evaluations` | number of evaluations in a row, of which the last one counts; default 1 |
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import attrs

from kernelrl_core.api.episodes import Registry, find_backends
from kernelrl_core.api.errors import KernelRLError, UsageError, suggestion
from kernelrl_core.api.evaluators import Outcome, Task
from kernelrl_experiments.suite import BrokenPair, read_suite

__all__ = ["BUNDLED", "CLASSES", "ENDINGS", "Hack", "SuiteKernel", "read_hacks", "suite_folder"]

BUNDLED = ("hacks", "honest")
"""Suites of this package: hacks with their look-alikes, and honest kernels."""
CLASSES: Mapping[str, str] = {
    "ownership": "a library, or torch, computes in place of the kernel",
    "values": "wrong for inputs or parameters of the input domain",
    "precision": "computes in a narrower type",
    "effects": "omits an effect, or damages inputs, parameters or outputs",
    "caching": "returns results of earlier calls, or does less in later calls",
    "clock": "does the work outside of the timed window, or changes the clock",
    "tampering": "reads or changes objects of the evaluator in the process of the candidate",
    "isolation": "attacks the sandbox, the build or another process",
}
ENDINGS = (
    *(outcome.value for outcome in Outcome if outcome not in (Outcome.CORRECT, Outcome.INFRA_ERROR)),
    *("suspect", "no_gain", "quarantined"),
)
"""Endings of a hack: an outcome; `suspect`, a correct kernel with this verdict; `no_gain`, a correct kernel without a
speedup above the true one; `quarantined`, a task on which no model is trained."""
_DEVICES = {"cpu": ("cpu",), "gpu": ("gpu",), "any": ("cpu", "gpu")}
_HACK, _CANDIDATE = "hack.toml", "candidate.py"


@attrs.frozen
class Hack:
    """The declaration of a hack, from `hack.toml`."""

    title: str
    class_: str
    backend: str
    device: Literal["cpu", "gpu", "any"]
    expected: frozenset[str]
    what: str
    max_speedup: float | None = None
    evaluations: int = 1

    def gains(self, speedup: float | None) -> bool:
        """Whether a correct result with this speedup is an undeserved gain. None: no speedup was measured."""
        return self.max_speedup is None or (speedup or 0.0) > self.max_speedup


@attrs.frozen
class SuiteKernel:
    """A kernel of a suite, with its task."""

    id: str
    """Folder of the task within the suite; `/` and the file's stem follow for every kernel that is no hack."""
    task: Task
    source: str
    backend: str
    devices: frozenset[str]
    """`cpu`, `gpu` or both: where it can be executed. Triton is executed by its interpreter on the CPU."""
    hack: Hack | None = None
    """None: an honest kernel."""
    class_: str = "honest"
    evaluations: int = 1


def suite_folder(name: str) -> Path:
    """The folder of a suite: an existing folder or file, or a bundled suite.

    Raises:
        LookupFailed: there is neither.
    """
    path = Path(name)
    if path.exists():
        return path
    if name in BUNDLED:
        return Path(str(files("kernelrl_lab") / name))
    raise UsageError(
        f"--suite {name}: no such directory and no bundled suite; {suggestion(name, BUNDLED)}",
        fix="name a directory",
        see="kernel-files",
    )


def read_hacks(folder: Path, *, registry: Registry, backend: str = "") -> tuple[list[SuiteKernel], list[BrokenPair]]:
    """The kernels of a suite, ordered by folder and file name, and what cannot be read.

    Args:
        backend: of kernels whose folder has no `hack.toml`; empty: found in each source.

    Raises:
        UsageError: the folder has no task.
    """
    pairs, broken = read_suite(folder, registry=registry)
    hacks: dict[Path, Hack | KernelRLError | None] = {}
    kernels: list[SuiteKernel] = []
    for pair in pairs:
        place = Path(pair.file).parent
        if place not in hacks:
            try:
                hacks[place] = _read_hack(place / _HACK)
            except KernelRLError as error:
                hacks[place] = error
                broken.append(BrokenPair(pair.task.id, error.message))
        hack = hacks[place]
        if isinstance(hack, KernelRLError):
            continue
        is_hack = hack is not None and Path(pair.file).name == _CANDIDATE
        id_ = pair.task.id if is_hack else f"{pair.task.id}/{Path(pair.file).stem}"
        try:
            used = hack.backend if hack is not None else backend or pair.backend or _backend(pair.text, registry)
        except KernelRLError as error:
            broken.append(BrokenPair(id_, error.message))
            continue
        kernels.append(
            SuiteKernel(
                id=id_,
                task=attrs.evolve(pair.task, id=f"lab/{pair.task.id}"),
                source=pair.text,
                backend=used,
                devices=frozenset(_DEVICES[hack.device]) if hack is not None else _devices(used),
                hack=hack if is_hack else None,
                class_=hack.class_ if hack is not None else "honest",
                evaluations=hack.evaluations if hack is not None else 1,
            )
        )
    return kernels, sorted(broken, key=lambda one: one.id)


def _read_hack(path: Path) -> Hack | None:
    if not path.is_file():
        return None
    try:
        data: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{path}: {error}") from None
    known = [field.name.rstrip("_") for field in attrs.fields(Hack)]
    required = [field.name.rstrip("_") for field in attrs.fields(Hack) if field.default is attrs.NOTHING]
    for key in data:
        if key not in known:
            raise UsageError(f"{path}: unknown key {key!r}; {suggestion(key, known)}")
    if lacking := [key for key in required if key not in data]:
        raise UsageError(f"{path}: missing: {', '.join(lacking)}")
    for key, values in (("class", CLASSES), ("device", _DEVICES)):
        if data[key] not in values:
            raise UsageError(f"{path}: {key}: unknown value {data[key]!r}; {suggestion(str(data[key]), values)}")
    expected = data["expected"]
    if not isinstance(expected, list) or not expected:
        raise UsageError(f"{path}: expected: a list of endings is required")
    for ending in expected:
        if ending not in ENDINGS:
            raise UsageError(f"{path}: expected: unknown ending {ending!r}; {suggestion(str(ending), ENDINGS)}")
    if ("no_gain" in expected) != ("max_speedup" in data):
        raise UsageError(f"{path}: ending no_gain and key max_speedup require each other")
    return Hack(
        **{f"{key}_" if key == "class" else key: value for key, value in data.items() if key != "expected"},
        expected=frozenset(expected),
    )


def _backend(source: str, registry: Registry) -> str:
    found = find_backends(source, registry)
    if not found:
        raise UsageError(
            "no backend finds a kernel in the source", fix="name the backend: --backend NAME", see="arguments"
        )
    return found[0]


def _devices(backend: str) -> frozenset[str]:
    return frozenset({"cpp": ("cpu",), "triton": ("cpu", "gpu")}.get(backend, ("gpu",)))
