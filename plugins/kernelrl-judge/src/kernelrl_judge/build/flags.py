"""Flags of a request: those of each unit, and what those of the device compiler mean for host code."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kernelrl_judge.build.diagnosis import NotCertain
from kernelrl_judge.build.prepare import Prepared
from kernelrl_judge.build.request import InlineRequest
from kernelrl_judge.build.screening import PASSING
from kernelrl_judge.build.units import only_declares

__all__ = ["HostFlags", "definitions_for_host", "device_host_flags", "main_flags"]

_HOST_LEVEL = "-O1"
_LEVELS = re.compile(r"-O[0-3]|-g\d?|-w|-W(?!l,|a,|p,)[\w=+-]*|-pipe")
_USUAL_FLAGS = ("-march=native", "-fopenmp", "-ffast-math")

HostFlags = tuple[tuple[str, ...], tuple[str, ...]]
"""Flags of a unit for the processor: those for which there is, or will be, a precompiled header, and the others."""


def main_flags(request: InlineRequest, cpp_sources: Sequence[str]) -> HostFlags:
    """Flags of the unit of the C++ sources."""
    code = [word for word in request.cflags if not re.match(r"-[fmOgwW]", word)]
    if request.device_sources and not code and only_declares(cpp_sources):
        # Flags for the making of code, and no code that they could be for.
        return device_host_flags(request)
    return _flags_of_sources(request)


def device_host_flags(request: InlineRequest) -> HostFlags:
    """Flags of the host code in device sources, which those of the C++ sources are not for."""
    if request.language == "cpp":
        return _flags_of_sources(request)[0], ()
    return (_HOST_LEVEL,), ()


def definitions_for_host(request: InlineRequest, prepared: Prepared) -> str:
    """What the flags of the device compiler define, as source for the host code that it would compile too.

    Raises:
        NotCertain: they do more than to define.
    """
    lines = []
    given = request.device_flags
    for before, word in zip(["", *given], given, strict=False):
        option, _, value = word.partition("=")
        passed = word if before in PASSING else value if option in PASSING else ""
        if any(not _LEVELS.fullmatch(part) and part != "-fPIC" for part in passed.strip("'\"").split(",") if part):
            raise NotCertain(f"{passed} is for the compiler behind the device compiler")
        if "default-stream" in word or (option in ("-std", "--std") and value != prepared.toolchain.standard):
            raise NotCertain(f"{word} changes the host code too")
        if re.match(r"--?(?:rdc|relocatable|dc\b|dlto|lto|ltoir)", word):
            raise NotCertain(f"{word} leaves device code to be linked")
        if match := re.fullmatch(r"-([DU])(\w+)(?:=(.*))?", word):
            kind, name, text = match.groups()
            if name.encode() in prepared.known_names():
                raise NotCertain(f"{word} may change torch's headers")
            lines.append(f"#define {name} {'1' if text is None else text}" if kind == "D" else f"#undef {name}")
    return "".join(f"{line}\n" for line in lines)


def _flags_of_sources(request: InlineRequest) -> HostFlags:
    """Flags of the C++ sources.

    A header per combination would fill the disk: common ones have one; others, which may be more than such a header
    bears, stand behind those, and the compiler reads the headers again where it has to.
    """
    level = "-O3" if request.language == "cpp" else _HOST_LEVEL
    given = request.cflags
    meaning = [word for word in given if not _LEVELS.fullmatch(word)]
    others = () if all(word in _USUAL_FLAGS for word in meaning) else given
    return (level, *(word for word in _USUAL_FLAGS if word in meaning)), others
