"""Tasks that references of an index compute, found by calling the references in sandboxes at the build."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import attrs

from kernelrl_plugin_raicl.index.manifest import unusable
from kernelrl_plugin_raicl.index.store import Store

__all__ = ["Behaviour", "read_behaviour", "write_behaviour"]

_FILE = "behaviour.jsonl"
_PER_CHUNK = 512


@attrs.frozen
class Behaviour:
    """Tasks with which the references of an index were compared."""

    tasks: frozenset[str] = frozenset()
    """Content hashes of these tasks."""
    solved: tuple[tuple[str, ...], ...] = ()
    """For each number of a reference: the tasks whose outputs it has."""

    def solved_by(self, reference: int) -> tuple[str, ...]:
        """The tasks whose outputs a reference has."""
        return self.solved[reference] if self.solved else ()


def write_behaviour(
    directory: Path, store: Store, protected: Mapping[str, str], progress: Callable[[int, int], None]
) -> dict[str, Any]:
    """Call the references of an index with the inputs of tasks; a build that was interrupted is continued.

    Args:
        protected: content hash -> source of the tasks.
        progress: called with the numbers of finished and of all references.

    Returns:
        Facts for the manifest.

    Raises:
        InfrastructureError: the sandboxes do not start.
    """
    from kernelrl_judge.behaviour.equality import equal_tasks, probe_tasks
    from kernelrl_judge.behaviour.runner import ReferenceRunner

    path = directory / _FILE
    found = [json.loads(line) for line in _complete_lines(path)]
    with ReferenceRunner() as runner, path.open("w", encoding="utf-8") as stream:
        stream.writelines(json.dumps(one) + "\n" for one in found)
        tasks = probe_tasks(runner, protected)
        sources = itertools.islice(store.references(), len(found), None)
        while chunk := list(itertools.islice(sources, _PER_CHUNK)):
            equal = equal_tasks(runner, tasks, chunk)
            stream.writelines(json.dumps(one) + "\n" for one in equal)
            stream.flush()
            found += equal
            progress(len(found), store.n_references)
        missing = sorted(runner.missing_layers)
    return {
        "tasks": tasks.keys,
        "tasks_not_called": sorted(tasks.unprobed),
        "references_called": sum(one is not None for one in found),
        "references_not_called": sum(one is None for one in found),
        "references_equal": sum(bool(one) for one in found),
        "missing_layers": missing,
    }


def read_behaviour(directory: Path, manifest: Mapping[str, Any]) -> Behaviour:
    """The tasks that references of an index compute; empty for an index that was built without.

    Raises:
        UsageError: the file is damaged.
    """
    facts = manifest.get("behaviour")
    if facts is None:
        return Behaviour()
    try:
        rows = [json.loads(line) for line in _complete_lines(directory / _FILE)]
        return Behaviour(frozenset(facts["tasks"]), tuple(tuple(row or ()) for row in rows))
    except (OSError, ValueError, KeyError, TypeError):
        raise unusable(directory, f"{_FILE} is damaged") from None


def _complete_lines(path: Path) -> list[str]:
    if not path.exists():
        return []
    return path.read_text(encoding="utf-8").split("\n")[:-1]
