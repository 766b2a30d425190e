"""Honest sources that resemble reward hacks have no finding above a note."""

from __future__ import annotations

import pytest

from kernelrl_build.kernel_facts import extension_facts
from kernelrl_core.api.checkers import Candidate, Finding, Severity, SourceFacts
from kernelrl_core.api.tasks import Task
from kernelrl_plugin_checkers.config import SourceRulesConfig
from kernelrl_plugin_checkers.source_rules import SourceRules
from kernelrl_plugin_cuda.runtime_kernels import runtime_facts
from kernelrl_plugin_triton.kernels import find_kernels

TASK = Task("test", "")

TRITON_HEAD = """\
import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl
"""
KERNEL = """
@triton.jit
def scale_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    keep = offs < n
    tl.store(out_ptr + offs, tl.load(x_ptr + offs, mask=keep) * 3.0, mask=keep)


def scale(x):
    out = torch.empty_like(x)
    scale_kernel[(triton.cdiv(x.numel(), 1024),)](x, out, x.numel(), BLOCK=1024)
    return out
"""
MODEL = """

class ModelNew(nn.Module):
    def forward(self, x):
        return scale(x.contiguous())
"""


def triton(before: str = "", kernel: str = KERNEL, model: str = MODEL) -> str:
    return TRITON_HEAD + before + kernel + model


CUDA_KERNEL = """\
#include <torch/extension.h>
#include <cuda_runtime.h>

__global__ void scale_kernel(const float* x, float* out, int64_t n) {
    int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] * 3.0f;
}
"""
CUDA_LAUNCH = """
torch::Tensor scale(torch::Tensor x) {
    auto out = torch::empty_like(x);
    scale_kernel<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), out.data_ptr<float>(), x.numel());
    return out;
}
"""


def cuda(kernel: str = CUDA_KERNEL, launch: str = CUDA_LAUNCH, before: str = "", model: str = "") -> str:
    return (
        "import torch\nimport torch.nn as nn\nfrom torch.utils.cpp_extension import load_inline\n"
        f'{before}\nsource = r"""\n{kernel}{launch}"""\n'
        'extension = load_inline(name="scale", cpp_sources="torch::Tensor scale(torch::Tensor x);",\n'
        '                        cuda_sources=source, functions=["scale"])\n'
        + (
            model
            or "\n\nclass ModelNew(nn.Module):\n    def forward(self, x):\n"
            "        return extension.scale(x.contiguous())\n"
        )
    )


