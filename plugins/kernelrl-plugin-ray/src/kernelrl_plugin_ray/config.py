"""Options of the evaluator `ray`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

import attrs

from kernelrl_core.api.config import NonNegativeInt, PositiveFloat, PositiveInt
from kernelrl_core.api.evaluators import EvaluationSettings, EvaluatorConfig

__all__ = ["RayConfig"]

_ADDRESS = re.compile(r"auto|(ray://)?[^\s/:]+:\d{1,5}")


@attrs.frozen
class RayConfig(EvaluatorConfig):
    """Ray cluster, and the share of it that evaluations may use."""

    address: str | None = None
    """`HOST:PORT` of the cluster's head for a driver on one of its nodes, `ray://HOST:PORT` for a driver elsewhere,
    `auto` for the cluster of this node; null: a cluster on this machine that ends with the run."""
    judges: PositiveInt | None = None
    """Maximum number of judge actors; null: one per GPU, on a cluster without GPUs one per core."""
    gpu_workers: PositiveInt | None = None
    """Candidates evaluated concurrently on each GPU; null: one per two cores per GPU, at most 8."""
    build_workers: NonNegativeInt | None = None
    """Extensions compiled concurrently, each on a core of its own; null: one per core that no judge has, on a cluster
    without GPUs 0. With 0, the judges compile."""
    resources: Mapping[str, Mapping[str, float]] = attrs.field(factory=dict)
    """GPU type, as Ray names it, and the Ray resources of each judge on it: `{H100: {CPU: 8}}`. Other GPUs are not
    used. Empty: the cluster must have a single GPU type."""
    shared_cache: str | None = None
    """Cache directory on a file system that all nodes share. Null: each node has its own cache, and builds are sent."""
    environment: tuple[str, ...] = ()
    """Names of variables of this process that the workers get, such as `CUDA_HOME`. They get no others."""
    start_timeout_s: PositiveFloat = PositiveFloat(180.0)
    """Limit for the start of the first judge in seconds."""

    def settings_here(self, settings: EvaluationSettings) -> EvaluationSettings | None:
        """A cluster elsewhere builds and executes candidates; see `EvaluatorConfig.settings_here`."""
        return settings if self.address is None else None

    def problems(self) -> Iterable[str]:
        if self.address is not None and not _ADDRESS.fullmatch(self.address):
            yield f"address: {self.address!r} is no address; write HOST:6379, ray://HOST:10001 or auto"
        if len(self.resources) > 1:
            yield (
                f"resources: {len(self.resources)} GPU types; times of different GPUs are not comparable: name one, "
                "and use the evaluator route for the others"
            )
