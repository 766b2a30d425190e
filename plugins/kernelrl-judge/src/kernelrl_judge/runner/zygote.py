"""The zygote: torch and the backend's modules loaded once, forked for every candidate.

A fork of the nursery, with an environment of its own that the backend's `BackendRunner` gives, and with one socket to
its judge. It never sees a task and never touches a GPU, so that every fork can make its own context. For each request
it forks a runner with the descriptors that came along, and replies with a process descriptor by which the judge can
kill it.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import itertools
import os
import socket
import tempfile
import warnings
from typing import Any, NoReturn

from kernelrl_judge.isolation import privileges, sandbox
from kernelrl_judge.isolation.forks import MAX_REASON_BYTES, READY, name_process, serve
from kernelrl_judge.replay import library as replay
from kernelrl_judge.runner import main as runner

_MODULES = ("kernelrl_judge.protocol.trees", "kernelrl_judge.protocol.call", "kernelrl_judge.runner.builds")
_MODULES_ON_GPU = ("kernelrl_judge.protocol.device_memory", "kernelrl_judge.runner.recorder")
_MODULES_ELSEWHERE = tuple(f"kernelrl_judge.runner.{name}" for name in ("calls", "operators", "timed", "windows"))
"""What a runner imports when it is needed: each fork would do it anew, and prepare patterns of text for it."""
_MANY_FORKS = 8
"""After so many it is worth while to make each of those that follow quicker."""


def main(
    judge: socket.socket,
    *,
    target: str,
    mode: str,
    scratch: str,
    environment: dict[str, str],
    surroundings: dict[str, str],
) -> NoReturn:
    """Be a zygote, until the judge closes the socket.

    Args:
        target: `module:attribute` of the backend's `BackendRunner`.
        scratch: directory for temporary files.
        environment: variables of the environment of the runners.
        surroundings: the whole environment of this process, from which its modules read what they are to do.
    """
    privileges.die_with_parent()
    name_process("kernelrl_judge.runner.zygote")
    os.environ.clear()
    os.environ.update(surroundings)
    os.chdir(scratch)
    # It may be remembered from another environment.
    tempfile.tempdir = None
    if mode != "gpu":
        from kernelrl_judge.runner import host_memory

        host_memory.keep()
    try:
        backend = _backend(target)
        modules = backend.preload(mode)
        for module in (*_MODULES, *(_MODULES_ON_GPU if mode == "gpu" else _MODULES_ELSEWHERE), *modules):
            importlib.import_module(module)
    except Exception as error:
        # An installation that is broken: the user gets the reason.
        with contextlib.suppress(OSError):
            judge.send(f"{type(error).__name__}: {error}"[:MAX_REASON_BYTES].encode(errors="replace"))
        os._exit(1)
    import torch

    torch.set_num_threads(int(environment.get("OMP_NUM_THREADS", "1")))
    if mode not in ("gpu", "cpu"):
        # Nothing is timed here, so that settings need not change between calls. Memory that a candidate leaves
        # unwritten holds NaN and not what was there by chance: it cannot pass, and its verdict is the same every time.
        torch.set_deterministic_debug_mode("warn")
        torch.utils.deterministic.fill_uninitialized_memory = True
    # A library that keeps a sleeping thread of its own is no danger to a fork that never uses it.
    warnings.filterwarnings("ignore", category=DeprecationWarning, message=".*fork.*")
    sandbox.prepare()
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
        judge.send(READY)
    numbers = itertools.count()

    def between() -> None:
        if next(numbers) == _MANY_FORKS and mode == "interpreter":
            # Elsewhere memory is as a user's is: calls are timed there.
            host_memory.in_large_pages()

    serve(
        judge,
        lambda request, handed: runner.main(handed, request, backend, mode, environment, scratch, library),
        between,
    )
    os._exit(0)


def _backend(target: str) -> Any:
    module, _, attribute = target.partition(":")
    return getattr(importlib.import_module(module), attribute)()
