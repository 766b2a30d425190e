"""The zygote: torch and the backend's modules loaded once, forked for every candidate.

Started by exec with an environment that the backend's runner half gives, and with one socket to its judge. It never
sees a task and never touches a GPU, so that every fork can make its own context. For each request it forks a runner
with the descriptors that came along, and answers with a process descriptor by which the judge can kill it.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import itertools
import json
import os
import signal
import socket
import sys
import warnings
from typing import Any

from kernelrl_judge import host_memory, privileges, runner, sandbox
from kernelrl_judge.own_code import own_code
from kernelrl_judge.replay import library as replay

_MAX_REQUEST_BYTES = 4096
_OWN = tuple(
    f"kernelrl_judge.{name}" for name in ("layouts", "operators", "runner_builds", "seeds", "sharing", "windows")
)
"""What a runner imports when it is needed: each fork would do it anew, and prepare patterns of text for it."""
_MANY_FORKS = 8
"""After so many it is worth while to make each of those that follow quicker."""


def main() -> None:
    """Serve fork requests until the judge closes the socket.

    Arguments: descriptor, backend target, mode, scratch directory, environment of the runners (JSON).
    """
    sandbox.die_with_parent()
    host_memory.keep()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    descriptor, target, mode, scratch = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
    environment = json.loads(sys.argv[5])
    judge = socket.socket(fileno=descriptor)
    # Nothing that is imported becomes garbage, and to look for it takes a tenth of the start.
    gc.disable()
    backend = _backend(target)
    import torch

    torch.set_num_threads(int(environment.get("OMP_NUM_THREADS", "1")))
    if mode not in ("gpu", "cpu"):
        # Nothing is timed here, so that settings need not change between calls. Memory that a candidate leaves
        # unwritten holds NaN and not what was there by chance: it cannot pass, and its verdict is the same every time.
        torch.use_deterministic_algorithms(True, warn_only=True)
        torch.utils.deterministic.fill_uninitialized_memory = True
    for module in (*_OWN, *backend.preload(mode)):
        importlib.import_module(module)
    # A library that keeps a sleeping thread of its own is no danger to a fork that never uses it.
    warnings.filterwarnings("ignore", category=DeprecationWarning, message=".*fork.*")
    sandbox.prepare()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    look = own_code()
    library = None
    if mode == "gpu":
        # Candidates cannot see the file: their cache directory is hidden.
        with contextlib.suppress(replay.LibraryUnavailable):
            library = replay.load()
    gc.collect()
    # Pages of objects that the collector does not visit stay shared with the forks.
    gc.freeze()
    gc.enable()
    privileges.close_to_others()
    # A judge that was killed is noticed in either direction.
    with contextlib.suppress(ConnectionError):
        judge.send(b"ready")
    for number in itertools.count():
        if number == _MANY_FORKS and mode == "interpreter":
            # Elsewhere memory is as a user's is: calls are timed there.
            host_memory.in_large_pages()
        try:
            message, descriptors, _, _ = socket.recv_fds(judge, _MAX_REQUEST_BYTES, 5)
        except ConnectionError:
            return
        if not message:
            return
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            judge.close()
            runner.main(descriptors, message, backend, mode, environment, scratch, look, library)
        handle = os.pidfd_open(child)
        with contextlib.suppress(ConnectionError):
            socket.send_fds(judge, [str(child).encode()], [handle])
        for held in (*descriptors, handle):
            os.close(held)


def _backend(target: str) -> Any:
    module, _, attribute = target.partition(":")
    return getattr(importlib.import_module(module), attribute)()


if __name__ == "__main__":
    main()
