"""Texts of the units that are compiled, and what they are called where compilers speak of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from kernelrl_judge.build.binding import Signature, trampolines
from kernelrl_judge.build.diagnosis import FUNCTIONS_FILE
from kernelrl_judge.build.lexing import Unreadable, items, text_of
from kernelrl_judge.build.request import InlineRequest
from kernelrl_judge.build.splitting import Split

__all__ = [
    "declarations_only",
    "device_file",
    "main_file",
    "main_unit",
    "only_declares",
    "whole_device_unit",
    "with_instances",
]


def main_file(index: int) -> str:
    """Name of a C++ source."""
    return "main.cpp" if index == 0 else f"main{index}.cpp"


def device_file(index: int) -> str:
    """Name of a device source."""
    return "cuda.cu" if index == 0 else f"cuda{index}.cu"


def main_unit(request: InlineRequest, cpp_sources: Sequence[str], bound: Sequence[Signature] | None) -> str:
    """The unit of the C++ sources, with trampolines or with a Python module for the functions."""
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
    """The device sources as they are, behind torch's headers."""
    return "#include <torch/types.h>\n#include <cuda.h>\n#include <cuda_runtime.h>\n" + "\n".join(
        f'#line 1 "{device_file(index)}"\n{source}' for index, source in enumerate(request.device_sources)
    )


def with_instances(part: Split, known: Iterable[str]) -> str:
    """The device unit with the instances of its templates among symbols that the host unit knows."""
    wanted = [
        text
        for text in known
        if part.templates and re.match(rf"(?:void )?(?:\w+::)*(?:{'|'.join(map(re.escape, part.templates))})<", text)
    ]
    types = "#include <c10/util/Half.h>\n#include <c10/util/BFloat16.h>\n" if "c10::" in "".join(wanted) else ""
    lines = [f"template __global__ void {text.removeprefix('void ')};\n" for text in wanted]
    return types + part.device + '\n#line 1 "instances.cu"\n' + "".join(lines)


def only_declares(sources: Sequence[str]) -> bool:
    """Whether C++ sources hold declarations and includes, and nothing to make code of."""
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
