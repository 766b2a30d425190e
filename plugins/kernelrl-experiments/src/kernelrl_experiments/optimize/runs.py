"""The run directory of a search: created, found again by the same arguments, and continued.

Its files are those of a training run. `eval_samples.jsonl` has one row per attempt, `begun.jsonl` the highest price of
each started reply, and `optimize.json` the arguments and the result.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from kernelrl_core.errors import KernelRLError, UsageError
from kernelrl_core.planning.load import LoadedRecipe
from kernelrl_core.plugins.registry import Registry
from kernelrl_core.runs.directory import RunDir
from kernelrl_core.runs.provenance import provenance, retriever_identity
from kernelrl_core.storage import disk_error, write_atomically
from kernelrl_core.training.continuation import differences, require_unchanged, run_recipe
from kernelrl_core.types import Task, sha256_text
from kernelrl_core.types.serialization import dumps

__all__ = ["Job", "Limits", "default_path", "finished_result", "open_run", "read_arguments", "write_result"]

_FILE = "optimize.json"
_LIMIT_KEYS = (("episode", "turns"), ("cost", "budget_usd"))
"""Recipe keys that end a search, and that a continued search may change."""
_PRIVATE_KEYS = (*_LIMIT_KEYS, ("policy", "api_key_env"))
"""Recipe keys by which two searches are not distinguished."""


@attrs.frozen
class Limits:
    """What ends a search, beside the rounds and the budget of its recipe."""

    evaluations: int | None = None
    """Evaluations, that of the given kernel included."""
    target_speedup: float | None = None
    """Lower bound of the best kernel's speedup."""
    patience: int = 3
    """Rounds without progress."""


@attrs.frozen
class Job:
    """A search: recipe, task and given kernel."""

    loaded: LoadedRecipe
    registry: Registry
    task: Task
    task_name: str
    """Task id, or the absolute path of its file."""
    kernel: str
    """Text of the given kernel; empty: none."""
    kernel_name: str
    """Name of its file, for messages."""
    limits: Limits
    package: Mapping[str, str] = attrs.field(factory=dict)
    """Files of the user's package, as they were when the search began; see `EvaluationRequest.package`."""

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments as plain data, for `--resume`."""
        return {
            "task": self.task_name,
            "task_sha256": self.task.sha256,
            "kernel": self.kernel,
            "kernel_name": self.kernel_name,
            "limits": attrs.asdict(self.limits),
            "package": dict(self.package),
        }


def default_path(job: Job) -> Path:
    """Run directory of a search. Equal arguments give an equal name, whatever the limits are."""
    recipe = _without(job.loaded.resolved, _PRIVATE_KEYS)
    retriever = retriever_identity(job.loaded.recipe, job.registry)
    package = [dict(job.package)] if job.package else []
    identity = sha256_text(dumps([recipe, job.task.sha256, sha256_text(job.kernel), retriever, *package]))
    name = re.sub(r"\W+", "_", job.task.id.rpartition("/")[2])[:40]
    return Path("runs") / f"optimize-{name}-{identity[:8]}"


def open_run(path: Path, job: Job, overrides: Sequence[str]) -> RunDir:
    """The locked run directory of a search: a new one, or the one at `path`.

    Raises:
        UsageError: another run is at `path`, or another process works on it.
    """
    run = RunDir(path)
    if not path.exists() or run.blank():
        details = provenance(job.loaded.recipe, job.registry, sources=job.loaded.sources, overrides=overrides)
        details["continued_by"] = "kernelrl optimize --resume"
        run = RunDir.create(path, job.loaded.resolved, details)
        _write(run, {"arguments": job.arguments, "result": None})
        return run
    own = read_arguments(run)
    saved = run_recipe(run, job.registry).resolved
    changed = differences(_without(saved, _PRIVATE_KEYS), _without(job.loaded.resolved, _PRIVATE_KEYS))
    changed += [key for key in ("task_sha256", "kernel", "package") if own.get(key) != job.arguments[key]]
    if changed:
        raise UsageError(
            f"run {path} is another search; it differs in {', '.join(changed)}",
            fix=f"kernelrl optimize --resume {path}, or choose another --name",
            see="run-changed",
        )
    run.lock()
    require_unchanged(run)
    if differences(saved, job.loaded.resolved):
        run.replace_recipe(job.loaded.resolved)
    _write(run, {"arguments": job.arguments, "result": None})
    return run


def finished_result(path: Path, job: Job) -> dict[str, Any] | None:
    """The result of a finished search with the same arguments and limits; None if there is something left to do."""
    run = RunDir(path)
    if not (path / _FILE).is_file() or run.state()[0] != "finished":
        return None
    if _read(run)["arguments"] != job.arguments or run.recipe_changed():
        return None
    if differences(run_recipe(run, job.registry).resolved, job.loaded.resolved):
        return None
    found: dict[str, Any] | None = _read(run)["result"]
    return found


def write_result(run: RunDir, job: Job, result: Mapping[str, Any]) -> None:
    """Keep the result of a finished search."""
    _write(run, {"arguments": job.arguments, "result": dict(result)})


def read_arguments(run: RunDir) -> dict[str, Any]:
    """The arguments of a search; see `Job.arguments`.

    Raises:
        UsageError: the run is no search.
    """
    found: dict[str, Any] = _read(run)["arguments"]
    return found


def _read(run: RunDir) -> dict[str, Any]:
    path = run.path / _FILE
    if not path.exists():
        raise UsageError(f"run {run.path} is no search of kernelrl optimize", fix="kernelrl runs list", see="run-files")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found, dict) or not isinstance(found.get("arguments"), dict):
            raise ValueError("it has no arguments")
    except (OSError, ValueError) as error:
        raise KernelRLError(
            f"{path} cannot be read: {error}", fix="restore it from a copy of the run", see="run-files"
        ) from error
    return found


def _write(run: RunDir, document: Mapping[str, Any]) -> None:
    path = run.path / _FILE
    try:
        write_atomically(path, json.dumps(document, indent=1) + "\n")
    except OSError as error:
        raise disk_error(path, error) from error


def _without(resolved: Mapping[str, Any], keys: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """A resolved recipe without some of its keys."""
    found = {name: dict(block) if isinstance(block, Mapping) else block for name, block in resolved.items()}
    for block, key in keys:
        if isinstance(found.get(block), dict):
            found[block].pop(key, None)
    return found
