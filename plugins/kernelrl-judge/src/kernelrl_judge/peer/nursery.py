"""The nursery: a fork of the judge with torch loaded, from which zygotes are forked.

A judge makes it as soon as torch is imported, before it reads anything, so that a judge and all its zygotes import
torch once. The nursery has none of the judge's descriptors, an environment without the user's secrets, and never sees
a request. It never touches a GPU either.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import importlib
import json
import os
import random
import select
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Mapping
from typing import Any, NoReturn

import attrs

from kernelrl_judge.isolation import privileges
from kernelrl_judge.isolation.forks import MAX_REASON_BYTES, READY, NotForked, ask, name_process, serve

__all__ = ["Nursery", "Scratch", "Setting", "Zygote", "ZygoteDied", "ZygoteNotStarted", "Zygotes"]

_START_TIMEOUT_S = 120.0
_END_S = 5.0
_SCRATCH_PREFIX = "kernelrl-zygote_"
_SCRATCH_UNLOCKED_S = 60.0
_FROM_JUDGE = ("LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "PYTHONPATH")
_FEW_QUEUES = {"CUDA_DEVICE_MAX_CONNECTIONS": "2"}
"""Queues of a runner to the GPU. To make and to end a context takes the driver 0.2 s with the usual eight and half of
that with two, and it makes one at a time: that would limit how many candidates a GPU is given."""


class ZygoteDied(Exception):
    """The zygote is gone, with a candidate below it."""


class ZygoteNotStarted(Exception):
    """There is no zygote yet: no candidate can be the reason."""


class Scratch:
    """A temporary directory for as long as its process lives: the next one that is made removes those left behind.

    A judge that is killed cannot clean up. Who uses a directory holds a lock on it, which ends with the process.
    """

    def __init__(self) -> None:
        self._sweep()
        self.path = tempfile.mkdtemp(prefix=_SCRATCH_PREFIX)
        self._lock = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def close(self) -> None:
        """Remove the directory."""
        shutil.rmtree(self.path, ignore_errors=True)
        os.close(self._lock)

    @staticmethod
    def _sweep() -> None:
        for path in glob.glob(os.path.join(tempfile.gettempdir(), f"{_SCRATCH_PREFIX}*")):
            with contextlib.suppress(OSError):
                # One that was made just now may not be locked yet.
                if time.time() - os.stat(path).st_mtime < _SCRATCH_UNLOCKED_S:
                    continue
                handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
                try:
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(path, ignore_errors=True)
                finally:
                    os.close(handle)


class Nursery:
    """The nursery of this process, which must have a single thread and must not have touched a GPU."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if os.fork() == 0:
            # Its descriptor is closed below, and another may have its number later.
            ours.detach()
            _be_nursery(theirs)
        theirs.close()
        self._channel = ours

    def zygote(self, order: Mapping[str, Any], channel: socket.socket) -> int:
        """Have a zygote forked; returns a process descriptor for it.

        Args:
            order: arguments of `zygote.main`.
            channel: its end of the socket to this judge.

        Raises:
            ZygoteNotStarted: the nursery has ended, or cannot fork.
        """
        try:
            return ask(self._channel, json.dumps(order).encode(), [channel.fileno()])[1]
        except (OSError, NotForked) as error:
            raise ZygoteNotStarted(f"the nursery forks no zygote: {error}") from None


def _be_nursery(judge: socket.socket) -> NoReturn:
    privileges.die_with_parent()
    name_process("kernelrl_judge.peer.nursery")
    _draw_other_numbers()
    null = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1):
        os.dup2(null, descriptor)
    privileges.close_others({judge.fileno()})
    # For the zygotes; the judge does without.
    from kernelrl_judge.runner import zygote

    def begin(order: bytes, descriptors: list[int]) -> NoReturn:
        zygote.main(socket.socket(fileno=descriptors[0]), **json.loads(order))

    try:
        serve(judge, begin)
    finally:
        os._exit(0)


def _draw_other_numbers() -> None:
    """Begin the generators anew that a fork has in common with its judge: a task may draw its inputs from them."""
    random.seed()
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()


