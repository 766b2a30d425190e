"""Builds that the source of a candidate does not show. Their requests show them, whatever computed them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kernelrl_build.kernel_facts import hidden_facts
from kernelrl_build.limits import MAX_HIDDEN_CHARACTERS
from kernelrl_core.api.evaluators import Severity, SourceFacts

KERNEL = "__global__ void twice(const float* a, float* out) { out[threadIdx.x] = 2 * a[threadIdx.x]; }\n"
HOST = "torch::Tensor run(torch::Tensor a) { auto out = torch::empty_like(a); LAUNCH return out; }\n"
LAUNCH = "twice<<<1, 32>>>(a.data_ptr<float>(), out.data_ptr<float>());"
DECLARED = "torch::Tensor run(torch::Tensor a);"
LAUNCHED = KERNEL + HOST.replace("LAUNCH", LAUNCH)


def candidate(build: str, call: str = "ext.run(a)") -> str:
    return f'''\
import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""{LAUNCHED}"""
{build}


class ModelNew(torch.nn.Module):
    def forward(self, a):
        return {call}
'''


SHOWN = candidate(f"ext = load_inline(name='ext', cpp_sources='{DECLARED}', cuda_sources=SOURCE, functions=['run'])")
COMPUTED = SHOWN.replace("cuda_sources=SOURCE", "cuda_sources=make()")


def request(device: str, **other: Any) -> bytes:
    named = {"name": "ext", "cpp_sources": [DECLARED], "device_sources": [device], "functions": [["run", "run"]]}
    lists: dict[str, list[str]] = {key: [] for key in ("cflags", "device_flags", "ldflags", "include_paths")}
    return json.dumps({**named, **lists, **other}).encode()


def test_a_build_that_the_source_shows_is_not_hidden() -> None:
    assert hidden_facts(SHOWN, [request(LAUNCHED)], "cuda") == (SourceFacts(), ())


def test_a_text_that_the_source_does_not_show_is_kept_with_its_kernels() -> None:
    facts, findings = hidden_facts(COMPUTED, [request(LAUNCHED)], "cuda")
    assert [(piece.language, piece.source) for piece in facts.embedded] == [("cuda", LAUNCHED)]
    assert [(kernel.name, kernel.reached) for kernel in facts.kernels] == [("twice", True)]
    assert (facts.unread, findings) == ("", ())


def test_a_text_in_a_comment_or_a_docstring_is_hidden() -> None:
    source = f'"""{LAUNCHED}"""\n{COMPUTED.replace("make()", "__doc__")}'
    facts, _ = hidden_facts(source, [request(LAUNCHED)], "cuda")
    assert [piece.source for piece in facts.embedded] == [LAUNCHED]


def test_a_kernel_that_nothing_launches_is_not_reached() -> None:
    facts, _ = hidden_facts(COMPUTED, [request(KERNEL + HOST.replace("LAUNCH", ""))], "cuda")
    assert [(kernel.name, kernel.reached) for kernel in facts.kernels] == [("twice", False)]


def test_functions_whose_names_are_computed_are_taken_to_be_called() -> None:
    source = COMPUTED.replace("ext.run(a)", "getattr(ext, 'nur'[::-1])(a)")
    facts, _ = hidden_facts(source, [request(LAUNCHED)], "cuda")
    assert facts.kernels[0].reached


def test_functions_in_cpp_are_the_kernels() -> None:
    facts, _ = hidden_facts(COMPUTED, [request("", cpp_sources=[HOST], device_sources=[])], "cpp")
    assert [kernel.name for kernel in facts.kernels] == ["run"]


def test_another_way_to_make_kernels_leaves_doubt() -> None:
    facts, _ = hidden_facts(COMPUTED + "\nimport ctypes\n", [request(HOST.replace("LAUNCH", ""))], "cuda")
    assert "ctypes" in facts.unread


@pytest.mark.parametrize("count", [1, 3])
def test_too_much_to_be_read_is_suspect_and_the_rest_is_kept(count: int) -> None:
    requests = [
        request(f"//{number}\n" + "int a;\n" * (MAX_HIDDEN_CHARACTERS // 5 // count)) for number in range(count)
    ]
    facts, (finding,) = hidden_facts(COMPUTED, requests, "cuda")
    assert sum(len(piece.source) for piece in facts.embedded) == MAX_HIDDEN_CHARACTERS
    assert finding.severity is Severity.SUSPECT
    assert facts.unread


@pytest.mark.parametrize(
    ("other", "text"),
    [
        ({"functions": [["at::relu", "at::relu"]]}, "auto bound = at::relu;\n"),
        ({"device_flags": ["-O3 -DPRODUCT=matmul", "-DN=4"]}, "#define PRODUCT matmul\n"),
        ({"cflags": ["-Xcompiler", "-DPRODUCT=cublasSgemm"]}, "#define PRODUCT cublasSgemm\n"),
    ],
)
def test_macros_of_flags_and_functions_of_others_are_no_part_of_a_source(other: dict[str, Any], text: str) -> None:
    facts, _ = hidden_facts(SHOWN, [request(LAUNCHED, **other)], "cuda")
    assert text in [piece.source for piece in facts.embedded]
