"""Lines of the candidate's file in messages about what it builds, and about a fault."""

from __future__ import annotations

import json

import pytest

from kernelrl_judge.judge.candidate_lines import crash_line, in_own_lines

SOURCE = """import torch
HEADER = "#include <vector>"
BODY = r'''
int twice(int x) {
    return 2 * y;
}
'''
ESCAPED = "int a;\\nint b = c;"
ext = load_inline("ext", [BODY, HEADER + BODY], "")


class ModelNew:
    def forward(self, x):
        return ext.twice(x)
"""
BODY = "\nint twice(int x) {\n    return 2 * y;\n}\n"


def build(*cpp_sources: str) -> list[bytes]:
    return [json.dumps({"cpp_sources": cpp_sources, "device_sources": []}).encode()]


@pytest.mark.parametrize(
    ("requests", "text", "own"),
    [
        (build(BODY), "main.cpp:3:16: error: no y", "candidate.py:5:16: error: no y"),
        (build("int a;", BODY), "main1.cpp:3: note", "candidate.py:5: note"),
        (build("#include <vector>" + BODY), "main.cpp:3:16: error", "candidate.py:5:16: error"),
        # A line of the string is named, and not one within an escape.
        (build("int a;\nint b = c;"), "main.cpp:2:9: error", "main.cpp:2:9: error"),
        (build(BODY), "cuda.cu(3): error", "cuda.cu(3): error"),
        (build(BODY), "main.cpp:99:1: error", "main.cpp:99:1: error"),
        # A heading, and the number of a quoted line.
        (build(BODY), "main.cpp: In function 'twice'", "candidate.py: In function 'twice'"),
        (build(BODY), "main.cpp:3:16: error\n    3 |     return", "candidate.py:5:16: error\n    5 |     return"),
        ([], "main.cpp:3:16: error", "main.cpp:3:16: error"),
    ],
)
def test_a_line_of_a_source_is_named_by_that_of_the_string(requests: list[bytes], text: str, own: str) -> None:
    assert in_own_lines(text, SOURCE, requests) == own


def test_a_source_that_python_cannot_read_has_no_lines_of_its_own() -> None:
    assert in_own_lines("main.cpp:3: error", "def (", build(BODY)) == "main.cpp:3: error"


def test_the_innermost_line_of_a_fault_is_named() -> None:
    printed = (
        "Fatal Python error: Segmentation fault\n\nCurrent thread 0x1 (most recent call first):\n"
        '  File "/tmp/kernelrl-zygote_ab/candidate.py", line 14 in forward\n  File "/x/main.py", line 3 in call\n'
    )
    assert crash_line(printed, SOURCE) == "line 14, in forward: return ext.twice(x)"
    assert crash_line(printed.replace("14", "9999"), SOURCE) == ""
    assert crash_line("no fault", SOURCE) == ""
