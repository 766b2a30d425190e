"""Nursery and zygotes, seen from the judge: processes with torch loaded, from which runners are forked.

The nursery is a fork of the judge (`kernelrl_judge.runner.nursery`). A judge makes it as soon as torch is imported,
before it reads anything, so that a judge and all its zygotes import torch once. The nursery has none of the judge's
descriptors, an environment without the user's secrets, and never sees a request. It never uses a GPU.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import importlib
import json
import os
import select
import shutil
import signal
import socket
import tempfile
import time
import traceback
from collections.abc import Mapping
from typing import Any, NoReturn

import attrs

from kernelrl_core.api.evaluators import lock_directory
from kernelrl_judge.protocol.forks import MAX_REASON_BYTES, READY, NotForked, request_fork

__all__ = ["Nursery", "Scratch", "Setting", "Zygote", "ZygoteDied", "ZygoteNotStarted", "Zygotes"]

_NURSERY_PROGRAM = "kernelrl_judge.runner.nursery"
_START_TIMEOUT_S = 120.0
_END_S = 5.0
_SCRATCH_PREFIX = "kernelrl-zygote_"
_SCRATCH_UNLOCKED_S = 60.0
_FROM_JUDGE = ("LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES", "PYTHONPATH")
_FEW_QUEUES = {"CUDA_DEVICE_MAX_CONNECTIONS": "2", "CUDA_DEVICE_MAX_COPY_CONNECTIONS": "1"}
"""Queues of a runner to the GPU, for kernels and for copies. The driver has one lock for all GPUs of a machine, and
holds it longer for each queue of a context that is created or destroyed: 0.2 s in all with the usual eight queues."""


class ZygoteDied(Exception):
    """The zygote ended while it had a candidate."""


class ZygoteNotStarted(Exception):
    """A zygote did not start. No candidate is the reason."""


class Scratch:
    """A temporary directory of one process.

    A judge that is killed cannot remove its directory. So each directory is locked by its process, and making a new
    one removes those without a lock.
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
                # A new directory may not be locked yet.
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
            # The nursery closes this descriptor, and another file may get its number later.
            ours.detach()
            _start_nursery(theirs)
        theirs.close()
        self._channel = ours

    def zygote(self, order: Mapping[str, Any], channel: socket.socket) -> int:
        """Fork a zygote; returns a process descriptor for it.

        Args:
            order: arguments of `kernelrl_judge.runner.zygote.main`.
            channel: its end of the socket to this judge.

        Raises:
            ZygoteNotStarted: the nursery has ended, or cannot fork.
        """
        try:
            return request_fork(self._channel, json.dumps(order).encode(), [channel.fileno()])[1]
        except (OSError, NotForked) as error:
            raise ZygoteNotStarted(f"the nursery forks no zygote: {error}") from None


def _start_nursery(judge: socket.socket) -> NoReturn:
    """Become the nursery, in a fork of the judge. Never returns, also where the nursery cannot be imported."""
    try:
        # Started by name, like a program: the judge imports no code that executes candidates.
        importlib.import_module(_NURSERY_PROGRAM).main(judge)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(1)


class Zygote:
    """A process with torch and a backend's modules loaded, from which runners are forked. It starts on its own.

    Raises:
        ZygoteNotStarted: the nursery cannot fork it.
    """

    def __init__(self, nursery: Nursery, target: str, mode: str, environment: Mapping[str, str]) -> None:
        self._target = target
        # The zygote ends when the nursery does.
        self._nursery = nursery
        self._scratch = Scratch()
        # Nothing of the user's environment: a candidate can read the environment of its zygote.
        clean = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}
        clean |= {name: os.environ[name] for name in _FROM_JUDGE if name in os.environ}
        # The zygote hides the cache directory, which has to exist for that.
        from kernelrl_core.api.config import cache_directory

        clean["KERNELRL_CACHE_DIR"] = os.path.abspath(cache_directory())
        with contextlib.suppress(OSError):
            os.makedirs(clean["KERNELRL_CACHE_DIR"], exist_ok=True)
        for_runners = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", **environment}
        order = {
            "target": target,
            "mode": mode,
            "scratch": self._scratch.path,
            "locks": str(lock_directory()),
            "environment": for_runners,
            "surroundings": {**clean, "HOME": self._scratch.path, "TMPDIR": self._scratch.path, **for_runners},
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
        """Whether the process has started and not ended."""
        return self._handle >= 0 and not select.select([self._handle], [], [], 0)[0]

    def fork(self, settings: Mapping[str, Any], descriptors: list[int]) -> tuple[int, int]:
        """Process id of a new supervisor, and a process descriptor for it. Waits until the zygote has started.

        Raises:
            ZygoteNotStarted: it did not start.
            ZygoteDied: it has ended since its start.
            NotForked: the machine has too little memory, or too many processes.
        """
        if not self._ready:
            message = b""
            with contextlib.suppress(OSError):
                message = self._channel.recv(4 * MAX_REASON_BYTES)
            self._ready = message == READY
            if not self._ready:
                self.close()
                reason = message.decode(errors="replace") or "it ended"
                raise ZygoteNotStarted(f"the zygote for {self._target} did not start: {reason}")
        try:
            return request_fork(self._channel, json.dumps(settings).encode(), descriptors)
        except OSError:
            raise ZygoteDied("the zygote ended") from None

    def close(self) -> None:
        """End the process and all its forks."""
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
    """How this machine executes candidates of a backend."""

    target: str
    """`module:attribute` of the backend's `BackendRunner`."""
    backend: Any
    """That `BackendRunner`."""
    mode: str
    environment: Mapping[str, str]
    """Environment variables of its runners."""

    @property
    def device(self) -> str:
        """`cuda` or `cpu`."""
        return "cuda" if self.mode == "gpu" else "cpu"


class Zygotes:
    """The zygotes of a judge, one for each backend, mode and environment."""

    def __init__(self, nursery: Nursery) -> None:
        self._nursery = nursery
        self._backends: dict[str, Any] = {}
        self._zygotes: dict[tuple[str, ...], Zygote] = {}

    def setting(self, target: str, options: Mapping[str, Any], has_gpu: bool) -> Setting:
        """How candidates of a backend are executed.

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
        """A zygote that is alive or starts.

        Raises:
            ZygoteNotStarted: the nursery cannot fork it.
        """
        key = (setting.target, setting.mode, json.dumps(dict(setting.environment), sort_keys=True))
        found = self._zygotes.get(key)
        if found is None or not found.alive:
            if found is not None:
                found.close()
            found = self._zygotes[key] = Zygote(self._nursery, setting.target, setting.mode, setting.environment)
        return found

    def expect(self, target: str, options: Mapping[str, Any]) -> None:
        """Start the zygote for a request in advance. Errors are raised when the request is evaluated."""
        import torch

        with contextlib.suppress(Exception):
            self.zygote(self.setting(target, options, torch.cuda.is_available()))

    def close(self) -> None:
        """End all zygotes."""
        for found in self._zygotes.values():
            found.close()
