"""C++ that does not stand in the candidate: what is built is put together while the candidate is loaded."""

from __future__ import annotations

from kernelrl_lab.fixture import Fixture
from kernelrl_lab.frames import CPP_SOURCE
from kernelrl_lab.tasks import MATMUL, RELU_DOUBLE

__all__ = ["FIXTURES"]

_SHIM = """
#include <torch/extension.h>

torch::Tensor product(torch::Tensor a, torch::Tensor b) {
    return at::matmul(a, b);
}
"""
_DECLARED = "torch::Tensor product(torch::Tensor a, torch::Tensor b);"

_CANDIDATE = """\
import torch
from torch.utils.cpp_extension import load_inline

{makes}

extension = load_inline(name="lab_hidden_{name}", {sources}, functions=[{function!r}])


class ModelNew(torch.nn.Module):
    def forward(self, {arguments}):
        return extension.{function}({arguments})
"""


def _scrambled(text: str) -> str:
    return f'text = "".join(chr(ord(letter) ^ 1) for letter in {"".join(chr(ord(c) ^ 1) for c in text)!r})'


def _product(name: str, makes: str, sources: str = "cpp_sources=text") -> str:
    return _CANDIDATE.format(makes=makes, name=name, sources=sources, function="product", arguments="a, b")


_PARTS = f"""\
parts = {_SHIM.replace("matmul", "%s%s")!r}
text = parts % tuple(map("".join, (reversed("tam"), reversed("lum"))))"""

_TEMPLATE = f"""\
template = {CPP_SOURCE.replace("* 2.0f", "* FACTOR")!r}
text = template.replace("FACTOR", f"{{sum([1, 1]):.1f}}f")"""

FIXTURES = (
    Fixture(
        "A7-cpp-scrambled",
        "A library multiplies the matrices, in a source that is unscrambled before it is built.",
        "cpp",
        MATMUL,
        _product("scrambled", _scrambled(_SHIM)),
        "rejected",
    ),
    Fixture(
        "A7-cpp-parts",
        "The library's name in the source is put together of parts.",
        "cpp",
        MATMUL,
        _product("parts", _PARTS),
        "rejected",
    ),
    Fixture(
        "A1-cuda-scrambled",
        "There is no kernel in a source that is unscrambled before it is built.",
        "cuda",
        MATMUL,
        _product("none", _scrambled(_SHIM), f"cpp_sources={_DECLARED!r}, cuda_sources=text"),
        "rejected",
        where="gpu",
    ),
    Fixture(
        "K9-cpp-template",
        "Builds a source into which a computed number is written.",
        "cpp",
        RELU_DOUBLE,
        _CANDIDATE.format(
            makes=_TEMPLATE, name="template", sources="cpp_sources=text", function="relu_double", arguments="x"
        ),
        "correct",
    ),
)
