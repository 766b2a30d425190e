"""Pauses of the runner's device lease while Triton compiles a candidate's kernels.

Compilation takes a second of a CPU core, does not use the device, and happens in the middle of a call. The runner
reports its begin and its end, and then waits until the judge has the device again.
"""

from __future__ import annotations

import contextlib
import functools
import os
import socket
from collections.abc import Callable
from typing import Any

from kernelrl_judge.protocol.frames import FrameKind, receive, send
from kernelrl_judge.runner.judge_channel import JUDGE_CLOSED

__all__ = ["install"]


def install(stream: socket.socket, may_pause: Callable[[], bool]) -> None:
    """Wrap Triton's compiler in this process permanently. Without a known version of Triton, do nothing.

    Args:
        may_pause: returns whether the current order is not timed.
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
                os._exit(JUDGE_CLOSED)

    JITFunction._do_compile = paused


def _finish_kernels() -> None:
    """Wait until the device has done this process's work: the next user of the device may be timed."""
    import torch

    # Waiting would break a capture, and captured work does not run.
    if torch.cuda.is_initialized() and not torch.cuda.is_current_stream_capturing():
        torch.cuda.synchronize()


def _make_launcher(kernel: Any) -> None:
    """Compile the C module that launches a kernel. The launch then finds it in Triton's cache."""
    from triton.runtime import driver

    # An error is raised again by the launch.
    with contextlib.suppress(Exception):
        driver.active.launcher_cls(kernel.src, kernel.metadata)
