"""The process of audits, which forks for each task: a task's code may hang, take all memory or end its process.

Started by exec (`kernelrl_judge.client.auditor`). Reads requests as lines of JSON from standard input and writes what
it found to each as a line of JSON to standard output.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import resource
import select
import signal
import sys
import tempfile
import traceback
from typing import Any, NoReturn

import torch

from kernelrl_core.api.evaluators import EvaluationSettings, from_json
from kernelrl_judge.isolation import privileges
from kernelrl_judge.task.auditing import audit

_SAID_BYTES = 4096


def main() -> None:
    """Answer requests until there are no more."""
    answers = os.fdopen(os.dup(1), "w")
    # What a reference prints is no answer.
    os.dup2(2, 1)
    requests = os.fdopen(os.dup(0), "rb", buffering=0)
    # Pages of objects that the collector does not visit stay shared with the forks.
    gc.freeze()
    while line := requests.readline():
        answers.write(json.dumps(_apart(json.loads(line), requests.fileno())) + "\n")
        answers.flush()


def _apart(request: dict[str, Any], watch: int) -> dict[str, Any]:
    """What a fork finds out, or why it did not.

    Args:
        watch: descriptor that becomes readable when nobody waits any more.
    """
    with tempfile.TemporaryFile() as answer, tempfile.TemporaryFile() as said:
        child = os.fork()
        if child == 0:
            _answer(request, answer.fileno(), said.fileno())
        handle = os.pidfd_open(child)
        ended = select.select([handle, watch], [], [], request["timeout_s"])[0]
        for end in (os.kill, os.killpg):
            # It may have ended, or not have a group yet.
            with contextlib.suppress(ProcessLookupError):
                end(child, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        os.close(handle)
        if handle not in ended:
            return {"unaudited": f"not finished within {request['timeout_s']:g} s"}
        answer.seek(0)
        try:
            return dict(json.load(answer))
        except ValueError:
            said.seek(max(0, said.seek(0, os.SEEK_END) - _SAID_BYTES))
            last = (said.read().decode("utf-8", "replace").strip().splitlines() or [""])[-1][:300]
            return {"unaudited": f"its process ended with status {status} {last}".strip()}


def _answer(request: dict[str, Any], answer: int, said: int) -> NoReturn:
    """Write what an audit finds, in a process of its own that ends afterwards."""
    try:
        os.setpgid(0, 0)
        privileges.die_with_parent()
        for descriptor in (1, 2):
            os.dup2(said, descriptor)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        if device == "cpu":
            with open("/proc/self/statm") as file:
                held = int(file.read().split()[0]) * resource.getpagesize()
            limit = held + request["memory_bytes"]
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        settings = from_json(EvaluationSettings, request["settings"])
        found = audit(request["source"], request["task_id"], settings, device)
        name = torch.cuda.get_device_name() if device == "cuda" else "cpu"
        with os.fdopen(answer, "w", closefd=False) as file:
            json.dump({**found, "provenance": {"device": name, "torch": torch.__version__}}, file)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    # Libraries that the reference loaded have nothing to say at the end.
    os._exit(0)


if __name__ == "__main__":
    main()
