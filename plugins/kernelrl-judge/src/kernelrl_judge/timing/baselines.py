"""The compiled reference as a baseline: measured in the judge, where no candidate code is executed, and cached.

`torch.compile` takes too long for every candidate. Its share of the eager time is cached, measured with both
interleaved. A candidate's own windows are interleaved with the eager reference and scaled by that share, so a drift of
the clock between the two measurements cancels.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import statistics
from pathlib import Path

import torch

from kernelrl_core.api.config import write_atomically
from kernelrl_core.api.evaluators import EvaluationRequest
from kernelrl_judge.device.facts import machine_facts
from kernelrl_judge.peer.lease import CandidateLease
from kernelrl_judge.peer.recordings import NotRecorded, ReferenceRecordings
from kernelrl_judge.replay.capture import Recorder
from kernelrl_judge.replay.slope import per_call_us
from kernelrl_judge.task.input_indices import FIRST_TIMED
from kernelrl_judge.task.reference import Reference
from kernelrl_judge.timed_calls.window import call_window
from kernelrl_judge.timing.replay_measurement import slots_for

__all__ = ["compiled_share"]

_ROUNDS = 15
_WARM_UPS = 3
_CALLS = 10


def compiled_share(
    reference: Reference,
    request: EvaluationRequest,
    cache_dir: Path,
    lease: CandidateLease,
    recorder: Recorder | None = None,
    eager_us: float = 0.0,
) -> float:
    """Run time of the compiled reference divided by that of the eager one.

    Args:
        lease: held exclusively for the windows alone; compilation keeps no timed work of others waiting.
        recorder: records both sides. None: both are called directly.
        eager_us: time of one eager call, in microseconds, for recordings.
    """
    machine = sorted(machine_facts(reference.device).items())
    known = [request.task_sha256, request.settings.precision, torch.get_num_threads(), machine, recorder is not None]
    key = hashlib.sha256(json.dumps(known, default=str).encode()).hexdigest()
    path = cache_dir / "baselines" / f"{key}.json"
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return float(json.loads(path.read_text())["compiled_share"])
    share = None
    if recorder is not None:
        # Where the compiled reference cannot be recorded, both are called directly.
        with contextlib.suppress(NotRecorded):
            share = _share_of_replays(reference, lease, recorder, eager_us)
    if share is None:
        share = _share_of_calls(reference, lease)
    path.parent.mkdir(parents=True, exist_ok=True)
    entry = {"task": request.task_id, "compiled_share": share, "measured_on": machine}
    write_atomically(path, json.dumps(entry, default=str), mode=0o600, sync=False)
    return share


def _share_of_replays(reference: Reference, lease: CandidateLease, recorder: Recorder, eager_us: float) -> float:
    sides: list[ReferenceRecordings] = []
    with contextlib.ExitStack() as stack:
        with lease.held(alone=False):
            slots = slots_for(reference, eager_us)
            counts = [count for count in (slots.calls, slots.half) if count]
            inputs = reference.many_inputs(FIRST_TIMED, slots.calls)
            for model in (reference.model, torch.compile(reference.model)):
                recordings = ReferenceRecordings(recorder, reference, inputs, counts, model)
                stack.callback(recordings.close)
                sides.append(recordings)
        shares = []
        with lease.held(alone=True):
            for index in range(_ROUNDS):
                times: dict[int, float] = {}
                for side in (0, 1) if index % 2 else (1, 0):
                    windows = [sides[side].run(graph) for graph in range(len(counts))]
                    times[side] = per_call_us(windows[0], windows[1] if len(windows) > 1 else None)
                shares.append(times[1] / max(times[0], 1e-3))
    return statistics.median(shares)


def _share_of_calls(reference: Reference, lease: CandidateLease) -> float:
    with lease.held(alone=False):
        compiled = torch.compile(reference.model)
        staged = reference.many_inputs(FIRST_TIMED, _CALLS)
        for _ in range(_WARM_UPS):
            call_window(compiled, staged, reference.device)
            call_window(reference.model, staged, reference.device)
    shares = []
    with lease.held(alone=True):
        for index in range(_ROUNDS):
            models = (compiled, reference.model) if index % 2 else (reference.model, compiled)
            # A window without calls takes some time as well.
            empty_s = call_window(reference.model, [], reference.device).calls_s
            times = {id(model): call_window(model, staged, reference.device).calls_s - empty_s for model in models}
            shares.append(max(times[id(compiled)], 0.0) / max(times[id(reference.model)], 1e-7))
            reference.restore()
    return statistics.median(shares)
