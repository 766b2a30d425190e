"""When C++ sources may stand behind the host part of a device source."""

from __future__ import annotations

import pytest

from kernelrl_judge.build.joining import joinable

HOST = """\
#include <torch/extension.h>
#define THREADS 256
struct Shape { int rows; };
static int blocks_of(int count) { return (count + THREADS - 1) / THREADS; }
torch::Tensor scale_cuda(torch::Tensor input, float factor) { return input * factor * blocks_of(1); }
"""
MAIN = """\
#include <torch/extension.h>
torch::Tensor scale_cuda(torch::Tensor input,
                         float factor);
torch::Tensor scale(torch::Tensor input, float factor) { return scale_cuda(input, factor); }
"""


def test_a_wrapper_that_declares_what_it_calls_may() -> None:
    assert joinable(HOST, [MAIN])


@pytest.mark.parametrize(
    "addition",
    [
        "int threads = THREADS;",
        "static int blocks_of(int count) { return count; }",
        "struct Shape { float rows; };",
        "float scale_cuda(torch::Tensor input, int factor);\nint use = 0;",
        "{",
    ],
)
def test_sources_that_would_see_something_new_may_not(addition: str) -> None:
    other = MAIN if "scale_cuda" not in addition else MAIN.replace("float factor);", "double factor);")
    assert not joinable(HOST, [other + addition])


def test_a_namespace_that_is_opened_for_all_keeps_them_apart() -> None:
    assert not joinable("using namespace torch::indexing;\n" + HOST, [MAIN])


def test_enumerators_are_visible_outside_of_their_braces() -> None:
    assert not joinable("enum Mode { FAST, SLOW };\n" + HOST, [MAIN + "int mode = FAST;"])
