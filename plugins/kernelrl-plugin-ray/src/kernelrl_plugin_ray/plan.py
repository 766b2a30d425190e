"""Plan of a cluster's actors, from its nodes and the options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs

from kernelrl_core.api.errors import MissingPrerequisite, suggestion
from kernelrl_plugin_ray.config import RayConfig

__all__ = ["Plan", "make_plan"]

_TYPE = "accelerator_type:"
_MOST_LANES = 8
_AHEAD = 2
"""Evaluations that a judge has beyond its lanes, so that no lane waits for the driver."""


@attrs.frozen
class Plan:
    """Actors of a cluster."""

    judges: int
    builders: int
    lanes: int
    """Candidates that a judge evaluates concurrently."""
    options: Mapping[str, Any]
    """Ray options of a judge."""

    @property
    def depth(self) -> int:
        """Evaluations that a judge is given at a time."""
        return self.lanes + _AHEAD


def make_plan(nodes: Sequence[Mapping[str, Any]], config: RayConfig) -> Plan:
    """The plan for the nodes that `ray.nodes` lists.

    Raises:
        MissingPrerequisite: no node has the GPU type of the options, or there are several GPU types and the options
            name none.
    """
    found = [node["Resources"] for node in nodes if node.get("Alive", True)]
    with_gpu = [resources for resources in found if resources.get("GPU", 0) >= 1]
    types = sorted({name.removeprefix(_TYPE) for one in with_gpu for name in one if name.startswith(_TYPE)})
    wanted = next(iter(config.resources), "")
    if wanted and wanted not in types:
        close = suggestion(wanted, types) if types else "the cluster has no GPU"
        raise MissingPrerequisite(
            f"evaluator.resources: no node of the Ray cluster has a GPU of type {wanted!r}; {close}",
            fix=f"evaluator.resources={{{types[0]}: {{}}}}, or add such a node" if types else "add such a node",
            see="ray",
        )
    if not wanted and len(types) > 1:
        raise MissingPrerequisite(
            f"the Ray cluster has GPUs of several types, {', '.join(types)}; their times are not comparable",
            fix=f"choose one: evaluator.resources={{{types[0]}: {{}}}}",
            see="ray",
        )
    cores = sum(int(resources.get("CPU", 0)) for resources in found)
    if not with_gpu:
        builders = min(config.build_workers or 0, max(0, cores - 1))
        judges = _at_most(cores - builders, config.judges)
        return Plan(judges, builders, 1, {"num_cpus": 1})
    chosen = [resources for resources in with_gpu if not wanted or f"{_TYPE}{wanted}" in resources]
    cores_per_gpu = min(int(one.get("CPU", 0)) // int(one["GPU"]) for one in chosen)
    lanes = config.gpu_workers or max(1, min(_MOST_LANES, cores_per_gpu // 2))
    asked = dict(config.resources.get(wanted, {}))
    # A judge that times a candidate needs a core of its own.
    own = {"num_gpus": 1, "num_cpus": asked.pop("CPU", min(lanes, max(1, cores_per_gpu)))}
    if "memory" in asked:
        own["memory"] = asked.pop("memory")
    if wanted:
        asked[f"{_TYPE}{wanted}"] = 0.001
    judges = _at_most(sum(int(one["GPU"]) for one in chosen), config.judges)
    left = max(0, cores - int(judges * own["num_cpus"]))
    builders = left if config.build_workers is None else config.build_workers
    return Plan(judges, builders, lanes, {**own, "resources": asked})


def _at_most(count: int, limit: int | None) -> int:
    return count if limit is None else min(count, limit)
