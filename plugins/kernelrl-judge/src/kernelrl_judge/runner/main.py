"""The runner: executes one candidate in a fork of the zygote, and is killed after it.

It receives the candidate's source, constructor arguments, the state of the reference, and the inputs of its calls. It
knows neither the reference nor a seed of the inputs nor an expected output. Candidate code shares this process, so the
judge believes none of its messages: see `kernelrl_judge.protocol.frames`.
"""

from __future__ import annotations

import contextlib
import faulthandler
import functools
import json
import os
import signal
import socket
import sys
import traceback
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from kernelrl_core.api.evaluators import Turn
from kernelrl_judge.protocol.failures import NO_DEVICE_MEMORY, Phase, lacks_device_memory
from kernelrl_judge.protocol.frames import Frame, FrameKind
from kernelrl_judge.runner.candidate import Candidate
from kernelrl_judge.runner.judge_channel import FailureReported, JudgeChannel, flush
from kernelrl_judge.runner.shared_memory import SharedInputs, SharedOutputs
from kernelrl_judge.runner.torch_originals import TorchOriginals
from kernelrl_sandbox import privileges, sandbox

if TYPE_CHECKING:
    from kernelrl_judge.replay.library import Library
    from kernelrl_judge.runner.candidate_recorder import CandidateRecorder
    from kernelrl_judge.runner.compared_calls import ComparedCalls
    from kernelrl_judge.runner.timed_windows import TimedWindows

_CONTEXTS_AT_A_TIME = 4
"""Contexts that are created at a time on this machine. The driver creates no more per second if more wait for its lock;
these would only delay the calls of candidates, which need it as well."""
_PATIENCE_S = 15.0
"""Longest wait for a turn to create a context."""
_FAILED = 70
"""Exit code of a runner that failed by itself."""
_COPYING_ORDERS = (FrameKind.CONSTRUCT, FrameKind.CALL, FrameKind.IMPOSE, FrameKind.STAGE, FrameKind.RECORD)
"""Orders that copy values between the judge and the candidate."""
_Handler = Callable[[Frame], None]


def main(
    descriptors: Sequence[int],
    request: bytes,
    backend: Any,
    mode: str,
    environment: dict[str, str],
    scratch: str,
    locks: str,
    library: Library | None = None,
) -> NoReturn:
    """Serve one candidate and exit. Never returns, whatever the candidate does.

    Args:
        descriptors: of the stream to the judge, the files of inputs and of outputs, the log, and the status for the
            supervisor.
        request: settings of the sandbox as JSON.
        locks: directory of the lock files of this user.
        library: that replays graphs, if this machine has it.
    """
    code = 0
    is_open = False
    try:
        stream, inputs, outputs, log, status = descriptors
        kept = {stream, inputs, outputs, log}
        turn = None
        if mode == "gpu":
            privileges.die_with_parent()
            turn = Turn(Path(locks), "contexts", _CONTEXTS_AT_A_TIME, _PATIENCE_S)
            if turn.descriptor is not None:
                kept.add(turn.descriptor)
        missing_layers = _enter_sandbox(kept, status, request, mode, scratch)
        _redirect_standard_files(log)
        sandbox.scrub(scratch, environment)
        connection = socket.socket(fileno=stream)
        if turn is not None:
            _make_context()
            turn.end()
        path = os.path.join(scratch, "candidate.py")
        channel = JudgeChannel(connection, backend, path, spins=mode == "gpu")
        candidate = Candidate(channel, SharedInputs(inputs), SharedOutputs(outputs), backend, mode, path)
        originals = TorchOriginals()
        recorder = _loaded_recorder(candidate, library, originals) if library is not None else None
        is_open = True
        channel.open(missing_layers)
        _serve(candidate, originals, recorder)
    except BaseException as error:
        # The judge sees the closed stream. The error is for the log only.
        with contextlib.suppress(BaseException):
            traceback.print_exc()
        code = NO_DEVICE_MEMORY if not is_open and lacks_device_memory(str(error)) else _FAILED
    finally:
        flush()
        os._exit(code)


