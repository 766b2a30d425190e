"""C++ that kernels do not need is told, and what they need is left alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelrl_core.types import Candidate, Finding, SourceFacts, Task
from kernelrl_plugin_checkers.config import SourceRulesConfig
from kernelrl_plugin_checkers.cpp_vocabulary import MEMBERS, is_known
from kernelrl_plugin_checkers.source_rules import SourceRules
from kernelrl_plugin_checkers.torch_names import OPERATORS

HEAD = "#include <torch/extension.h>\n"
KERNEL = (
    "__global__ void twice(const float* a, float* y, int n) {\n"
    "  int i = threadIdx.x;\n  if (i < n) y[i] = 2 * a[i];\n}\n"
)


def unusual(*lines: str) -> list[Finding]:
    text = HEAD + "\n".join(lines) + "\n"
    source = f"import torch\nsource = {text!r}\n\n\nclass ModelNew(torch.nn.Module):\n    pass\n"
    found = SourceRules(SourceRulesConfig()).check(Candidate(source, "cuda", facts=SourceFacts()), Task("t", ""), None)
    return [finding for finding in found if finding.rule == "unusual_cpp"]


def host(*lines: str) -> list[Finding]:
    """Findings on the body of a function of tensors."""
    return unusual("torch::Tensor run(torch::Tensor x, torch::Tensor w) {", *lines, "  return x;", "}")


TOLD = {
    "an object of Python": "py::object o = py::none();",
    "C functions of Python": 'PyObject_SetAttrString(nullptr, "a", nullptr);',
    "the dispatcher": 'auto op = c10::Dispatcher::singleton().findSchema({"a", ""});',
    "an operator by an odd name": "auto y = at::native_dropout_backward(x, w, 1.0);",
    "an operator found by its arguments": "auto y = kron(x, w);",
    "a method that computes": "auto y = x.kron(w);",
    "a method in parentheses": "auto y = (x.cosh)();",
    "a member that nobody has": "x.unsafeGetTensorImpl();",
    "arithmetic on tensors": "auto y = x * w;",
    "memory that is not the candidate's": "auto y = torch::from_blob(nullptr, {4});",
    "a function of the operating system": "auto* p = mmap(nullptr, 1, 3, 34, -1, 0);",
    "one of the global namespace": 'auto* p = ::dlopen("a", 1);',
    "one named after a variable of another block": "{ auto getpid = [] { return 1; }; } getpid();",
    "the environment": 'auto* v = std::getenv("A");',
    "a thread": "std::thread t([] {}); t.join();",
    "a list that is kept": "static std::vector<long> kept;",
    "a pointer that is kept": "static float* kept = nullptr;",
    "assembly of the host": 'asm volatile("rdtsc");',
    "a pointer to a function": "void (*f)(int) = nullptr;",
    "a name that is no ASCII": "int \\u00e9 = 1;",
}


@pytest.mark.parametrize(
    "own",
    [
        "inline int PyEval_GetGlobals(int level) { return 8 << level; }",
        "struct PyEval_GetGlobals { int level; };",
        "#define PyEval_GetGlobals(level) (8 << level)",
        "namespace own { int PyEval_GetGlobals(int level); }\nusing namespace own;",
    ],
)
def test_a_name_of_the_interpreters_is_told_though_the_source_defines_it(own: str) -> None:
    assert unusual(own, "torch::Tensor run(torch::Tensor x) { auto* found = PyEval_GetGlobals(); return x; }")


@pytest.mark.parametrize("line", TOLD.values(), ids=TOLD)
def test_what_leads_out_of_a_function_is_told(line: str) -> None:
    assert host(f"  {line}")


OUTSIDE = {
    "a registration": 'TORCH_LIBRARY(own, m) { m.def("f", [] {}); }',
    "a header of the system": "#include <sys/mman.h>",
    "a variable outside of functions": "static long calls = 0;",
    "a call when the library is loaded": "long first();\nlong first() { return 1; }\nconst long at_load = first();",
    "a function that something else defines": "int getpid();",
    "a function of C that a library has": 'extern "C" int memcmp(const void* a, const void* b, size_t n) { return 0; }',
    "an attribute of a function": "__attribute__((constructor)) void first() {}",
    "a namespace of torch under another name": "namespace n = torch::nn::functional;",
    "pasted names": "#define JOIN(a, b) a##b",
    "a macro that is a part of a name": "#define AT(name) at::name",
    "a point in a macro": "#define POINT .",
    "a keyword that means something else": "#define __device__",
    "a branch that is never compiled": "#if 0\nint x();\n#endif",
    "a head that is made of branches": "#ifdef __CUDA_ARCH__\n__device__\n#endif\nvoid f() {}",
    "a literal with a suffix": 'auto f() { return 1.0_x + "a"_y; }',
    "a suffix of one's own": 'long operator""_y(const char* t, size_t n) { return 1; }',
    "an item of the module": 'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.attr("version") = 1; }',
    "a pragma that renames": "#pragma redefine_extname memcpy other",
    "another spelling of marks": "void f() <% %>",
}


@pytest.mark.parametrize("lines", OUTSIDE.values(), ids=OUTSIDE)
def test_what_has_no_place_in_a_source_is_told(lines: str) -> None:
    assert unusual(lines)


def test_a_name_of_another_branch_or_namespace_makes_no_name_free() -> None:
    assert unusual("#ifdef __HIPCC__\nint getpid() { return 1; }\n#endif", "int f() { return getpid(); }")
    assert unusual("struct A { static int getpid() { return 1; } };", "int f() { return getpid(); }")


def test_the_construct_and_what_to_write_instead_are_named() -> None:
    (finding,) = host("  py::object o;")
    assert "py::object" in finding.evidence
    assert "leave Python to Python" in finding.evidence


PLAIN = {
    "a kernel and its launch": KERNEL
    + 'torch::Tensor run(torch::Tensor x) {\n  TORCH_CHECK(x.is_cuda() && x.dim() == 2, "2-D");\n'
    "  const at::cuda::OptionalCUDAGuard guard(device_of(x));\n  auto y = torch::empty_like(x);\n"
    "  auto stream = at::cuda::getCurrentCUDAStream();\n"
    "  twice<<<1, 32, 0, stream>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());\n"
    "  C10_CUDA_KERNEL_LAUNCH_CHECK();\n  return y;\n}\n"
    'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("run", &run, "Twice", py::arg("x")); }',
    "shared memory, shuffles and PTX": "__global__ void f(float* y) {\n  extern __shared__ float tile[];\n"
    "  float v = y[0];\n"
    "  v += __shfl_down_sync(0xffffffff, v, 16);\n"
    '  asm volatile("ex2.approx.f32 %0, %1;" : "=f"(v) : "f"(v));\n  tile[0] = __expf(v);\n  __syncthreads();\n}',
    "types by dispatch": "template <typename T, int N>\n__global__ void f(T* p) { p[0] = T(N); }\n"
    'void run(torch::Tensor x) {\n  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "run", [&] {\n'
    "    f<scalar_t, 4><<<1, 1>>>(x.data_ptr<scalar_t>());\n  });\n}",
    "vectors and structs": "struct Best { float value; int place; };\n"
    "__device__ Best better(Best a, const Best& b) { return a.value > b.value ? a : b; }\n"
    "__global__ void f(const float4* in, float (&out)[4]) { auto v = in[0]; out[0] = v.x + v.w; }",
    "loops of the processor": "#include <cmath>\nvoid run(torch::Tensor x) {\n  float* p = x.data_ptr<float>();\n"
    "  #pragma omp parallel for\n  for (int64_t i = 0; i < x.numel(); ++i) p[i] = std::tanh(p[i]);\n"
    "  at::parallel_for(0, 4, 1, [&](int64_t begin, int64_t end) { p[begin] = end; });\n}",
    "macros": '#define BLOCK 256\n#define CHECK(x) TORCH_CHECK(x.is_cuda(), #x " must be CUDA")\n'
    "#define LAUNCH(NAME) NAME##_kernel<<<1, BLOCK>>>()\n__global__ void a_kernel() {}\n"
    "void run(torch::Tensor x) { CHECK(x); LAUNCH(a); }",
    "warp matrices": "#include <mma.h>\nusing namespace nvcuda;\n__global__ void f(const half* a) {\n"
    "  wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major> left;\n"
    "  wmma::load_matrix_sync(left, a, 16);\n}",
    "a limit that is set once": "__global__ void f() {}\nvoid run() {\n  static bool done = false;\n"
    "  if (!done) cudaFuncSetAttribute(f, cudaFuncAttributeMaxDynamicSharedMemorySize, 65536);\n  done = true;\n}",
}


@pytest.mark.parametrize("text", PLAIN.values(), ids=PLAIN)
def test_plain_code_is_left_alone(text: str) -> None:
    assert [finding.evidence for finding in unusual(text)] == []


def test_a_function_of_another_text_counts_as_defined() -> None:
    texts = "void run(torch::Tensor x);\n", "void run(torch::Tensor x) { x.zero_(); }\n"
    source = f"import torch\na = {texts[0]!r}\nb = {texts[1]!r}\n"
    found = SourceRules(SourceRulesConfig()).check(Candidate(source, "cuda", facts=SourceFacts()), Task("t", ""), None)
    assert "unusual_cpp" not in {finding.rule for finding in found}


def test_operators_of_torch_and_vendors_are_told_by_their_own_rule() -> None:
    assert not host("  auto y = at::matmul(x, w);")


@given(st.sampled_from(["at", "torch", "c10"]), st.from_regex(r"[a-z_][a-z0-9_]{2,12}", fullmatch=True))
def test_an_unknown_function_of_torch_is_told(root: str, name: str) -> None:
    stem = name.removesuffix("_out").removesuffix("_outf").rstrip("_")
    if is_known((root, name)) or name in MEMBERS or {name, stem} & OPERATORS:
        return
    assert host(f"  auto y = {root}::{name}(x);") or name in _KEYWORDS


MARKS = (*"{}()<>[];,.#\n=", "##", "::", "a", "int", "struct", "template", "operator", "using", "namespace")
_KEYWORDS = frozenset({"template", "operator"})


@given(st.lists(st.sampled_from(MARKS)))
def test_no_text_is_refused(parts: list[str]) -> None:
    unusual(" ".join(parts))


@pytest.mark.parametrize(("unread", "told"), [("line 4: cpp_sources of load_inline cannot be read", False), ("", True)])
def test_a_template_is_judged_by_what_is_built_of_it(unread: str, told: bool) -> None:
    template = HEAD + "float f(float x) { return x * FACTOR; }\n"
    source = f"import torch\ntext = {template!r}\nextension = load_inline('e', made(text))\n"
    candidate = Candidate(source, "cuda", facts=SourceFacts(unread=unread))
    found = SourceRules(SourceRulesConfig()).check(candidate, Task("t", ""), None)
    assert any(finding.rule == "unusual_cpp" for finding in found) is told
