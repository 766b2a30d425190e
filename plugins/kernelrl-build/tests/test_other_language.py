"""Sources for the other kind of GPU: one line reports that, in the place of dozens of a compiler."""

from __future__ import annotations

from typing import Literal

import pytest

from kernelrl_build.diagnosis import other_language
from kernelrl_build.inline_request import InlineRequest

Language = Literal["cuda", "hip", "cpp"]


def _request(language: Language, source: str) -> InlineRequest:
    return InlineRequest(language, "x", (), (source,), (), (), (), (), (), ())


@pytest.mark.parametrize(
    ("language", "header", "log", "expected"),
    [
        ("cuda", "hip/hip_runtime.h", "nvidia_hip_runtime_api.h(11): error: hipError_t", "HIP, which backend cuda"),
        ("cuda", "hip/hip_runtime.h", "fatal error: hip/hip_runtime.h: No such file", "use backend hip (-b hip)"),
        ("hip", "cuda_runtime.h", "cuda.cu:2:10: fatal error: 'cuda_runtime.h' file not found", "write HIP"),
    ],
)
def test_the_other_language_is_named_with_the_line_and_the_fix(
    language: Language, header: str, log: str, expected: str
) -> None:
    message = other_language(_request(language, f"// kernels\n#include <{header}>\n"), log)
    assert message.startswith(f"cuda.cu:2: error: <{header}>")
    assert expected in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("language", "source", "log"),
    [
        ("cuda", "#include <cuda_runtime.h>\n", 'cuda.cu(8): error: identifier "aa" is undefined'),
        ("cuda", "#include <hip/hip_runtime.h>\n", 'cuda.cu(8): error: identifier "aa" is undefined'),
        ("cpp", "#include <hip/hip_runtime.h>\n", "fatal error: hip/hip_runtime.h: No such file"),
    ],
)
def test_other_mistakes_are_left_to_the_compiler(language: Language, source: str, log: str) -> None:
    assert other_language(_request(language, source), log) == ""
