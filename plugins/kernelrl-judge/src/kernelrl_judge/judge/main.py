"""The judge process: executes references, makes inputs, reads outputs, compares. It never imports a candidate.

Started by exec with an environment that holds no secret of the user. It imports torch, forks the nursery, and only then
reads anything: first its environment, then requests, one at a time, on standard input; it replies on standard output
(`kernelrl_judge.protocol.wire`). Any message during an evaluation cancels it. `slow` may precede the
reply. A `probe` of the device has the reply `probed`, the reason why it is unwell or null; each `within_s` before it
says when the next reply is due. It ends when its standard input does.
"""

from __future__ import annotations

import gc
import io
import os
import select
import signal
import sys
import tempfile
import traceback
from typing import Any, BinaryIO

from kernelrl_judge.isolation import privileges
from kernelrl_judge.protocol import wire


def main() -> None:
    """Serve requests until standard input ends."""
    privileges.die_with_parent()
    privileges.close_to_others()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # What a reference prints must not end up between the frames.
    replies = os.dup(1)
    os.dup2(2, 1)
    # Nothing that is imported becomes garbage: to look for it takes a tenth of the start, and of each look later.
    gc.disable()
    import torch  # noqa: F401

    from kernelrl_judge.peer.nursery import Nursery, Zygotes

    gc.freeze()
    zygotes = Zygotes(Nursery())
    _serve(os.fdopen(os.dup(0), "rb", buffering=0), os.fdopen(replies, "wb"), zygotes)
    # Libraries that the reference loaded have nothing to say at the end.
    sys.stderr.flush()
    os._exit(0)


def _serve(requests: io.RawIOBase, replies: BinaryIO, zygotes: Any) -> None:
    surroundings = wire.read(requests)
    if surroundings is None:
        return
    os.environ.clear()
    os.environ.update(surroundings)
    # It may be remembered from before.
    tempfile.tempdir = None

    def answer(message: dict[str, Any]) -> None:
        replies.write(wire.pack(message))
        replies.flush()

    answer({"ready": True})
    message = wire.read(requests)
    if message is not None and "request" in message:
        # The zygote starts while this process imports the rest.
        zygotes.expect(message["runner"], message["request"]["backend_options"])
    from kernelrl_core.api.errors import MissingPrerequisite
    from kernelrl_core.api.evaluators import EvaluationRequest, from_json, to_json
    from kernelrl_judge.build.service import BuildCrashed
    from kernelrl_judge.isolation.forks import NotForked
    from kernelrl_judge.judge.session import Bench, DeviceFault, DeviceFull, Unavailable
    from kernelrl_judge.peer.nursery import ZygoteDied
    from kernelrl_judge.peer.process import Cancelled
    from kernelrl_judge.task.source import TaskError

    gc.freeze()
    gc.enable()

    def cancelled() -> bool:
        return bool(select.select([requests], [], [], 0)[0])

    bench = Bench(zygotes, cancelled, requests.fileno(), lambda: answer({"slow": True}))

    def evaluated(message: dict[str, Any]) -> dict[str, Any]:
        try:
            request = from_json(EvaluationRequest, message["request"])
            return {"evaluation": to_json(bench.evaluate(request, message["runner"]))}
        except TaskError as error:
            return {"task_error": str(error)}
        except Unavailable as error:
            return {"missing": error.args[0], "fix": error.args[1]}
        except MissingPrerequisite as error:
            return {"missing": error.message, "fix": error.fix}
        except DeviceFault as error:
            return {"device_fault": str(error), "full": isinstance(error, DeviceFull)}
        except Cancelled:
            return {"cancelled": True}
        except (ZygoteDied, BuildCrashed, NotForked) as error:
            return {"died": str(error)}
        except Exception as error:
            # A mistake of this program. A fresh judge and a control show whether the candidate alone leads to it.
            traceback.print_exc()
            return {"died": f"the judge failed: {type(error).__name__}: {error}"}

    while message is not None:
        if "probe" in message:
            from kernelrl_judge.judge import health

            answer({"probed": health.examine(message["probe"], lambda limit_s: answer({"within_s": limit_s}))})
        if "request" in message:
            answer(evaluated(message))
        message = wire.read(requests)
    bench.close()


if __name__ == "__main__":
    main()
