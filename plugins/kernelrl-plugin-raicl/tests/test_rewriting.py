"""What rewriting preserves, and what it refuses with which reason."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from kernelrl_plugin_raicl.rewriting import Pair, Unrewritable, rewrite_archive, rewrite_inductor, rewrite_submission
from kernelrl_plugin_raicl.rewriting.cpp import read_extension

REFERENCE = """
import torch
import torch.nn as nn


class Twice(nn.Module):
    def forward(self, x):
        return x + x


def get_inputs():
    return [torch.rand([4, 16])]


def get_init_inputs():
    return [[], {}]
"""
KERNEL = """
import torch
import triton
import triton.language as tl
from torch._inductor.runtime.triton_heuristics import grid
from torch._C import _cuda_getCurrentRawStream as get_raw_stream
from torch._inductor.runtime import triton_helpers
import torch.nn as nn
assert_size_stride = torch._C._dynamo.guards.assert_size_stride
empty_strided_cuda = torch._C._dynamo.guards._empty_strided_cuda


@triton.jit
def triton_poi_fused_add_0(in_ptr0, out_ptr0, xnumel, XBLOCK: tl.constexpr):
    xnumel = 64
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    x0 = xindex
    tmp0 = tl.load(in_ptr0 + x0, xmask)
    tmp1 = tmp0 + tmp0
    tl.store(out_ptr0 + x0, tmp1, xmask)


def call(args):
    arg0_1, = args
    args.clear()
    assert_size_stride(arg0_1, (4, 16), (16, 1))
    with torch.cuda._DeviceGuard(0):
        torch.cuda.set_device(0)
        buf0 = empty_strided_cuda((4, 16), (16, 1), torch.float32)
        get_raw_stream(0)
        triton_poi_fused_add_0[grid(64)](arg0_1, buf0, 64, XBLOCK=64, num_warps=1, num_stages=1)
        del arg0_1
    return buf0,


class TwiceNew(nn.Module):
    def forward(self, input_0):
        arg0_1 = input_0
        output = call([arg0_1])
        return output[0]
"""
CUDA = """
#include <torch/extension.h>

__global__ void twice_kernel(const float* x, float* out, int64_t n) {
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] + x[i];
}

torch::Tensor forward(torch::Tensor x) {
    auto out = torch::empty_like(x);
    twice_kernel<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), out.data_ptr<float>(), x.numel());
    return out;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    m.def("forward", &forward, "twice");
}
"""
MODULE = REFERENCE.replace("Twice", "Model")
FUNCTIONAL = """
import torch
import torch.nn as nn


def module_fn(x):
    return x + x


class Model(nn.Module):
    def forward(self, x, fn=module_fn):
        return fn(x)
