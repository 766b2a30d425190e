"""The audit process, which forks for each task: a task's code may hang, exhaust memory or end its process.

    python -m kernelrl_judge.task.audit_process [confined MEMORY_BYTES [PACKAGE]...]

It is started by exec (`kernelrl_judge.client.auditor`). It reads requests from standard input and writes its replies to
standard output. Both are lines of JSON. A confined process enters a sandbox (`kernelrl_sandbox.seclusion`) before it
reads anything; its first line is an object with the isolation layers that it lacks.
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
from collections.abc import Sequence
from typing import IO, Any, NoReturn

import torch

from kernelrl_core.api.evaluators import EvaluationSettings, from_json
from kernelrl_judge.task.audit import audit
from kernelrl_sandbox import privileges, seclusion

_MAX_PRINTED_BYTES = 4096
"""Largest part of the fork's output that is read, from its end."""
_MAX_LINE_CHARACTERS = 300


def main(arguments: Sequence[str]) -> None:
    """Serve requests until standard input ends."""
    replies = os.fdopen(os.dup(1), "w")
    # Text that a reference prints must not get between the replies.
    os.dup2(2, 1)
    requests = os.fdopen(os.dup(0), "rb", buffering=0)
    # Pages of objects that the garbage collector does not visit stay shared with the forks.
    gc.freeze()
    if arguments:
        _, memory_bytes, *packages = arguments
        on_gpu = bool(os.environ["CUDA_VISIBLE_DEVICES"])
        missing = seclusion.seclude(packages, on_gpu=on_gpu)
        missing += seclusion.give_up_namespaces(int(memory_bytes), on_gpu=on_gpu)
        # The directory may be cached from outside.
        tempfile.tempdir = None
        replies.write(json.dumps({"missing_layers": missing}) + "\n")
        replies.flush()
    while line := requests.readline():
        replies.write(json.dumps(_audit_in_fork(json.loads(line), requests.fileno())) + "\n")
        replies.flush()


def _audit_in_fork(request: dict[str, Any], watched: int) -> dict[str, Any]:
    """The audit of a fork, or the reason why the fork has none.

    Args:
        watched: descriptor that becomes readable when the requester no longer waits for the audit.
    """
    with tempfile.TemporaryFile() as reply, tempfile.TemporaryFile() as printed:
        child = os.fork()
        if child == 0:
            _reply_and_exit(request, reply.fileno(), printed.fileno())
        handle = os.pidfd_open(child)
        ended = select.select([handle, watched], [], [], request["timeout_s"])[0]
        for kill in (os.kill, os.killpg):
            # The child may have ended already, or not have its own process group yet.
            with contextlib.suppress(ProcessLookupError):
                kill(child, signal.SIGKILL)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        os.close(handle)
        if handle not in ended:
            return {"unaudited": f"not finished within {request['timeout_s']:g} s"}
        reply.seek(0)
        try:
            return dict(json.load(reply))
        except ValueError:
            return {"unaudited": f"its process ended with status {status} {_last_line(printed)}".strip()}


def _last_line(printed: IO[bytes]) -> str:
    """The last line of a file, or its beginning if it is long."""
    size = printed.seek(0, os.SEEK_END)
    printed.seek(max(0, size - _MAX_PRINTED_BYTES))
    lines = printed.read().decode("utf-8", "replace").strip().splitlines()
    return lines[-1][:_MAX_LINE_CHARACTERS] if lines else ""


def _reply_and_exit(request: dict[str, Any], reply: int, printed: int) -> NoReturn:
    """Write the audit of a task in the forked process, which ends afterwards.

    Args:
        reply: descriptor of the file for the audit.
        printed: descriptor of the file for the output of the task's code.
    """
    try:
        os.setpgid(0, 0)
        privileges.die_with_parent()
        for descriptor in (1, 2):
            os.dup2(printed, descriptor)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        # A task must reach neither the requests nor the replies of this process.
        privileges.close_others({reply, printed})
        device = "cuda" if torch.cuda.is_available() else "cpu"
        if device == "cpu":
            _limit_memory(request["memory_bytes"])
        settings = from_json(EvaluationSettings, request["settings"])
        found = audit(request["source"], request["task_id"], settings, device)
        device_name = torch.cuda.get_device_name() if device == "cuda" else "cpu"
        with os.fdopen(reply, "w", closefd=False) as file:
            json.dump({**found, "provenance": {"device": device_name, "torch": torch.__version__}}, file)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    # A normal exit would run handlers of the libraries that the reference loaded.
    os._exit(0)


def _limit_memory(additional_bytes: int) -> None:
    """Limit the address space of this process to its current size and some bytes more."""
    with open("/proc/self/statm") as file:
        current_bytes = int(file.read().split()[0]) * resource.getpagesize()
    limit = current_bytes + additional_bytes
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


if __name__ == "__main__":
    main(sys.argv[1:])
