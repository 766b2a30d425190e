"""The zygote: a process with torch and a backend's modules loaded, which is forked for every candidate.

It is a fork of the nursery, has the environment that the backend's `BackendRunner` requests, and one socket to its
judge. It never sees a task and never uses a GPU, so that every fork can create its own context. For each request it
forks a runner with the descriptors that came along, and replies with a process descriptor for it.
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

import torch

from kernelrl_judge.protocol.forks import MAX_REASON_BYTES, READY, name_process, serve
from kernelrl_judge.replay import library as replay_library
from kernelrl_judge.runner import main as runner
from kernelrl_judge.runner.disabling import poison_memory
from kernelrl_judge.timed_calls import host_memory
from kernelrl_sandbox import privileges, sandbox

_MODULES = ("kernelrl_judge.runner.inline_builds",)
_MODULES_ON_GPU = ("kernelrl_judge.runner.candidate_recorder",)
_MODULES_WITHOUT_GPU = (
    "kernelrl_judge.runner.compared_calls",
    "kernelrl_judge.runner.operators",
    "kernelrl_judge.runner.timed_windows",
)
"""Modules that a runner imports when it needs them. They are loaded here, or each fork would load them again."""
_MANY_FORKS = 8
"""Number of forks after which the preparation for faster forks is worth its time."""


def main(
    judge: socket.socket,
    *,
    target: str,
    mode: str,
    scratch: str,
    locks: str,
    environment: dict[str, str],
    surroundings: dict[str, str],
) -> NoReturn:
    """Be a zygote, until the judge closes the socket.

    Args:
        target: `module:attribute` of the backend's `BackendRunner`.
        scratch: directory for temporary files.
        locks: directory of the lock files of this user.
        environment: variables of the environment of the runners.
        surroundings: the whole environment of this process, which the backend's modules read.
    """
    privileges.die_with_parent()
    name_process("kernelrl_judge.runner.zygote")
    _enter_surroundings(scratch, surroundings)
    if mode != "gpu":
        host_memory.keep()
    try:
        backend = _loaded_backend(target, mode)
    except Exception as error:
        # The installation is broken. The user gets the reason.
        with contextlib.suppress(OSError):
            judge.send(f"{type(error).__name__}: {error}"[:MAX_REASON_BYTES].encode(errors="replace"))
        os._exit(1)
    _configure_torch(mode, threads=int(environment.get("OMP_NUM_THREADS", "1")))
    # Python warns of forks of a process with several threads. Threads of libraries sleep, and no fork uses them.
    warnings.filterwarnings("ignore", category=DeprecationWarning, message=".*fork.*")
    sandbox.prepare(on_gpu=mode == "gpu")
    library = None
    if mode == "gpu":
        # A runner could not load the library: its file is in the cache directory, which is hidden from candidates.
        with contextlib.suppress(replay_library.LibraryUnavailable):
            library = replay_library.load()
    _freeze_objects()
    privileges.close_to_others()
    # If the judge was killed, `serve` notices it.
    with contextlib.suppress(ConnectionError):
        judge.send(READY)
    fork_numbers = itertools.count()

    def begin(request: bytes, descriptors: list[int]) -> NoReturn:
        runner.main(descriptors, request, backend, mode, environment, scratch, locks, library)

    def between_forks() -> None:
        if next(fork_numbers) == _MANY_FORKS and mode == "interpreter":
            # Other modes time calls, with memory as in a user's process.
            host_memory.in_large_pages()

    serve(judge, begin, between_forks)
    os._exit(0)


def _enter_surroundings(scratch: str, surroundings: dict[str, str]) -> None:
    os.environ.clear()
    os.environ.update(surroundings)
    os.chdir(scratch)
    # The cached directory may be from the judge's environment.
    tempfile.tempdir = None


def _loaded_backend(target: str, mode: str) -> Any:
    """The backend's `BackendRunner`, with the modules loaded that its runners need."""
    module, _, attribute = target.partition(":")
    backend = getattr(importlib.import_module(module), attribute)()
    modules_of_backend = backend.preload(mode)
    modules_of_mode = _MODULES_ON_GPU if mode == "gpu" else _MODULES_WITHOUT_GPU
    for name in (*_MODULES, *modules_of_mode, *modules_of_backend):
        importlib.import_module(name)
    return backend


def _configure_torch(mode: str, threads: int) -> None:
    torch.set_num_threads(threads)
    if mode not in ("gpu", "cpu"):
        # The other modes are not timed, so that one setting serves all calls. A candidate that leaves memory unwritten
        # returns NaN instead of random values: it cannot pass by chance, and its outcome is always the same.
        poison_memory()


def _freeze_objects() -> None:
    """Exclude all objects from garbage collection, so that their pages stay shared with the forks."""
    gc.collect()
    gc.freeze()
    gc.enable()
