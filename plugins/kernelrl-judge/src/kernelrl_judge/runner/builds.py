"""`load_inline` as a candidate finds it: the judge's build service does the work.

The replacement asks over the protocol, gets a descriptor of the finished shared object, and loads it. What the
ordinary function would have compiled in this process, and how long that takes, is no concern of the candidate.
"""

from __future__ import annotations

import ctypes
import importlib.machinery
import importlib.util
import json
import os
import re
import socket
import sys
import types
from collections.abc import Sequence
from typing import Any, NoReturn

from kernelrl_judge.protocol.frames import FrameKind, receive, send
from kernelrl_judge.runner.disabling import idle_module

__all__ = ["BuildError", "ToolDenied", "install", "refuse_tools"]

_BINDER = "kernelrl_binder"
_TOOLS = {"ninja", "nvcc", "hipcc", "g++", "c++", "clang++"}
_WORD = re.compile(r"[\w./+-]+")
_MISSING = re.compile(r"undefined symbol: (\S+)")
_STARTS = {"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn"}


class BuildError(RuntimeError):
    """An extension does not build; the text is what the compiler says."""


class ToolDenied(BaseException):
    """A candidate starts a compiler or a build tool by itself. Torch asks for them in ways that would hide an ordinary
    exception."""


def install(stream: socket.socket, *, idle: bool = False) -> None:
    """Put the replacement in the place of torch's function, in this process and for good.

    Args:
        idle: let the functions of every extension do nothing.
    """
    import torch.utils.cpp_extension as extensions

    builds = _Builds(stream, idle)
    extensions.load_inline = builds.load_inline
    extensions.load = _refuse
    refuse_tools("use load_inline")


def refuse_tools(instead: str) -> None:
    """Deny compilers and build tools to this process, for good.

    It is not what keeps a candidate from them: it says plainly what is wrong with trying.

    Args:
        instead: what the error tells the candidate to do.
    """

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in _STARTS:
            # Program and arguments; what follows are a directory and an environment.
            words = {word for part in arguments[:2] for word in _WORD.findall(str(part)) if word[0] != "-"}
            for tool in sorted({os.path.basename(word) for word in words} & _TOOLS):
                raise ToolDenied(f"denied: running {tool} is not allowed to a candidate; {instead}")

    sys.addaudithook(hook)


def _refuse(*_: Any, **__: Any) -> NoReturn:
    raise BuildError("torch.utils.cpp_extension.load is not available to a candidate; use load_inline")


class _Builds:
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
            raise BuildError(f"Error building extension '{name}': SYCL sources are not supported")
        if isinstance(functions, str):
            functions = [functions]
        if functions is not None and not isinstance(functions, list | tuple | dict):
            raise ValueError(f"Expected 'functions' to be a list or dict, but was {type(functions)}")
        bound = functions.items() if isinstance(functions, dict) else [(item, item) for item in functions or ()]
        asked = {
            "name": str(name),
            "cpp_sources": _texts(cpp_sources),
            "device_sources": _texts(cuda_sources),
            "functions": [[str(key), str(text)] for key, text in bound],
            "cflags": _texts(extra_cflags),
            "device_flags": _texts(extra_cuda_cflags),
            "ldflags": _texts(extra_ldflags),
            "include_paths": _texts(extra_include_paths),
        }
        order = json.dumps(asked)
        if order in self._built:
            # One extension per layer of a network, all equal, is common.
            return self._built[order]
        try:
            send(self._stream, FrameKind.BUILD, order.encode())
        except ValueError as error:
            raise BuildError(f"Error building extension '{name}': {error}") from None
        frame = receive(self._stream, descriptors=2)
        if frame is None or frame.kind is not FrameKind.BUILT:
            os._exit(71)
        answer = json.loads(frame.body)
        if "error" in answer:
            raise BuildError(f"Error building extension '{name}': {answer['error']}")
        if answer["kind"] == "device_only":
            # There is nothing to call; the judge ends this candidate once its module is loaded.
            return types.ModuleType(str(name))
        if self._idle:
            # It is not even loaded: what it would register with torch could be called by another name.
            self._built[order] = idle_module(str(name))
            sys.modules.setdefault(str(name), self._built[order])
            return self._built[order]
        try:
            if not is_python_module:
                # It registers operators when it is loaded.
                self._built[order] = ctypes.CDLL(f"/proc/self/fd/{frame.descriptors[0]}")
                return None
            self._built[order] = _load(str(name), frame.descriptors, answer)
            known = sys.modules.get(str(name))
            # One that is named like a module of somebody else does not take its place.
            if known is None or any(known is other for other in self._built.values()):
                sys.modules[str(name)] = self._built[order]
        except (ImportError, OSError) as error:
            missing = _MISSING.search(str(error))
            if missing is None:
                raise
            said = f"{_function(missing[1])} is declared, and neither a source nor a linked library defines it"
            raise BuildError(f"Error building extension '{name}': {said}") from None
        return self._built[order]


def _function(symbol: str) -> str:
    """The name in a symbol of C++, without what it takes; the symbol itself where that is not read so easily."""
    rest = symbol.removeprefix("_Z").removeprefix("N")
    names = []
    while length := re.match(r"\d+", rest):
        end = length.end() + int(length[0])
        names.append(rest[length.end() : end])
        rest = rest[end:]
    return "::".join(names) or symbol


def _texts(value: Any) -> list[str]:
    if value is None:
        return []
    return [value] if isinstance(value, str) else [str(item) for item in value]


def _load(name: str, descriptors: Sequence[int], answer: dict[str, Any]) -> Any:
    # They stay open: the loader knows a library by its path, and the next one must get another.
    path, *binders = (f"/proc/self/fd/{descriptor}" for descriptor in descriptors)
    if answer["kind"] == "bound":
        module = types.ModuleType(name)
        module.__dict__.update(_binder(binders[0]).bind(path, json.dumps(answer["bindings"])))
        return module
    return _import(answer["module_name"], path)


def _binder(path: str) -> Any:
    if _BINDER not in sys.modules:
        sys.modules[_BINDER] = _import(_BINDER, path)
    return sys.modules[_BINDER]


def _import(name: str, path: str) -> Any:
    loader = importlib.machinery.ExtensionFileLoader(name, path)
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module
