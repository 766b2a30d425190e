"""The judge process: executes references, makes inputs, reads outputs, compares. It never imports a candidate.

    python -m kernelrl_judge.judge.main CHANNEL [confined MEMORY_BYTES [PACKAGE]...]

`CHANNEL` is the number of a descriptor, for requests to the main process (`kernelrl_judge.protocol.requests_to_main`).
A confined judge enters a sandbox (`kernelrl_sandbox.seclusion`) in which these packages are visible.

Started by exec with an environment that holds no secret of the user. It imports torch, enters the sandbox if it is
confined, forks the nursery, and only then reads anything: first its environment, then requests, one at a time, on
standard input; it replies on standard output (`kernelrl_judge.protocol.wire`). The first reply is `ready`, with the
isolation layers that a confined judge lacks. A request with `reference_only` runs the task without the candidate. Any
message during an evaluation cancels it. A message `slow` may precede the reply. A `probe` of the device has the reply
`probed`, the reason of a failure or null; each `within_s` before it gives the time limit of the next message. The
process ends when its standard input does.
"""

from __future__ import annotations

import gc
import io
import os
import signal
import socket
import sys
import tempfile
import traceback
from collections.abc import Sequence
from typing import Any, BinaryIO

from kernelrl_judge.protocol import wire
from kernelrl_sandbox import privileges, seclusion


def main(arguments: Sequence[str]) -> None:
    """Serve requests until standard input ends."""
    channel = socket.socket(fileno=int(arguments[0]))
    channel.set_inheritable(False)
    confined = arguments[1:2] == ["confined"]
    privileges.die_with_parent()
    privileges.close_to_others()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Output of a reference must not end up between the frames.
    requests, replies = os.dup(0), os.dup(1)
    os.dup2(2, 1)
    # A task that reads standard input must not take a request.
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    # Imported objects never become garbage: looking for it takes a tenth of the start, and of each collection later.
    gc.disable()
    import torch  # noqa: F401

    from kernelrl_judge.peer.nursery import Nursery, Zygotes

    gc.freeze()
    on_gpu = bool(os.environ.get("CUDA_VISIBLE_DEVICES"))
    missing = seclusion.seclude(arguments[3:], on_gpu=on_gpu) if confined else []
    zygotes = Zygotes(Nursery())
    if confined:
        missing += seclusion.give_up_namespaces(int(arguments[2]), on_gpu=on_gpu)
    streams = os.fdopen(requests, "rb", buffering=0), os.fdopen(replies, "wb")
    _serve(*streams, channel, zygotes, confined=confined, missing=missing)
    # Libraries that the reference loaded must not delay the end.
    sys.stderr.flush()
    os._exit(0)


def _serve(
    requests: io.RawIOBase,
    replies: BinaryIO,
    channel: socket.socket,
    zygotes: Any,
    *,
    confined: bool,
    missing: Sequence[str],
) -> None:
    environment = wire.read(requests)
    if environment is None:
        return
    os.environ.clear()
    os.environ.update(environment)
    # The directory may be cached from the environment before.
    tempfile.tempdir = None

    def reply(message: dict[str, Any]) -> None:
        replies.write(wire.pack(message))
        replies.flush()

    reply({"ready": True, "missing_layers": [*missing]})
    message = wire.read(requests)
    if message is not None and "request" in message:
        # The zygote starts while this process imports the other modules.
        zygotes.expect(message["runner"], message["request"]["backend_options"])
    from kernelrl_judge.judge.resources import Resources
    from kernelrl_judge.peer.cancellation import Cancelled, CancelWatch
    from kernelrl_judge.peer.main_process import MainProcess

    cancel_watch = CancelWatch(requests.fileno())
    main_process = MainProcess(channel, cancel_watch)
    resources = Resources(zygotes, cancel_watch, main_process, lambda: reply({"slow": True}), confined=confined)
    # Imported before the collector is frozen.
    from kernelrl_judge.judge import evaluate  # noqa: F401

    gc.freeze()
    gc.enable()
    while message is not None:
        if "probe" in message:
            from kernelrl_judge.judge import health

            try:
                failure = health.examine(
                    message["probe"], lambda limit_s: reply({"within_s": limit_s}), resources.leases
                )
            except Cancelled:
                break
            reply({"probed": failure})
        if "request" in message:
            reply(_evaluated(message, resources))
            resources.runners.settle()
        message = wire.read(requests)
    resources.close()


def _evaluated(message: dict[str, Any], resources: Any) -> dict[str, Any]:
    """The reply to a request: an evaluation, or the reason why there is none."""
    from kernelrl_build.service import BuildCrashed
    from kernelrl_core.api.errors import MissingPrerequisite
    from kernelrl_core.api.evaluators import EvaluationRequest, from_json, to_json
    from kernelrl_judge.device.faults import DeviceFault, DeviceFull
    from kernelrl_judge.judge.evaluate import evaluate, run_without_candidate
    from kernelrl_judge.peer.cancellation import Cancelled
    from kernelrl_judge.peer.nursery import ZygoteDied
    from kernelrl_judge.protocol.forks import NotForked
    from kernelrl_judge.task.source import TaskError

    try:
        request = from_json(EvaluationRequest, message["request"])
        if message["reference_only"]:
            run_without_candidate(request, message["runner"], resources)
            return {"reference": True}
        evaluation = evaluate(request, message["runner"], resources, alone=message["alone"])
        return {"evaluation": to_json(evaluation)}
    except TaskError as error:
        return {"task_error": str(error)}
    except MissingPrerequisite as error:
        return {"missing": error.message, "fix": error.fix}
    except DeviceFault as error:
        return {"device_fault": error.message, "full": isinstance(error, DeviceFull)}
    except Cancelled:
        return {"cancelled": True}
    except (ZygoteDied, BuildCrashed, NotForked) as error:
        return {"died": str(error)}
    except Exception as error:
        # An error of this program. A fresh judge, and one without the candidate, show whether the candidate causes it.
        traceback.print_exc()
        return {"died": f"the judge failed: {type(error).__name__}: {error}"}


if __name__ == "__main__":
    main(sys.argv[1:])
