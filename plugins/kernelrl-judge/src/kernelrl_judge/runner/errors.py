"""What a runner says of an exception of its candidate."""

from __future__ import annotations

import contextlib
import linecache
import sys
import traceback
from typing import Any

from kernelrl_judge.protocol.out_of_memory import lacks_memory

__all__ = ["described"]

_MAX_CHARACTERS = 32_000


def described(error: BaseException, backend: Any, path: str) -> tuple[str, str, str]:
    """Kind, class name and text of an exception; survives classes that misbehave when they are described."""
    kind = "error"
    with contextlib.suppress(BaseException):
        kind = "compile" if _is_build_error(error) else str(backend.classify(error))
    name = str(type.__getattribute__(type(error), "__name__"))[:200]
    frames = ""
    with contextlib.suppress(BaseException):
        linecache.checkcache()
        shown = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == path]
        frames = "".join(f"  line {frame.lineno}, in {frame.name}: {frame.line}\n" for frame in shown[-8:])
    text = ""
    with contextlib.suppress(BaseException):
        text = str(error)
        if isinstance(error, SyntaxError) and error.lineno:
            text = f"{error.msg} (line {error.lineno})"
    if type(text) is not str:
        text = ""
    if kind != "compile" and (isinstance(error, MemoryError) or lacks_memory(text)):
        kind = "memory"
        if "nvmlInit" in text:
            text = "CUDA out of memory"
    cause = error.__cause__
    with contextlib.suppress(BaseException):
        if cause is not None and str(cause) not in text:
            text = f"{text}\ncaused by {type(cause).__name__}: {cause}"
    whole = f"{frames}{name}: {text}"
    if len(whole) > _MAX_CHARACTERS:
        half = _MAX_CHARACTERS // 2
        whole = f"{whole[:half]}\n… {len(whole) - 2 * half} characters left out …\n{whole[-half:]}"
    return kind, name, whole


def _is_build_error(error: BaseException) -> bool:
    builds = sys.modules.get("kernelrl_judge.runner.builds")
    return builds is not None and isinstance(error, builds.BuildError | builds.ToolDenied)
