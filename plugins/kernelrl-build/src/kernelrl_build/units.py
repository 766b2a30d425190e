"""The units that are compiled: their texts, their names in messages of compilers, and their flags."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from kernelrl_build.binding import Signature, trampolines
from kernelrl_build.diagnosis import FUNCTIONS_FILE, NotCertain
from kernelrl_build.inline_request import InlineRequest
from kernelrl_build.lexing import Unreadable, items, text_of
from kernelrl_build.prepare import Prepared
from kernelrl_build.screening import PASSING
from kernelrl_build.splitting import Split

__all__ = [
    "HostFlags",
    "declarations_only",
    "definitions_for_host",
    "device_file",
    "device_host_flags",
    "main_file",
    "main_flags",
    "main_unit",
    "only_declares",
    "whole_device_unit",
    "with_instances",
]


_HOST_LEVEL = "-O1"
_LEVELS = re.compile(r"-O[0-3]|-g\d?|-w|-W(?!l,|a,|p,)[\w=+-]*|-pipe")
_USUAL_FLAGS = ("-march=native", "-fopenmp", "-ffast-math")

HostFlags = tuple[tuple[str, ...], tuple[str, ...]]
"""Flags of a unit for the CPU: the flags of its precompiled header, and the others."""


def main_file(index: int) -> str:
    """Name of a C++ source."""
    return "main.cpp" if index == 0 else f"main{index}.cpp"


def device_file(index: int) -> str:
    """Name of a device source."""
    return "cuda.cu" if index == 0 else f"cuda{index}.cu"


def main_unit(request: InlineRequest, cpp_sources: Sequence[str], bound: Sequence[Signature] | None) -> str:
    """The unit of the C++ sources, with trampolines for the `bound` functions, or with a Python module for None."""
    text = "\n".join(f'#line 1 "{main_file(index)}"\n{source}' for index, source in enumerate(cpp_sources))
    if bound is not None:
        return f'{text}\n#line 1 "binding.cpp"\n{trampolines(bound)}'
    if request.functions:
        defined = "\n".join(
            f'm.def("{name}", torch::wrap_pybind_function({name}), {_quoted(documentation)});'
            for name, documentation in request.functions
        )
        text += f'\n#line 1 "{FUNCTIONS_FILE}"\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{\n{defined}\n}}\n'
    return text


def whole_device_unit(request: InlineRequest) -> str:
    """The unchanged device sources after torch's headers."""
    return "#include <torch/types.h>\n#include <cuda.h>\n#include <cuda_runtime.h>\n" + "\n".join(
        f'#line 1 "{device_file(index)}"\n{source}' for index, source in enumerate(request.device_sources)
    )


def with_instances(part: Split, known: Iterable[str]) -> str:
    """The device unit with the instances of its templates that are among the symbols of the host unit."""
    wanted = [
        text
        for text in known
        if part.templates and re.match(rf"(?:void )?(?:\w+::)*(?:{'|'.join(map(re.escape, part.templates))})<", text)
    ]
    types = "#include <c10/util/Half.h>\n#include <c10/util/BFloat16.h>\n" if "c10::" in "".join(wanted) else ""
    lines = [f"template __global__ void {text.removeprefix('void ')};\n" for text in wanted]
    return types + part.device + '\n#line 1 "instances.cu"\n' + "".join(lines)


def only_declares(sources: Sequence[str]) -> bool:
    """Whether C++ sources contain declarations and includes alone, for which a compiler generates no code."""
    try:
        found = [item for source in sources for item in items(source)]
    except Unreadable:
        return False
    return all(
        (item.kind == "declaration" and "=" not in {token.text for token in item.tokens})
        or (item.kind == "directive" and text_of(item.tokens).split()[0].lstrip().startswith("#include"))
        for item in found
    )


def declarations_only(host: str, bound: Sequence[tuple[str, ...]]) -> str:
    """Declarations of the functions that a host unit defines and its module binds."""
    names = {entry[-1] for entry in bound}
    found = []
    for item in items(host):
        if item.kind == "function":
            head = text_of(item.tokens[: item.body])
            if names & {token.text for token in item.tokens[: item.body]}:
                found.append(re.sub(r"^\s*(?:static|inline)\s+", "", re.sub(r"#line[^\n]*\n", "", head)).strip() + ";")
    return "\n".join(found)


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def main_flags(request: InlineRequest, cpp_sources: Sequence[str]) -> HostFlags:
    """Flags of the unit of the C++ sources."""
    code = [word for word in request.cflags if not re.match(r"-[fmOgwW]", word)]
    if request.device_sources and not code and only_declares(cpp_sources):
        # The flags concern the generation of code, and this unit has none.
        return device_host_flags(request)
    return _flags_of_sources(request)


def device_host_flags(request: InlineRequest) -> HostFlags:
    """Flags of the host code in device sources. The flags of the C++ sources do not apply to it."""
    if request.language == "cpp":
        return _flags_of_sources(request)[0], ()
    return (_HOST_LEVEL,), ()


def definitions_for_host(request: InlineRequest, prepared: Prepared) -> str:
    """The macros that the flags of the device compiler define, as source for the host part of device sources.

    Raises:
        NotCertain: the flags have another effect on the host part.
    """
    lines = []
    given = request.device_flags
    for before, word in zip(["", *given], given, strict=False):
        option, _, value = word.partition("=")
        passed = value if option in PASSING else ""
        if before in PASSING:
            passed = word
        if any(not _LEVELS.fullmatch(part) and part != "-fPIC" for part in passed.strip("'\"").split(",") if part):
            raise NotCertain(f"{passed} is for the host compiler of the device compiler")
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

    A precompiled header for each combination would fill the disk. There is one for the common flags. Other flags follow
    them on the command line, and the compiler reads the headers again if they do not suit the precompiled one.
    """
    level = "-O3" if request.language == "cpp" else _HOST_LEVEL
    given = request.cflags
    meaning = [word for word in given if not _LEVELS.fullmatch(word)]
    others = () if all(word in _USUAL_FLAGS for word in meaning) else given
    return (level, *(word for word in _USUAL_FLAGS if word in meaning)), others