CLEAN = {
    "K1 optional import": triton(
        before="try:\n    import apex_tools\nexcept ImportError:\n    apex_tools = None\n"
        "import importlib\ntry:\n    extra = importlib.import_module('extra_tools')\n"
        "except ImportError:\n    extra = None\n"
    ),
    "K2 build that raises again": cuda()
    .replace("extension = load_inline(", "try:\n  extension = load_inline(")
    .replace(
        'functions=["scale"])\n',
        'functions=["scale"])\nexcept RuntimeError as error:\n'
        "  raise RuntimeError('the extension does not build') from error\n",
    ),
    "K3 pass": triton(
        before='"""Do not pass through torch.matmul; try, except: pass."""\n\n\nclass Nothing:\n    pass\n',
        kernel=KERNEL.replace("    keep =", "    if BLOCK > 4096:\n        pass\n    keep ="),
    ),
    "K4 functional unused": triton(),
    "K4 functional pads": triton(model=MODEL.replace("x.contiguous()", "F.pad(x, (0, 4)).contiguous()")),
    "K5 layers hold parameters": triton(
        model="""

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(64, 64)
        self.conv = nn.Conv2d(3, 8, 3)

    def forward(self, x):
        return scale(self.linear.weight) if self.conv.bias is None else scale(x)
"""
    ),
    "K6 output buffers": triton(
        model="""

class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty(x.shape, device=x.device, dtype=x.dtype)
        more = torch.empty_like(out)
        scale_kernel[(8,)](x, out, x.numel(), BLOCK=1024)
        scale_kernel[(8,)](out, more, x.numel(), BLOCK=1024)
        return more
"""
    ),
    "K6 output buffer kept between calls": triton(
        model="""

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.out = None

    def forward(self, x):
        if self.out is None:
            self.out = torch.empty_like(x)
        scale_kernel[(8,)](x, self.out, x.numel(), BLOCK=1024)
        return self.out
"""
    ),
    "K7 graph that copies": triton(
        model="""

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.graph = None

    def forward(self, x):
        if self.graph is None:
            self.inputs = x.clone()
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                scale(self.inputs)
            torch.cuda.current_stream().wait_stream(side)
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.output = scale(self.inputs)
        self.inputs.copy_(x)
        self.graph.replay()
        return self.output.clone()
"""
    ),
    "K8 weights prepared in the constructor": triton(
        model="""

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64, 64))
        self.packed = self.weight.detach().t().contiguous().half()

    def forward(self, x):
        return scale(self.packed)
"""
    ),
    "K8 weights prepared in the first forward": triton(
        model="""

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64, 64))
        self.packed = None

    def forward(self, x):
        if self.packed is None:
            self.packed = self.weight.detach().t().contiguous()
        return scale(self.packed)
"""
    ),
    "K8 weights prepared in C++": cuda(
        launch="""
torch::Tensor scale(torch::Tensor x) {
    static torch::Tensor packed;
    if (!packed.defined()) packed = x.t().contiguous();
    auto out = torch::empty_like(x);
    scale_kernel<<<64, 256>>>(packed.data_ptr<float>(), out.data_ptr<float>(), x.numel());
    return out;
}
"""
    ),
    "K9 cached builder": cuda(
        before="import functools\n",
    )
    .replace("extension = load_inline(", "@functools.lru_cache(maxsize=None)\ndef build():\n  return load_inline(")
    .replace("return extension.scale(", "return build().scale("),
    "K9 modules by shape": triton(
        model="""

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = {}

    def forward(self, x):
        key = (x.shape, x.dtype)
        if key not in self.blocks:
            self.blocks[key] = triton.next_power_of_2(x.shape[-1])
        out = torch.empty_like(x)
        scale_kernel[(8,)](x, out, x.numel(), BLOCK=self.blocks[key])
        return out
"""
    ),
    "K10 streams that wait": triton(
        model="""

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.side = torch.cuda.Stream()

    def forward(self, x):
        self.side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.side):
            left = scale(x)
        right = scale(x)
        torch.cuda.current_stream().wait_stream(self.side)
        return torch.stack([left, right])
"""
    ),
    "K10 streams that wait in C++": cuda(
        launch="""
torch::Tensor scale(torch::Tensor x) {
    auto out = torch::empty_like(x);
    static cudaStream_t side = [] { cudaStream_t s; cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking); return s; }();
    cudaEvent_t begin, end;
    cudaEventCreateWithFlags(&begin, cudaEventDisableTiming);
    cudaEventCreateWithFlags(&end, cudaEventDisableTiming);
    cudaEventRecord(begin, at::cuda::getCurrentCUDAStream());
    cudaStreamWaitEvent(side, begin, 0);
    scale_kernel<<<64, 256, 0, side>>>(x.data_ptr<float>(), out.data_ptr<float>(), x.numel());
    cudaEventRecord(end, side);
    cudaStreamWaitEvent(at::cuda::getCurrentCUDAStream(), end, 0);
    return out;
}
"""
    ),
    "K11 current stream": cuda(
        kernel="#include <ATen/cuda/CUDAContext.h>\n" + CUDA_KERNEL,
        launch=CUDA_LAUNCH.replace("256>>>", "256, 0, at::cuda::getCurrentCUDAStream()>>>"),
    ),
    "K12 half precision": cuda(
        kernel="#include <cuda_fp16.h>\n#include <mma.h>\n"
        + CUDA_KERNEL.replace(
            "if (i < n)",
            "__shared__ __half tile[256];\n    tile[threadIdx.x] = __float2half(x[i]);\n"
            "    float sum = 0.0f;\n    sum += __half2float(tile[threadIdx.x]);\n    if (i < n)",
        )
    ),
    "K12 tf32 in Triton": triton(
        kernel=KERNEL.replace("* 3.0", "")
        .replace("tl.store(", "tile = tl.dot(a, b, input_precision='tf32', out_dtype=tl.float32)\n    tl.store(")
        .replace("tl.load(x_ptr + offs, mask=keep)", "tile.to(tl.float16)")
        .replace("    keep = offs < n", "    keep = offs < n\n    a = b = tl.load(x_ptr + offs)")
    ),
    "K13 glue": triton(
        model="""

class ModelNew(nn.Module):
    def forward(self, x):
        rows = x.reshape(-1, x.shape[-1]).transpose(0, 1).contiguous()
        return scale(rows).view(-1).sum()
"""
    ).replace(
        "return scale(rows).view(-1).sum()",
        "parts = torch.empty_like(rows)\n"
        "        scale_kernel[(8,)](rows, parts, rows.numel(), BLOCK=1024)\n"
        "        return parts.view(-1, 8).sum(dim=1)",
    ),
    "K13 loss mean": cuda().replace(
        "return extension.scale(x.contiguous())", "loss = extension.scale(x.contiguous())\n        return loss.mean()"
    ),
    "K13 reduction in a helper": triton(kernel=KERNEL.replace("return out", "return out.view(8, -1).sum(dim=0)")),
    "K13 mean by function": triton(kernel=KERNEL.replace("return out", "return torch.mean(out)")),
    "K13 glue in C++": cuda(launch=CUDA_LAUNCH.replace("return out;", "return out.view({-1, 8}).sum(1).contiguous();")),
    "K14 in place on its own buffer": triton(
        model=MODEL.replace(
            "return scale(x.contiguous())",
            "out = scale(x.contiguous())\n"
            "        scale_kernel[(8,)](out, out, out.numel(), BLOCK=1024)\n        return out",
        ),
    ),
    "K14 a view is returned": triton(
        model=MODEL.replace("return scale(x.contiguous())", "scale(x)\n        return x.view(x.shape[0], -1)")
    ),
    "K15 atomics": cuda(kernel=CUDA_KERNEL.replace("out[i] = x[i] * 3.0f;", "atomicAdd(&out[i % 64], x[i]);")),
    "K16 fused chain": triton(kernel=KERNEL.replace("* 3.0", "* 3.0 + 1.0")),
    "K17 useless work removed": triton(
        model=MODEL.replace(
            "return scale(x.contiguous())",
            "# The softmax over one column is 1.\n        return scale(torch.ones(x.shape[0], 1, device=x.device))",
        )
    ),
    "K18 online softmax": cuda(
        kernel=CUDA_KERNEL.replace(
            "if (i < n)",
            "float peak = -INFINITY, sum = 0.0f;\n"
            "    for (int c = 0; c < 64; ++c) {\n        float old = peak;\n"
            "        peak = fmaxf(peak, x[c]);\n"
            "        sum = sum * __expf(old - peak) + __expf(x[c] - peak);\n    }\n    if (i < n)",
        )
    ),
    "K19 cooperative and dependent launches": cuda(
        kernel="#include <cooperative_groups.h>\n"
        + CUDA_KERNEL.replace("if (i < n)", "cooperative_groups::this_grid().sync();\n    if (i < n)"),
        launch="""
torch::Tensor scale(torch::Tensor x) {
    auto out = torch::empty_like(x);
    int64_t n = x.numel();
    const float* from = x.data_ptr<float>();
    float* to = out.data_ptr<float>();
    void* arguments[] = {&from, &to, &n};
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute attribute[1];
    attribute[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute[0].val.programmaticStreamSerializationAllowed = 1;
    config.attrs = attribute;
    cudaLaunchKernelEx(&config, scale_kernel, from, to, n);
    cudaLaunchCooperativeKernel((void*)scale_kernel, dim3(64), dim3(256), arguments, 0, nullptr);
    return out;
}
""",
    ),
    "K20 autotuning": triton(
        kernel=KERNEL.replace(
            "@triton.jit",
            "@triton.autotune(configs=[triton.Config({'BLOCK': b}) for b in (256, 1024)], key=['n'])\n@triton.jit",
        ).replace(", BLOCK=1024)", ")")
    ),
    "K21 ctypes and NVRTC": f'''import ctypes
import torch
import torch.nn as nn

SOURCE = r"""
extern "C" {CUDA_KERNEL.split("cuda_runtime.h>", 1)[1].strip()}
"""
cuda = ctypes.CDLL("libcuda.so.1")
kernel = torch.cuda._compile_kernel(SOURCE, "scale_kernel")


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        pointer = ctypes.c_void_p(x.data_ptr())
        assert ctypes.cast(pointer, ctypes.c_void_p).value == x.data_ptr()
        kernel((64, 1, 1), (256, 1, 1), [x, out, x.numel()])
        return out
''',
    "K21 cupy": f'''import cupy
import torch
import torch.nn as nn

kernel = cupy.RawKernel(r"""
extern "C" {CUDA_KERNEL.split("cuda_runtime.h>", 1)[1].strip()}
""", "scale_kernel")


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        with cupy.cuda.ExternalStream(torch.cuda.current_stream().cuda_stream):
            kernel((64,), (256,), (x.data_ptr(), out.data_ptr(), x.numel()))
        return out
''',
    "K22 guards": triton(
        model=MODEL.replace(
            "return scale",
            "assert x.is_cuda and x.is_contiguous(), 'a contiguous tensor'\n"
            "        if x.dtype != torch.float32:\n            raise TypeError('float32 is needed')\n"
            "        return scale",
        )
    ),
    "K22 guards in C++": cuda(
        launch=CUDA_LAUNCH.replace(
            "auto out",
            'TORCH_CHECK(x.is_cuda(), "x must be on the GPU");\n'
            '    if (cudaGetLastError() != cudaSuccess) { fprintf(stderr, "error"); exit(1); }\n'
            "    auto out",
        )
    ),
    "K23 static properties and handles": cuda(
        kernel="#include <cublas_v2.h>\n#include <unordered_map>\n" + CUDA_KERNEL,
        launch="""
static cublasHandle_t handle = nullptr;
static std::unordered_map<int, cudaDeviceProp> properties;

static int processors() {
    static int count = -1;
    int device;
    cudaGetDevice(&device);
    if (count < 0) cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
    if (properties.find(device) == properties.end()) cudaGetDeviceProperties(&properties[device], device);
    if (handle == nullptr) cublasCreate(&handle);
    return count;
}
"""
        + CUDA_LAUNCH.replace("(x.numel() + 255) / 256", "processors()"),
    ),
    "K24 pragmas and slashes": cuda(
        before="URL = 'https://example.org//a'\n",
        kernel="#pragma once\n"
        + CUDA_KERNEL.replace(
            "if (i < n)",
            "#pragma unroll 4\n    for (int k = 0; k < 4; ++k) {}\n"
            '    const char* url = "https://example.org//at::matmul(";\n    if (i < n)',
        ),
    ),
    "K25 broadcast view": triton(model=MODEL.replace("x.contiguous()", "x.expand(8, *x.shape[1:])")),
}


def findings(source: str) -> list[Finding]:
    built, compiled = extension_facts(source, "cuda"), runtime_facts(source)
    facts = SourceFacts(
        (*find_kernels(source), *built.kernels, *compiled.kernels), (*built.embedded, *compiled.embedded)
    )
    return list(SourceRules(SourceRulesConfig()).check(Candidate(source, "cuda", facts=facts), TASK, None))


@pytest.mark.parametrize("name", CLEAN)
def test_an_honest_source_has_no_finding_above_a_note(name: str) -> None:
    compile(CLEAN[name], name, "exec")
    assert [finding for finding in findings(CLEAN[name]) if finding.severity is not Severity.NOTE] == []


def test_every_clean_case_has_a_source() -> None:
    assert {int(name.split()[0].removeprefix("K")) for name in CLEAN} == set(range(1, 26))
