"""The runner: one candidate, in a fork of the zygote, killed after it.

It is given the candidate's source, constructor arguments, the reference's state, and the inputs of its calls. It knows
neither the reference nor a seed of the inputs nor an expected output. Candidate code shares this process, so nothing
that leaves it is believed: see `kernelrl_judge.protocol.frames`.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import socket
import sys
import traceback
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from kernelrl_judge.isolation import sandbox
from kernelrl_judge.protocol.failures import NO_DEVICE_MEMORY, Stage, lacks_device_memory
from kernelrl_judge.protocol.frames import Frame, FrameKind
from kernelrl_judge.runner.candidate import Candidate
from kernelrl_judge.runner.dialogue import CandidateFailed, Dialogue, flush
from kernelrl_judge.runner.memory import Inputs, Originals, Outputs

if TYPE_CHECKING:
    from kernelrl_judge.replay.library import Library
    from kernelrl_judge.runner.calls import Calls
    from kernelrl_judge.runner.recorder import CandidateRecorder
    from kernelrl_judge.runner.timed import Windows

_PASSING_ON = (FrameKind.CONSTRUCT, FrameKind.CALL, FrameKind.IMPOSE, FrameKind.STAGE, FrameKind.RECORD)
_STAGES = {FrameKind.LOAD: Stage.LOAD, FrameKind.ATTACH: Stage.CONSTRUCT, FrameKind.CONSTRUCT: Stage.CONSTRUCT}


def main(
    descriptors: Sequence[int],
    request: bytes,
    backend: Any,
    mode: str,
    environment: dict[str, str],
    scratch: str,
    library: Library | None = None,
) -> NoReturn:
    """Serve one candidate and end. Never returns, whatever the candidate does.

    Args:
        library: that replays graphs, where this machine has it.
    """
    code, is_open = 0, False
    try:
        stream, inputs, outputs, log, status = descriptors
        settings = json.loads(request)
        missing = sandbox.enter(
            memory_mib=settings["memory_mib"],
            on_gpu=mode == "gpu",
            cpu_s=settings["cpu_s"],
            scratch=scratch,
            keep={stream, inputs, outputs, log},
            status=status,
            # Work of one that has ended is nobody's. Compilers for a GPU are processes.
            processes=mode != "cpu",
        )
        for signum in (signal.SIGINT, signal.SIGCHLD):
            signal.signal(signum, signal.SIG_DFL)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        sandbox.scrub(scratch, environment)
        connection = socket.socket(fileno=stream)
        if mode == "gpu":
            _make_context()
        path = os.path.join(scratch, "candidate.py")
        dialogue = Dialogue(connection, backend, path, spins=mode == "gpu")
        candidate = Candidate(dialogue, Inputs(inputs), Outputs(outputs), backend, mode, path)
        originals = Originals()
        recorder = None
        if library is not None:
            from kernelrl_judge.runner.recorder import CandidateRecorder

            recorder = CandidateRecorder(candidate, library, originals)
            recorder.load()
        is_open = True
        dialogue.open(missing)
        _serve(candidate, originals, recorder)
    except BaseException as error:
        # The judge sees the closed stream; what happened here is for the log only.
        with contextlib.suppress(BaseException):
            traceback.print_exc()
        code = 70 if is_open or not lacks_device_memory(str(error)) else NO_DEVICE_MEMORY
    finally:
        flush()
        os._exit(code)


def _make_context() -> None:
    """Have the device's context made while others may be timed: it takes long and is no work of a kernel."""
    import torch

    # Where it cannot be made now, the candidate meets the error in the place that has a name for it.
    with contextlib.suppress(RuntimeError), warnings.catch_warnings():
        # It asks a library that finds nothing where a runner lives, and then remembers the driver's answer.
        warnings.simplefilter("ignore")
        torch.zeros(1, device="cuda")
        torch.cuda.synchronize()
        torch.cuda.device_count()


def _calls(candidate: Candidate) -> Calls:
    # A recording does without.
    from kernelrl_judge.runner.calls import Calls

    return Calls(candidate)


def _windows(candidate: Candidate) -> Windows:
    from kernelrl_judge.runner.timed import Windows

    return Windows(candidate)


def _serve(candidate: Candidate, originals: Originals, recorder: CandidateRecorder | None) -> None:
    """Do what the judge orders until it has no more orders, or the candidate has failed."""
    dialogue = candidate.dialogue
    calls, windows = functools.cache(lambda: _calls(candidate)), functools.cache(lambda: _windows(candidate))
    orders: dict[FrameKind, Callable[[Frame], None]] = {
        FrameKind.LOAD: candidate.load,
        FrameKind.ATTACH: candidate.attach,
        FrameKind.CONSTRUCT: candidate.construct,
        FrameKind.CALL: lambda frame: calls().call(frame),
        FrameKind.IMPOSE: lambda frame: windows().impose(frame),
        FrameKind.STAGE: lambda frame: windows().stage(frame),
        FrameKind.WINDOW: lambda frame: windows().window(frame),
        FrameKind.TIME: lambda frame: windows().by_kernelbench(frame),
    }
    if recorder is not None:
        orders[FrameKind.RECORD] = recorder.record
    while True:
        frame = dialogue.next_order(descriptors=2)
        if frame is None or frame.kind not in orders:
            return
        dialogue.order = frame.kind
        if frame.kind in _PASSING_ON:
            # What passes values on is not the candidate's to replace or to watch.
            sys.settrace(None)
            sys.setprofile(None)
            originals.restore()
        order = orders[frame.kind]
        try:
            # What fails outside of the candidate's code fails for what the candidate did, or for want of memory.
            stage = _STAGES.get(frame.kind, Stage.FORWARD)
            dialogue.attempt(stage, lambda order=order, frame=frame: order(frame))
        except CandidateFailed:
            return
