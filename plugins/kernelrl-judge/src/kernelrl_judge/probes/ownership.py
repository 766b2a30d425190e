"""Device time of the candidate's own kernels and of library kernels, from replays without some of them.

The list of nodes comes from the runner, where native code of a candidate could forge it (`docs/security.md`). It cannot
forge the output of the replay with its own kernels disabled.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs
import torch

from kernelrl_core.api.evaluators import DeviceKernel, Finding
from kernelrl_judge.findings import finding
from kernelrl_judge.peer.recordings import CandidateRecordings, DeviceNode, NotRecorded, ReferenceRecordings
from kernelrl_judge.protocol.trees import laid_out_as, mapped
from kernelrl_judge.replay.capture import Recorder
from kernelrl_judge.task.comparison import Tolerance, compare_values
from kernelrl_judge.task.reference import Reference
from kernelrl_judge.task.trial import Trial

__all__ = ["Ownership", "WorkTimes", "library_share", "measure_ownership", "own_share"]

_MAX_KERNELS = 16
_MAX_LIBRARY_KERNELS = 4
_REPLAYS = 3


@attrs.frozen
class Ownership:
    """Kernels of one call, and whose work they are."""

    device_kernels: tuple[DeviceKernel, ...]
    """The most frequent nodes, with launches per call."""
    launches: tuple[str, ...]
    """Names of the candidate's own kernels, the first few; empty: none ran."""
    own_kernel_share: float
    """Share of the device time that is saved without the candidate's own kernels."""
    library_kernel_share: float
    """See `library_share`."""
    library_kernels: tuple[str, ...]
    """Names of library kernels, the first few."""
    computing_operators: tuple[str, ...] | None
    """Names of library kernels that compute; None if their share is too small to count."""
    decoy: Finding | None
    """Set if the output is right although no own kernel ran."""


@attrs.frozen
class WorkTimes:
    """Device times of one call, in microseconds."""

    whole: float
    """With all nodes."""
    without_own: float
    """Without own kernels: library kernels, copies and fills."""
    library: float
    """Without own kernels, copies and fills."""
    reference: float | None
    """Of the reference; None if it cannot be recorded."""


def own_share(times: WorkTimes) -> float:
    """Share of the time of a call that is saved without the candidate's own kernels, from 0 to 1."""
    return min(1.0, max(0.0, 1 - times.without_own / max(times.whole, 1e-9)))


def library_share(times: WorkTimes) -> float:
    """Time of library kernels over the smaller of the times of candidate and reference.

    Copies and fills do not count as time of the candidate, so that they cannot make the share small. Nor can an own
    kernel that waits: then the time of the reference is the smaller one.
    """
    copies = max(0.0, times.without_own - times.library)
    smaller = times.whole - copies
    if times.reference is not None:
        smaller = min(smaller, times.reference)
    # Without own kernels, nodes of the graph may overlap in another way.
    return times.library / max(smaller, times.library, 1e-9) if smaller > 0 else 1.0


def measure_ownership(
    recordings: CandidateRecordings, reference: Reference, recorder: Recorder, limit: Tolerance
) -> Ownership:
    """Replay a recording with and without the candidate's own kernels. These are the last replays of a runner.

    Args:
        reference: the reference with the candidate's parameters.
        recorder: records the reference.
    """
    nodes = recordings.nodes
    own = tuple(node.name for node in nodes if node.kind == "own")
    library = tuple(node.name for node in nodes if node.kind == "library")
    n_calls = len(recordings.described)
    trial = reference.trial(1)
    other = _other_trial(reference, trial, limit)

    def write(inputs: list[Any]) -> None:
        recordings.write([inputs] * n_calls, reference.imposed_state)

    write(other.inputs)
    whole_us = _fastest_us(recordings)
    library_us = 0.0
    if library:
        recordings.switch(0, own=False, glue=False)
        library_us = _fastest_us(recordings)
    recordings.switch(0, own=False, glue=True)
    write(trial.inputs)
    without_us = _fastest_us(recordings)
    decoy = None
    if own and _is_right(recordings, trial, limit) and _differ(other, trial, limit):
        # Memory of an earlier call may hold one right output, but not two that differ.
        write(other.inputs)
        recordings.run()
        if _is_right(recordings, other, limit):
            decoy = finding("decoy_kernels", f"the output is right although {', '.join(own[:4])} did not run")

    reference_us = _reference_us(recorder, reference, other) if library else None
    times = WorkTimes(whole_us, without_us, library_us, reference_us)
    share = library_share(times) if library else 0.0
    is_computing = bool(library) and share > reference.settings.library_share
    return Ownership(
        device_kernels=_most_frequent(nodes, n_calls),
        launches=own[:_MAX_KERNELS],
        own_kernel_share=own_share(times) if own else 0.0,
        library_kernel_share=share,
        library_kernels=library[:_MAX_LIBRARY_KERNELS],
        computing_operators=library[:_MAX_KERNELS] if is_computing else None,
        decoy=decoy,
    )


def _other_trial(reference: Reference, trial: Trial, limit: Tolerance) -> Trial:
    """A trial with another output. Some outputs, such as the mean of a loss, hardly depend on the drawn numbers: then
    they are halved."""
    other = reference.trial(0)
    if _differ(other, trial, limit):
        return other
    return reference.trial(0, mapped(other.inputs, _halved))


def _halved(tensor: torch.Tensor) -> torch.Tensor:
    is_number = tensor.is_floating_point() and tensor.element_size() > 1
    return laid_out_as(tensor * 0.5, tensor) if is_number else tensor


def _differ(one: Trial, other: Trial, limit: Tolerance) -> bool:
    """Whether no output is right for both trials: memory may hold that of an earlier call."""
    twice = attrs.evolve(limit, factor=2 * limit.factor)
    return compare_values(one.expected, other.expected, twice) is not None


def _fastest_us(recordings: CandidateRecordings) -> float:
    """Shortest device time of one call in a few replays: others may use the device as well."""
    windows = [recordings.run() for _ in range(_REPLAYS)]
    return min(window.calls_us / window.calls for window in windows)


def _reference_us(recorder: Recorder, reference: Reference, trial: Trial) -> float | None:
    """Shortest device time of one call of the reference in a few replays."""
    try:
        recordings = ReferenceRecordings(recorder, reference, [trial.inputs], [1])
    except NotRecorded:
        return None
    try:
        recordings.write([trial.inputs])
        return min(recordings.run().calls_us for _ in range(_REPLAYS))
    finally:
        recordings.close()


def _most_frequent(nodes: Sequence[DeviceNode], n_calls: int) -> tuple[DeviceKernel, ...]:
    ordered = sorted(nodes, key=lambda node: -node.launches)
    return tuple(
        DeviceKernel(node.name, node.kind, max(1, node.launches // n_calls)) for node in ordered[:_MAX_KERNELS]
    )


def _is_right(recordings: CandidateRecordings, trial: Trial, limit: Tolerance) -> bool:
    """Whether the last replay gave the output of a trial, which needs computation."""
    actual = recordings.output(trial.expected, 0)
    return compare_values(trial.expected, actual, limit) is None and not trial.needs_no_computation
