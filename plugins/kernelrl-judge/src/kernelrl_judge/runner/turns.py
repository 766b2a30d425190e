"""The device belongs to others while Triton compiles a candidate's kernels.

Compiling takes a second of a processor and nothing of the device, and happens in the middle of a call. The runner says
when it begins, and waits at its end until the judge has the device again.
"""

from __future__ import annotations

import contextlib
import functools
import os
import socket
from collections.abc import Callable
from typing import Any

from kernelrl_judge.protocol.frames import FrameKind, receive, send

__all__ = ["install"]


def install(stream: socket.socket, may_pause: Callable[[], bool]) -> None:
    """Wrap Triton's compiler, in this process and for good; without Triton, or with one unlike those known, nothing.

    Args:
        may_pause: whether the judge waits for something that is not timed.
    """
    try:
        from triton.runtime.jit import JITFunction

        compile_kernel = JITFunction._do_compile
    except (ImportError, AttributeError):
        return
    compiling = 0

    @functools.wraps(compile_kernel)
    def paused(*arguments: Any, **named: Any) -> Any:
        nonlocal compiling
        if compiling or not may_pause():
            return compile_kernel(*arguments, **named)
        compiling += 1
        _finish_kernels()
        send(stream, FrameKind.COMPILING)
        try:
            kernel = compile_kernel(*arguments, **named)
            _make_launcher(kernel)
            return kernel
        finally:
            compiling -= 1
            send(stream, FrameKind.COMPILED)
            if receive(stream) is None:
                os._exit(71)

    JITFunction._do_compile = paused


def _finish_kernels() -> None:
    """Wait until this process has nothing left to do on the device, which others may be timed on next."""
    import torch

    # A capture cannot wait, and has nothing running of its own.
    if torch.cuda.is_initialized() and not torch.cuda.is_current_stream_capturing():
        torch.cuda.synchronize()


def _make_launcher(kernel: Any) -> None:
    """Have the C module that launches a kernel compiled now, and not at the launch; the launch finds it on the disk."""
    from triton.runtime import driver

    # What fails here fails there, too.
    with contextlib.suppress(Exception):
        driver.active.launcher_cls(kernel.src, kernel.metadata)
