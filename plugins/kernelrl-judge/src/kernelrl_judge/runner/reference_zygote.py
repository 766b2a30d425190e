"""A process with torch loaded that forks a sandbox for each batch of references (`reference_calls`).

It is started by exec (`kernelrl_judge.behaviour.runner`). It executes no reference. Requests on standard input are
lines of JSON, with a time limit. A reply on standard output is the length in 8 bytes, and the lines of the batch: first
the missing layers of the sandbox, then the results in order, then how it ended.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import struct
import sys
import time
import traceback
import warnings
from typing import Any, NoReturn

import torch

from kernelrl_judge.runner import reference_calls
from kernelrl_judge.timed_calls import host_memory
from kernelrl_sandbox import privileges, sandbox

_MAX_REPLY_BYTES = 256 << 20
_MEMORY_MIB = 2048


def main(scratch: str) -> None:
    """Serve requests until standard input ends."""
    warnings.filterwarnings("ignore", category=DeprecationWarning, message=".*fork.*")
    torch.set_num_threads(1)
    _warm_up()
    sandbox.prepare(on_gpu=False)
    gc.collect()
    gc.freeze()
    host_memory.in_large_pages()
    privileges.close_to_others()
    requests, replies = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1):
        os.dup2(null, descriptor)
    while line := requests.readline():
        reply = _batch(json.loads(line), scratch)
        try:
            replies.write(struct.pack("<Q", len(reply)) + reply)
            replies.flush()
        except BrokenPipeError:
            # The process that waits for the reply has ended.
            os._exit(0)


def _warm_up() -> None:
    """Load what a first call loads, once for all forks."""
    with torch.no_grad():
        torch.nn.Conv2d(3, 4, 3)(torch.randn(1, 3, 8, 8)).softmax(1)
        torch.nn.functional.scaled_dot_product_attention(*torch.randn(3, 1, 2, 4, 8))
        torch.einsum("ij,jk->ik", torch.randn(4, 4), torch.randn(4, 4))


def _batch(request: dict[str, Any], scratch: str) -> bytes:
    results, writing = os.pipe()
    ended, status = os.pipe()
    supervisor = os.fork()
    if supervisor == 0:
        _serve_in_sandbox(request, writing, status, scratch)
    os.close(writing)
    os.close(status)
    handle = os.pidfd_open(supervisor)
    content = bytearray()
    deadline = time.monotonic() + float(request["batch_limit_s"])
    while len(content) < _MAX_REPLY_BYTES:
        left_s = deadline - time.monotonic()
        if left_s <= 0 or not select.select([results], [], [], left_s)[0]:
            break
        part = os.read(results, 1 << 20)
        if not part:
            break
        content += part
    with contextlib.suppress(ProcessLookupError):
        os.kill(supervisor, signal.SIGTERM)
    if not select.select([handle], [], [], 10.0)[0]:
        os.kill(supervisor, signal.SIGKILL)
    os.waitpid(supervisor, 0)
    for descriptor in (handle, results, ended):
        os.close(descriptor)
    return bytes(content)


def _serve_in_sandbox(request: dict[str, Any], writing: int, status: int, scratch: str) -> NoReturn:
    """Become the supervisor of a process in the sandbox, which serves the batch."""
    try:
        missing = sandbox.enter(
            memory_mib=_MEMORY_MIB,
            on_gpu=False,
            cpu_s=int(request["batch_limit_s"]) + 60,
            scratch=scratch,
            keep={writing},
            status=status,
        )
        sandbox.scrub(scratch, {"OMP_NUM_THREADS": "1"})
        os.write(writing, json.dumps(missing).encode() + b"\n")
        reference_calls.serve(request, writing)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1])
