"""Device time of the candidate's own kernels, from a replay without them.

The list of nodes comes from the runner, where native code of a candidate could forge it (`docs/security.md`). It cannot
forge the output of the replay with its own kernels disabled.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from kernelrl_core.api.evaluators import DeviceKernel, Finding
from kernelrl_judge.findings import finding
from kernelrl_judge.limits import LIMITS
from kernelrl_judge.peer.recordings import CandidateRecordings, DeviceNode
from kernelrl_judge.task.comparison import Tolerance, compare_values
from kernelrl_judge.task.reference import Reference, Trial

__all__ = ["Ownership", "measure_ownership"]

_MAX_KERNELS = 16
_MAX_LIBRARY_KERNELS = 4
_REPLAYS = 3


@attrs.frozen
class Ownership:
    """Kernels of one call, and whose work they are."""

    device_kernels: tuple[DeviceKernel, ...]
    """The most frequent nodes, with launches per call."""
    own_kernel_share: float
    """Share of the device time that is saved without the candidate's own kernels."""
    library_kernel_share: float
    """Share of the device time in library kernels: of the rest, their share of the launches that are not own."""
    library_kernels: tuple[str, ...]
    """Names of library kernels, the first few."""
    computing_operators: tuple[str, ...] | None
    """Names of library kernels that compute; None if their share is too small to count."""
    decoy: Finding | None
    """Set if the output is right although no own kernel ran."""


def measure_ownership(recordings: CandidateRecordings, reference: Reference, limit: Tolerance) -> Ownership:
    """Replay a recording with and without the candidate's own kernels. These are the last replays of a runner.

    Args:
        reference: the reference with the candidate's parameters.
    """
    n_calls = len(recordings.described)
    nodes = recordings.nodes
    n_own = _launches(nodes, "own")
    n_library = _launches(nodes, "library")
    n_others = n_library + _launches(nodes, "glue")
    # Different inputs: the outputs of the replay with all kernels are wrong for those without.
    with_own, without_own = reference.trial(0), reference.trial(1)

    recordings.write([with_own.inputs] * n_calls, reference.imposed_state)
    with_us = _fastest_us(recordings)
    recordings.switch(0, own=False)
    recordings.write([without_own.inputs] * n_calls, reference.imposed_state)
    without_us = _fastest_us(recordings)

    own_share = min(1.0, max(0.0, 1 - without_us / max(with_us, 1e-9))) if n_own else 0.0
    library_share = (1 - own_share) * n_library / n_others if n_others else 0.0
    library = tuple(node.name for node in nodes if node.kind == "library")
    is_computing = library_share > LIMITS.library_time_share
    return Ownership(
        device_kernels=_most_frequent(nodes, n_calls),
        own_kernel_share=own_share,
        library_kernel_share=library_share,
        library_kernels=library[:_MAX_LIBRARY_KERNELS],
        computing_operators=library[:_MAX_KERNELS] if is_computing else None,
        decoy=_decoy(recordings, without_own, limit) if n_own else None,
    )


def _launches(nodes: Sequence[DeviceNode], kind: str) -> int:
    return sum(node.launches for node in nodes if node.kind == kind)


def _fastest_us(recordings: CandidateRecordings) -> float:
    """Shortest device time of a few replays: others may use the device as well."""
    return min(recordings.run().calls_us for _ in range(_REPLAYS))


def _most_frequent(nodes: Sequence[DeviceNode], n_calls: int) -> tuple[DeviceKernel, ...]:
    ordered = sorted(nodes, key=lambda node: -node.launches)
    return tuple(
        DeviceKernel(node.name, node.kind, max(1, node.launches // n_calls)) for node in ordered[:_MAX_KERNELS]
    )


def _decoy(recordings: CandidateRecordings, trial: Trial, limit: Tolerance) -> Finding | None:
    """A finding if the last replay, without own kernels, gave the right output of a trial."""
    actual = recordings.output(trial.expected, 0)
    is_right = compare_values(trial.expected, actual, limit) is None
    if not is_right or trial.needs_no_computation:
        return None
    own = [node.name for node in recordings.nodes if node.kind == "own"]
    evidence = f"the output is right although {', '.join(own[:4])} did not run"
    return finding("decoy_kernels", evidence)
