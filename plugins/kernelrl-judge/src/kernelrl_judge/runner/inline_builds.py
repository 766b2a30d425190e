"""`load_inline` in a runner: the judge's build service does the work.

The replacement sends a request over the protocol, receives a descriptor of the finished shared object, and loads it.
No compiler runs in this process, and the time of the build is not the candidate's.
"""

from __future__ import annotations

import ctypes
import json
import os
import socket
import sys
import types
from typing import Any, NoReturn

from kernelrl_build import inline, loading
from kernelrl_build.errors import BuildError
from kernelrl_judge.protocol.frames import Frame, FrameKind, receive, send
from kernelrl_judge.runner.denied_tools import deny_tools
from kernelrl_judge.runner.disabling import idle_module, idle_operators
from kernelrl_judge.runner.judge_channel import JUDGE_CLOSED

__all__ = ["install"]

_MOST_DESCRIPTORS = 2
"""Of a shared object and of its binder."""


def install(stream: socket.socket, *, idle: bool = False) -> None:
    """Replace torch's functions in this process permanently.

    Args:
        idle: replace every extension by a module whose functions only copy.
    """
    import torch.utils.cpp_extension as extensions

    if idle:
        idle_operators()
    builds = _InlineBuilds(stream, idle)
    extensions.load_inline = builds.load_inline
    extensions.load = _refuse
    deny_tools("use load_inline")


def _refuse(*_: Any, **__: Any) -> NoReturn:
    raise BuildError("torch.utils.cpp_extension.load is not available to a candidate; use load_inline")


def _failed(name: str, reason: object) -> BuildError:
    return BuildError(f"Error building extension '{name}': {reason}")


class _InlineBuilds:
    """The extensions of a candidate, by the text of the request."""

    def __init__(self, stream: socket.socket, idle: bool) -> None:
        self._stream = stream
        self._idle = idle
        self._built: dict[str, Any] = {}

    def load_inline(
        self,
        name: str,
        cpp_sources: Any,
        cuda_sources: Any = None,
        sycl_sources: Any = None,
        functions: Any = None,
        extra_cflags: Any = None,
        extra_cuda_cflags: Any = None,
        extra_sycl_cflags: Any = None,
        extra_ldflags: Any = None,
        extra_include_paths: Any = None,
        build_directory: Any = None,
        verbose: bool = False,
        with_cuda: bool | None = None,
        with_sycl: bool | None = None,
        is_python_module: bool = True,
        with_pytorch_error_handling: bool = True,
        keep_intermediates: bool = True,
        use_pch: bool = False,
        no_implicit_headers: bool = False,
    ) -> Any:
        """See `torch.utils.cpp_extension.load_inline`."""
        if sycl_sources or with_sycl:
            raise _failed(name, "SYCL sources are not supported")
        data = inline.request(
            name,
            cpp_sources,
            cuda_sources,
            functions,
            extra_cflags,
            extra_cuda_cflags,
            extra_ldflags,
            extra_include_paths,
        )
        request = json.dumps(data)
        if request in self._built:
            # A network often has several equal layers, each with an equal extension.
            return self._built[request]
        frame = self._requested(name, request)
        reply = json.loads(frame.body)
        if "error" in reply:
            raise _failed(name, reply["error"])
        if reply["kind"] == "device_only":
            # There is no function to call. The judge ends this candidate once its module is loaded.
            return types.ModuleType(str(name))
        if self._idle:
            # The extension is not loaded: loading could register operators that can be called by other names.
            self._built[request] = idle_module(str(name))
            sys.modules.setdefault(str(name), self._built[request])
            return self._built[request]
        # The descriptors stay open: the loader identifies a library by its path, and a number must not be used again.
        paths = [f"/proc/self/fd/{descriptor}" for descriptor in frame.descriptors]
        try:
            if not is_python_module:
                # The library registers operators when it is loaded.
                self._built[request] = ctypes.CDLL(paths[0])
                return None
            self._built[request] = loading.load_extension(str(name), paths, reply)
        except (ImportError, OSError) as error:
            missing = loading.missing_symbol(error)
            if not missing:
                raise
            raise _failed(name, missing) from None
        return self._built[request]

    def _requested(self, name: str, request: str) -> Frame:
        """Send a request to the judge; returns the reply with its descriptors."""
        try:
            send(self._stream, FrameKind.BUILD, request.encode())
        except ValueError as error:
            raise _failed(name, error) from None
        frame = receive(self._stream, descriptors=_MOST_DESCRIPTORS)
        if frame is None or frame.kind is not FrameKind.BUILT:
            os._exit(JUDGE_CLOSED)
        return frame
