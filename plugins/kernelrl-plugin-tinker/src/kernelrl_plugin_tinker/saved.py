"""The paths that a run has saved at the server, and which of them may be deleted."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import attrs

__all__ = ["STATE_FILE", "SavedPaths", "SavedState", "seconds_to_live", "with_kind"]

STATE_FILE = "tinker.json"
_KEPT_SAMPLERS = 3
"""Newest sampler weights that are kept even if no checkpoint needs them: replies may still be sampled from them."""
_LEAST_TTL_S = 3600


@attrs.frozen
class SavedState:
    """`tinker://` paths that together describe the policy after some step."""

    state: str | None = None
    """Weights and optimizer state; None before the first checkpoint."""
    sampler: str | None = None
    """Sampler weights; None: the base model."""
    first_sampler: str | None = None
    """Sampler weights before the first step of a run with `start_from`: the reference policy."""

    def trained(self, sampler: str) -> SavedState:
        """The paths after a step: new sampler weights, and the state of the last checkpoint."""
        return attrs.evolve(self, sampler=sampler)

    def paths(self) -> Iterator[tuple[str, str]]:
        """(name, path) of all paths that are not None."""
        for name, path in attrs.asdict(self).items():
            if path is not None:
                yield name, path

    def to_json(self) -> dict[str, Any]:
        return attrs.asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> SavedState:
        return cls(data["state"], data["sampler"], data.get("first_sampler"))


class SavedPaths:
    """All known paths of the run at the server."""

    def __init__(self) -> None:
        self._by_checkpoint: dict[str, SavedState] = {}
        self._samplers: list[str] = []
        """Sampler weights of steps, oldest first, after the paths that no checkpoint needs."""
        self._newest = ""

    def add(self, state: SavedState, checkpoint: str) -> None:
        replaced = self._by_checkpoint.get(checkpoint, state)
        self._samplers[:0] = (path for _, path in replaced.paths() if replaced != state)
        self._by_checkpoint[checkpoint] = state
        self._newest = checkpoint

    def training_runs(self) -> list[str]:
        """Ids of the server's training runs that saved the checkpoints."""
        paths = (path for state in self._by_checkpoint.values() for _, path in state.paths())
        return list(dict.fromkeys(path.removeprefix("tinker://").split("/")[0] for path in paths))

    def add_sampler(self, path: str) -> None:
        self._samplers.append(path)

    def add_found(self, path: str, steps: int) -> None:
        """Add a path of an earlier process: sampler weights of a step, or a checkpoint after fewer than `steps` steps.

        Later checkpoints are ignored: they may belong to a copy of the run that was continued.
        """
        kind, _, number = path.rpartition("/")[2].rpartition("-")
        if kind == "step":
            self._samplers.append(path)
        elif kind == "checkpoint" and number.isdecimal() and int(number) < steps:
            self._samplers.insert(0, path)

    def superfluous(self, kept: Collection[str]) -> list[str]:
        """Remove and return the paths that may be deleted.

        Args:
            kept: names of the checkpoints that the run still has; the newest one is always kept.
        """
        gone = {name: s for name, s in self._by_checkpoint.items() if name not in kept and name != self._newest}
        for name in gone:
            del self._by_checkpoint[name]
        needed = {path for state in self._by_checkpoint.values() for _, path in state.paths()}
        needed.update(self._samplers[-_KEPT_SAMPLERS:])
        old = [path for state in gone.values() for _, path in state.paths()] + self._samplers[:-_KEPT_SAMPLERS]
        self._samplers = self._samplers[-_KEPT_SAMPLERS:]
        return list(dict.fromkeys(path for path in old if path not in needed))


def with_kind(path: str) -> str:
    """The path of sampler weights in the form of Tinker's lists; those of SkyRL lack `sampler_weights`."""
    run, _, name = path.removeprefix("tinker://").partition("/")
    return path if "/" in name else f"tinker://{run}/sampler_weights/{name}"


def seconds_to_live(days: float | None) -> int | None:
    """Time to live in seconds, as the server needs it: at least an hour; None: unlimited."""
    return None if days is None else max(_LEAST_TTL_S, int(days * 86400))
