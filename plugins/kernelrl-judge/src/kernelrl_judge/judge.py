"""The judge process: executes references, makes inputs, reads outputs, compares. It never imports a candidate.

Started by exec; takes one request at a time on standard input and answers on standard output (`kernelrl_judge.wire`).
Any message that comes while an evaluation is under way cancels it. `slow` may precede the answer. A `probe` of the
device is answered by `probed`, the reason why it is unwell or null; each `within_s` before it says when the next answer
is due. It ends when its standard input does.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import sys
import traceback
from typing import Any

from kernelrl_judge import privileges, processors, sandbox, wire


def main() -> None:
    """Serve requests until standard input ends."""
    sandbox.die_with_parent()
    processors.spare()
    privileges.close_to_others()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # What a reference prints must not end up between the frames.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    requests = os.fdopen(os.dup(0), "rb", buffering=0)
    # Nothing that is imported becomes garbage: to look for it takes a tenth of the start, and of each look later.
    gc.disable()
    from kernelrl_core.api.evaluators import EvaluationRequest, from_json, to_json
    from kernelrl_judge import health
    from kernelrl_judge.bench import Bench, DeviceFault, Unavailable
    from kernelrl_judge.building.service import BuildCrashed
    from kernelrl_judge.running import Cancelled, ZygoteDied
    from kernelrl_judge.task_code import TaskError

    gc.freeze()
    gc.enable()

    def cancelled() -> bool:
        return bool(select.select([requests], [], [], 0)[0])

    def answer(message: dict[str, Any]) -> None:
        answers.write(wire.pack(message))
        answers.flush()

    bench = Bench(cancelled, requests.fileno(), lambda: answer({"slow": True}))
    answer({"ready": True})
    while True:
        message = wire.read(requests)
        if message is None:
            break
        if "probe" in message:
            answer({"probed": health.examine(message["probe"], lambda limit_s: answer({"within_s": limit_s}))})
        if "request" not in message:
            continue
        request = from_json(EvaluationRequest, message["request"])
        try:
            answer({"evaluation": to_json(bench.evaluate(request, message["runner"]))})
        except TaskError as error:
            answer({"task_error": str(error)})
        except Unavailable as error:
            answer({"missing": error.args[0], "fix": error.args[1]})
        except DeviceFault as error:
            answer({"device_fault": str(error)})
        except ZygoteDied as error:
            answer({"died": str(error)})
        except Cancelled:
            answer({"cancelled": True})
        except BuildCrashed as error:
            answer({"trouble": str(error)})
        except Exception as error:
            # Our own mistake, whatever the candidate did: never held against it.
            traceback.print_exc()
            answer({"trouble": f"{type(error).__name__}: {error}"})
    bench.close()
    # Libraries that the reference loaded have nothing to say at the end.
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
