"""The compiled reference as a baseline: measured where no candidate code ever ran, and kept.

`torch.compile` takes too long to be done for every candidate. What is kept is its share of the eager time, measured
with both interleaved; a candidate's own windows are interleaved with the eager reference and scaled by it, so a clock
that drifts between then and now drops out.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import statistics
from collections.abc import Callable
from pathlib import Path

import torch

from kernelrl_core.api.config import write_atomically
from kernelrl_core.api.evaluators import EvaluationRequest
from kernelrl_judge.peer.device_facts import machine_facts
from kernelrl_judge.peer.replay import NotRecorded, ReferenceSession
from kernelrl_judge.replay.capture import Recorder
from kernelrl_judge.replay.library import Library
from kernelrl_judge.replay.slope import per_call_us
from kernelrl_judge.runner.windows import window
from kernelrl_judge.task.reference import FIRST_TIMED, Reference
from kernelrl_judge.timing.replay import slots_for

__all__ = ["compiled_share"]

_ROUNDS = 15
_WARM_UPS = 3
_CALLS = 10

_Turn = Callable[..., contextlib.AbstractContextManager[None]]


def compiled_share(
    reference: Reference,
    request: EvaluationRequest,
    cache_dir: Path,
    turn: _Turn,
    replay: tuple[Library, Recorder] | None = None,
    eager_us: float = 0.0,
) -> float:
    """Run time of the compiled reference over that of the eager one.

    Args:
        turn: for the device, `alone` or not; nobody else is kept waiting while the reference is compiled.
        replay: what records both sides. None: both are called.
        eager_us: time of one eager call, in microseconds, for recordings.
    """
    machine = sorted(machine_facts(reference.device).items())
    known = [request.task_sha256, request.settings.precision, torch.get_num_threads(), machine, replay is not None]
    key = hashlib.sha256(json.dumps(known, default=str).encode()).hexdigest()
    path = cache_dir / "baselines" / f"{key}.json"
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return float(json.loads(path.read_text())["compiled_share"])
    share = None
    if replay is not None:
        # A compiled reference that does not record is called, and so is the eager one then.
        with contextlib.suppress(NotRecorded):
            share = _recorded(reference, turn, *replay, eager_us)
    if share is None:
        share = _called(reference, turn)
    path.parent.mkdir(parents=True, exist_ok=True)
    entry = {"task": request.task_id, "compiled_share": share, "measured_on": machine}
    write_atomically(path, json.dumps(entry, default=str), mode=0o600, sync=False)
    return share


def _recorded(reference: Reference, turn: _Turn, library: Library, recorder: Recorder, eager_us: float) -> float:
    sessions: list[ReferenceSession] = []
    with contextlib.ExitStack() as stack:
        with turn(alone=False):
            slots = slots_for(reference, eager_us)
            counts = [count for count in (slots.calls, slots.half) if count]
            inputs = reference.many_inputs(FIRST_TIMED, slots.calls)
            for model in (reference.model, torch.compile(reference.model)):
                session = ReferenceSession(library, recorder, reference, inputs, counts, model)
                stack.callback(session.close)
                sessions.append(session)
        shares = []
        with turn(alone=True):
            for index in range(_ROUNDS):
                times: dict[int, float] = {}
                for side in (0, 1) if index % 2 else (1, 0):
                    windows = [sessions[side].run(graph) for graph in range(len(counts))]
                    times[side] = per_call_us(windows[0], windows[1] if len(windows) > 1 else None)
                shares.append(times[1] / max(times[0], 1e-3))
    return statistics.median(shares)


def _called(reference: Reference, turn: _Turn) -> float:
    with turn(alone=False):
        compiled = torch.compile(reference.model)
        staged = reference.many_inputs(FIRST_TIMED, _CALLS)
        for _ in range(_WARM_UPS):
            window(compiled, staged, reference.device)
            window(reference.model, staged, reference.device)
    shares = []
    with turn(alone=True):
        for index in range(_ROUNDS):
            models = (compiled, reference.model) if index % 2 else (reference.model, compiled)
            # A window takes its time without calls, too.
            empty_s = window(reference.model, [], reference.device).calls_s
            times = {id(model): window(model, staged, reference.device).calls_s - empty_s for model in models}
            shares.append(max(times[id(compiled)], 0.0) / max(times[id(reference.model)], 1e-7))
            reference.restore()
    return statistics.median(shares)