def _enter_sandbox(kept: set[int], status: int, request: bytes, mode: str, scratch: str) -> list[str]:
    """Enter the sandbox; returns in a new process with the missing layers.

    Args:
        kept: descriptors that stay open.
        status: descriptor of the supervisor.
    """
    settings = json.loads(request)
    missing_layers = sandbox.enter(
        memory_mib=settings["memory_mib"],
        on_gpu=mode == "gpu",
        cpu_s=settings["cpu_s"],
        scratch=scratch,
        keep=kept,
        status=status,
        # In timed calls on the CPU, the CPU time of processes that have ended would not be counted. Compilers for a
        # GPU are processes.
        processes=mode != "cpu",
    )
    for number in (signal.SIGINT, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    return missing_layers


def _redirect_standard_files(log: int) -> None:
    """Have prints, errors and faults written to the log, and nothing read from standard input."""
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    # The line in which a fault ends this process.
    faulthandler.enable(file=2, all_threads=False)


def _make_context() -> None:
    """Create the device's context now, without a device lease: it takes long and does not disturb timing."""
    # If that fails, the candidate gets the error in the phase that reports it.
    with contextlib.suppress(RuntimeError), warnings.catch_warnings():
        # torch queries NVML, which finds no device in the sandbox, and then caches the driver's result.
        warnings.simplefilter("ignore")
        torch.zeros(1, device="cuda")
        torch.cuda.synchronize()
        torch.cuda.device_count()


def _loaded_recorder(candidate: Candidate, library: Library, originals: TorchOriginals) -> CandidateRecorder:
    from kernelrl_judge.runner.candidate_recorder import CandidateRecorder

    recorder = CandidateRecorder(candidate, library, originals)
    recorder.load()
    return recorder


def _serve(candidate: Candidate, originals: TorchOriginals, recorder: CandidateRecorder | None) -> None:
    """Execute the judge's orders until there are no more, or the candidate has failed."""
    channel = candidate.channel
    handlers = _handlers(candidate, recorder)
    while True:
        frame = channel.next_order(descriptors=2)
        if frame is None or frame.kind not in handlers:
            return
        channel.order = frame.kind
        if frame.kind in _COPYING_ORDERS:
            # The candidate must neither replace the functions that copy values nor trace their calls.
            sys.settrace(None)
            sys.setprofile(None)
            originals.restore()
        # An error outside of the candidate's code is a result of the candidate's actions, or of a lack of memory.
        phase = Phase.LOAD if frame.kind is FrameKind.LOAD else Phase.OUTSIDE
        try:
            channel.attempt(phase, functools.partial(handlers[frame.kind], frame))
        except FailureReported:
            return


def _handlers(candidate: Candidate, recorder: CandidateRecorder | None) -> Mapping[FrameKind, _Handler]:
    # Made when they are needed: a candidate that is recorded needs neither.
    @functools.cache
    def calls() -> ComparedCalls:
        from kernelrl_judge.runner.compared_calls import ComparedCalls

        return ComparedCalls(candidate)

    @functools.cache
    def windows() -> TimedWindows:
        from kernelrl_judge.runner.timed_windows import TimedWindows

        return TimedWindows(candidate)

    handlers: dict[FrameKind, _Handler] = {
        FrameKind.LOAD: candidate.load,
        FrameKind.ATTACH: candidate.attach,
        FrameKind.CONSTRUCT: candidate.construct,
        FrameKind.CALL: lambda frame: calls().call(frame),
        FrameKind.IMPOSE: lambda frame: windows().impose(frame),
        FrameKind.STAGE: lambda frame: windows().stage(frame),
        FrameKind.WINDOW: lambda frame: windows().window(frame),
        FrameKind.TIME: lambda frame: windows().time_as_kernelbench(frame),
    }
    if recorder is not None:
        handlers[FrameKind.RECORD] = recorder.record
    return handlers