class Zygote:
    """A process with torch and a backend's modules loaded, from which runners are forked. It starts on its own."""

    def __init__(self, nursery: Nursery, target: str, mode: str, environment: Mapping[str, str]) -> None:
        """
        Raises:
            ZygoteNotStarted: there is no process.
        """
        self._target = target
        # It ends with its socket, and all that it has forked ends with it.
        self._nursery = nursery
        self._scratch = Scratch()
        # Nothing of the user's environment: a candidate can read the one of its zygote.
        clean = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
        clean |= {name: os.environ[name] for name in _FROM_JUDGE if name in os.environ}
        # What it is to hide has to be there.
        from kernelrl_core.api.config import cache_directory

        clean["KERNELRL_CACHE_DIR"] = os.path.abspath(cache_directory())
        with contextlib.suppress(OSError):
            os.makedirs(clean["KERNELRL_CACHE_DIR"], exist_ok=True)
        theirs_too = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", **environment}
        order = {
            "target": target,
            "mode": mode,
            "scratch": self._scratch.path,
            "environment": theirs_too,
            "surroundings": {**clean, "HOME": self._scratch.path, "TMPDIR": self._scratch.path, **theirs_too},
        }
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel.settimeout(_START_TIMEOUT_S)
        self._handle, self._ready = -1, False
        with theirs:
            try:
                self._handle = nursery.zygote(order, theirs)
            except ZygoteNotStarted:
                self.close()
                raise

    @property
    def alive(self) -> bool:
        return self._handle >= 0 and not select.select([self._handle], [], [], 0)[0]

    def fork(self, settings: Mapping[str, Any], descriptors: list[int]) -> tuple[int, int]:
        """Process id of a new supervisor, and a process descriptor for it. Waits until the zygote has started.

        Raises:
            ZygoteNotStarted: it has not.
            ZygoteDied: it has ended since.
            NotForked: the machine has no room for a process.
        """
        if not self._ready:
            answer = b""
            with contextlib.suppress(OSError):
                answer = self._channel.recv(4 * MAX_REASON_BYTES)
            self._ready = answer == READY
            if not self._ready:
                self.close()
                reason = answer.decode(errors="replace") or "it ended"
                raise ZygoteNotStarted(f"the zygote for {self._target} did not start: {reason}")
        try:
            return ask(self._channel, json.dumps(settings).encode(), descriptors)
        except OSError:
            raise ZygoteDied("the zygote ended") from None

    def close(self) -> None:
        if self._channel.fileno() < 0:
            return
        self._channel.close()
        if self._handle >= 0:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._handle, signal.SIGKILL)
            select.select([self._handle], [], [], _END_S)
            os.close(self._handle)
            self._handle = -1
        self._scratch.close()


@attrs.frozen
class Setting:
    """How candidates of a backend are executed here."""

    target: str
    """`module:attribute` of the backend's `BackendRunner`."""
    backend: Any
    """That `BackendRunner`."""
    mode: str
    environment: Mapping[str, str]
    """Variables of the environment of its runners."""

    @property
    def device(self) -> str:
        """`cuda` or `cpu`."""
        return "cuda" if self.mode == "gpu" else "cpu"


class Zygotes:
    """The zygotes of a judge, by backend, mode and environment, and the backends."""

    def __init__(self, nursery: Nursery) -> None:
        self._nursery = nursery
        self._backends: dict[str, Any] = {}
        self._zygotes: dict[tuple[str, ...], Zygote] = {}

    def setting(self, target: str, options: Mapping[str, Any], has_gpu: bool) -> Setting:
        """
        Args:
            target: `module:attribute` of the backend's `BackendRunner`.
            options: of the backend.
        """
        if target not in self._backends:
            module, _, attribute = target.partition(":")
            self._backends[target] = getattr(importlib.import_module(module), attribute)()
        backend = self._backends[target]
        mode = backend.mode(options, has_gpu)
        environment = {"OMP_NUM_THREADS": "1", **backend.environment(mode, options)}
        return Setting(target, backend, mode, {**_FEW_QUEUES, **environment} if mode == "gpu" else environment)

    def zygote(self, setting: Setting) -> Zygote:
        """A zygote that lives, or starts; raises like `Zygote`."""
        key = (setting.target, setting.mode, json.dumps(dict(setting.environment), sort_keys=True))
        found = self._zygotes.get(key)
        if found is None or not found.alive:
            if found is not None:
                found.close()
            found = self._zygotes[key] = Zygote(self._nursery, setting.target, setting.mode, setting.environment)
        return found

    def expect(self, target: str, options: Mapping[str, Any]) -> None:
        """Have the zygote for a request start. Errors come with the request."""
        import torch

        with contextlib.suppress(Exception):
            self.zygote(self.setting(target, options, torch.cuda.is_available()))

    def close(self) -> None:
        for found in self._zygotes.values():
            found.close()