"""


def inductor(reference: str = REFERENCE, kernel: str = KERNEL) -> Pair:
    return rewrite_inductor(reference, kernel, "Twice")


def archive(module: str = MODULE, functional: str = FUNCTIONAL, cuda: str = CUDA) -> Pair:
    return rewrite_archive(module, functional, cuda)


def changed(text: str, old: str, new: str) -> str:
    assert old in text
    return text.replace(old, new)


def reason(rewrite: Callable[[], Pair]) -> str:
    with pytest.raises(Unrewritable) as caught:
        rewrite()
    return str(caught.value.reason)


def test_call_is_inlined_and_sizes_are_read() -> None:
    pair = inductor()
    assert not pair.fixed_sizes
    assert "n = input_0.numel()" in pair.kernel
    assert "torch.empty_like(input_0, dtype=torch.float32)" in pair.kernel
    assert "add_kernel_0[(triton.cdiv(n, 64),)](input_0, buf0, n, XBLOCK=64, num_warps=1, num_stages=1)" in pair.kernel
    assert "64" not in pair.kernel.replace("XBLOCK=64", "").replace("(n, 64)", "")


def test_a_size_that_was_a_multiple_of_the_block_gets_masks_again() -> None:
    kernel = changed(KERNEL, "    xmask = xindex < xnumel\n", "    tl.full([XBLOCK], True, tl.int1)\n")
    kernel = changed(kernel, "x0, xmask)", "x0, None)").replace("tmp1, xmask)", "tmp1, None)")
    pair = inductor(kernel=kernel)
    assert "xmask = xindex < xnumel" in pair.kernel
    assert "tl.load(in_ptr0 + x0, xmask)" in pair.kernel
    assert "tl.store(out_ptr0 + x0, tmp1, xmask)" in pair.kernel


@pytest.mark.parametrize("forward", ["x + x / x.shape[0]", "x + x.mean()", "x * len(x)", "x + x.size(1)"])
def test_sizes_are_asserted_where_the_reference_computes_with_them(forward: str) -> None:
    pair = inductor(reference=changed(REFERENCE, "return x + x", f"return {forward}"))
    assert pair.fixed_sizes
    assert "assert input_0.shape == (4, 16)" in pair.kernel


@pytest.mark.parametrize(
    "change",
    [
        ("in_ptr0 + x0", "in_ptr0 + x0 % 16"),
        ("in_ptr0 + x0", "in_ptr0 + 2 * x0"),
        ("tmp1 = tmp0 + tmp0", "tmp1 = tmp0 + x0"),
        ("tmp1 = tmp0 + tmp0", "tmp1 = tl.where(xindex < 32, tmp0, tmp0)"),
    ],
    ids=["modulo", "stride", "position", "half"],
)
def test_sizes_are_asserted_where_a_kernel_uses_positions(change: tuple[str, str]) -> None:
    assert inductor(kernel=changed(KERNEL, *change)).fixed_sizes


def test_strides_of_inputs_that_are_not_contiguous_are_asserted() -> None:
    pair = inductor(kernel=changed(KERNEL, "(arg0_1, (4, 16), (16, 1))", "(arg0_1, (4, 16), (1, 4))"))
    assert "assert input_0.stride() == (1, 4)" in pair.kernel
    assert ".contiguous()" not in pair.kernel


def test_results_for_a_backward_pass_are_removed_with_their_stores() -> None:
    kernel = changed(KERNEL, "out_ptr0, xnumel, XBLOCK", "out_ptr0, out_ptr1, xnumel, XBLOCK")
    kernel = changed(
        kernel, "tmp1, xmask)\n", "tmp1, xmask)\n    tmp2 = tmp0 <= tmp1\n    tl.store(out_ptr1 + x0, tmp2, xmask)\n"
    )
    kernel = changed(kernel, "(arg0_1, buf0, 64,", "(arg0_1, buf0, buf1, 64,")
    kernel = changed(
        kernel,
        "        get_raw_stream(0)\n",
        "        buf1 = empty_strided_cuda((4, 16), (16, 1), torch.bool)\n        get_raw_stream(0)\n",
    )
    kernel = changed(kernel, "return buf0,", "return buf0, arg0_1, buf1")
    pair = inductor(kernel=kernel)
    assert pair.kernel == inductor().kernel


def test_a_result_that_a_later_kernel_reads_is_kept() -> None:
    second = "        triton_poi_fused_add_0[grid(64)](buf0, buf1, 64, XBLOCK=64, num_warps=1, num_stages=1)\n"
    kernel = changed(
        KERNEL,
        "        del arg0_1\n    return buf0,",
        f"        buf1 = empty_strided_cuda((4, 16), (16, 1), torch.float32)\n{second}    return buf1,",
    )
    pair = inductor(kernel=kernel)
    assert pair.kernel.count("add_kernel_0[") == 2
    assert "return buf1" in pair.kernel


def test_parts_of_the_results_of_an_operator_are_kept() -> None:
    operator = "        buf1 = torch.ops.aten.sort.default(buf0)\n        buf2 = buf1[0]\n        buf3 = buf1[1]\n"
    kernel = changed(KERNEL, "        del arg0_1\n    return buf0,", f"{operator}    return buf2, buf3, buf0")
    text = inductor(kernel=kernel).kernel
    assert "buf2 = buf1[0]\n        return buf2" in text
    assert "buf3" not in text


def test_a_view_that_a_kernel_writes_through_is_kept() -> None:
    kernel = changed(KERNEL, "(arg0_1, buf0, 64,", "(arg0_1, buf1, 64,")
    view = "        buf1 = reinterpret_tensor(buf0, (64,), (1,), 0)\n        get_raw_stream(0)\n"
    text = inductor(kernel=changed(kernel, "        get_raw_stream(0)\n", view)).kernel
    assert "buf1 = buf0.view(64)" in text
    assert "(input_0, buf1, 64, XBLOCK=64" in text
    assert "return buf0" in text


def test_device_functions_precede_the_kernels_that_call_them() -> None:
    helper = "@triton.jit\ndef _triton_helper_fn_add0(arg0, arg1):\n    return arg0 + arg1\n\n\n"
    kernel = changed(KERNEL, "@triton.jit\n", f"{helper}@triton.jit\n")
    kernel = changed(kernel, "tmp0 + tmp0", "_triton_helper_fn_add0(tmp0, tmp0)")
    text = inductor(kernel=kernel).kernel
    assert 0 < text.index("def _triton_helper_fn_add0") < text.index("def add_kernel_0")


def test_a_mutated_input_stays_mutated() -> None:
    kernel = changed(KERNEL, "(arg0_1, buf0, 64,", "(arg0_1, arg0_1, 64,")
    kernel = changed(kernel, "return buf0,", "return arg0_1,")
    assert "(input_0, input_0, n, XBLOCK=64" in inductor(kernel=kernel).kernel


def test_unused_imports_are_removed() -> None:
    reference = changed(REFERENCE, "import torch\n", "import torch\nimport einops\n")
    assert "einops" not in inductor(reference).reference


def test_a_reference_that_uses_another_package_is_refused() -> None:
    reference = changed(REFERENCE, "import torch\n", "import torch\nimport einops\n")
    reference = changed(reference, "return x + x", "return einops.rearrange(x, 'a b -> b a')")
    assert reason(lambda: inductor(reference)) == "uses a package other than torch and numpy"


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("class Twice", "class Thrice", "reference has no class with the name of the row"),
        ("def get_inputs", "def inputs", "reference has no get_inputs"),
        ("return x + x", "return x +", "reference is not Python"),
    ],
)
def test_other_forms_of_references_are_refused(old: str, new: str, expected: str) -> None:
    assert reason(lambda: inductor(reference=changed(REFERENCE, old, new))) == expected


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("tmp0 + tmp0", "triton_helpers.frexp(tmp0)", "helper of Inductor without a counterpart"),
        ("get_raw_stream(0)", "extern_kernels._int_mm(buf0)", "operator of Inductor without a counterpart"),
        ("[grid(64)]", "[64]", "launch with a grid of another form"),
        ("[grid(64)]", ".run", "launch without a grid"),
        ("(4, 16), (16, 1))\n", "(s0, 16), (16, 1))\n", "sizes that are not constants"),
        ("        return output[0]", "        return output", "forward returns all results of call"),
        ("arg0_1 = input_0\n", "print(input_0)\n", "forward does more than pass its tensors to call"),
        ("call([arg0_1])", "call([arg0_1, arg0_1])", "call takes other arguments than forward passes"),
        ("return buf0,", "return arg0_1,", "no kernel computes an output"),
        ("(arg0_1, buf0, 64,", "(arg0_2, buf0, 64,", "call reads an unknown name"),
        ("class TwiceNew", "class Other", "no class with the name of the row"),
        ("def call(", "def called(", "kernel file has no function call"),
        ("@triton.jit\n", "", "kernel file has no Triton kernel"),
        ("get_raw_stream(0)", "while True:\n            pass", "statement that Inductor does not write"),
        ("get_raw_stream(0)", "os.remove('x')", "call that Inductor does not write"),
    ],
)
def test_other_forms_of_inductor_are_refused(old: str, new: str, expected: str) -> None:
    assert reason(lambda: inductor(kernel=changed(KERNEL, old, new))) == expected


def test_code_of_a_corpus_is_never_executed(tmp_path: Path) -> None:
    trap = f"open({str(tmp_path / 'executed')!r}, 'w').close()"
    inductor(f"{trap}\n{REFERENCE}", f"{trap}\n{KERNEL}")
    archive(f"{trap}\n{MODULE}", f"{trap}\n{FUNCTIONAL}", CUDA)
    assert list(tmp_path.iterdir()) == []


def test_a_cuda_source_becomes_an_inline_extension() -> None:
    kernel = archive().kernel
    assert 'cpp_source = "torch::Tensor forward(torch::Tensor x);"' in kernel
    assert 'functions=["forward"]' in kernel
    assert "return extension.forward(x)" in kernel
    assert "module_fn" not in kernel


def test_the_reference_of_the_archive_is_kept_as_it_is() -> None:
    assert archive().reference == MODULE.strip("\n") + "\n"


def test_backslashes_and_quotes_of_a_cuda_source_survive() -> None:
    odd = '#define A(x) \\\n  x\n// """ and \'\nconst char* t = "\\n\\"";\ntorch::Tensor forward'
    cuda = changed(CUDA, "torch::Tensor forward", odd)
    (text,) = re.findall(r"^cuda_source = (.*?)\n\ncpp_source", archive(cuda=cuda).kernel, flags=re.DOTALL | re.M)
    assert ast.literal_eval(text).strip() == read_extension(cuda).source.strip()


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("PYBIND11_MODULE(TORCH_EXTENSION_NAME, m)", "void bind()", "CUDA source binds nothing with PYBIND11_MODULE"),
        ("&forward,", "[](torch::Tensor x) { return x; },", "binding of something else than a plain function"),
        ("&forward,", "&detail::forward,", "binding of something else than a plain function"),
        ("&forward,", "&missing,", "bound function is not defined outside of namespaces"),
        ("forward(torch::Tensor x)", "forward(Box x)", "bound function with types of its own"),
        ("torch::Tensor f", "template <int N> torch::Tensor f", "bound function is a template or extern"),
        ("torch::Tensor x) {", "torch::Tensor x, int dim) {", "call of the function omits arguments"),
        ("(torch::Tensor x) {", "() {", "bound function takes fewer arguments than the call has"),
        ('"twice");\n}', '"twice");\n', "CUDA source with unbalanced brackets"),
    ],
)
def test_other_forms_of_cuda_sources_are_refused(old: str, new: str, expected: str) -> None:
    assert reason(lambda: archive(cuda=changed(CUDA, old, new))) == expected


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("fn=module_fn", "fn=None", "forward has no last parameter that defaults to a function"),
        ("return fn(x)", "return apply(fn, x)", "forward uses its function in another way than calling it"),
        ("return fn(x)", "return fn(*x)", "call of the function with other arguments than it takes"),
        ("def module_fn", "def other_fn", "functional module does not define its function"),
    ],
)
def test_other_forms_of_functional_modules_are_refused(old: str, new: str, expected: str) -> None:
    assert reason(lambda: archive(functional=changed(FUNCTIONAL, old, new))) == expected


def test_a_reference_of_the_archive_without_model_is_refused() -> None:
    assert reason(lambda: archive(module=changed(MODULE, "class Model", "class Other"))) == "reference has no Model"


SUBMISSION_REFERENCE = """
import torch
from task import input_t, output_t
from utils import make_match_reference


def ref_kernel(data: input_t) -> output_t:
    a, b = data
    return a + b


def generate_input(m: int, n: int, seed: int) -> input_t:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(m, n, generator=generator), torch.randn(m, n, generator=generator)


check_implementation = make_match_reference(ref_kernel)
"""
SUBMISSION = '''#!POPCORN leaderboard sum
from task import input_t, output_t
import torch
from torch.utils.cpp_extension import load_inline

source = """
#include <hip/hip_runtime.h>
__global__ void sum_kernel() {}
"""
module = load_inline(name="sum", cpp_sources="", cuda_sources=source, functions=["sum"])


def custom_kernel(data: input_t) -> output_t:
    a, b = data
    return module.sum(a, b)
'''


def test_a_submission_becomes_a_model() -> None:
    pair = rewrite_submission(SUBMISSION_REFERENCE, {"m": 8, "n": 16, "seed": 1}, SUBMISSION)
    for text in (pair.reference, pair.kernel):
        assert "input_t" not in text
        assert "from utils" not in text
    assert "return list(generate_input(m=8, n=16, seed=int(torch.randint" in pair.reference
    assert "def forward(self, *data):\n        return ref_kernel(data)" in pair.reference
    assert "def forward(self, *data):\n        return custom_kernel(data)" in pair.kernel
    assert "load_inline(name='sum'" in pair.kernel


@pytest.mark.parametrize(
    ("reference", "submission", "expected"),
    [
        (SUBMISSION_REFERENCE.replace("ref_kernel", "reference"), SUBMISSION, "reference has no ref_kernel"),
        (SUBMISSION_REFERENCE, SUBMISSION.replace("custom_kernel", "kernel"), "submission has no custom_kernel"),
        (SUBMISSION_REFERENCE.replace("m: int", "k: int"), SUBMISSION, "size that generate_input does not take"),
    ],
)
def test_other_forms_of_submissions_are_refused(reference: str, submission: str, expected: str) -> None:
    assert reason(lambda: rewrite_submission(reference, {"m": 8, "n": 16}, submission)) == expected
