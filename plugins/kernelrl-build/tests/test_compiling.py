"""Extensions that g++ builds, compared with an ordinary module of the same functions."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kernelrl_build.compiling import Compiled, CompileError, compile_extension
from kernelrl_build.diagnosis import Diagnosis
from kernelrl_build.inline_request import InlineRequest
from kernelrl_build.prepare import Prepared, prepare
from kernelrl_build.toolchain import find_toolchain

pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")]

_FUNCTIONS = r"""
torch::Tensor add(torch::Tensor a, const torch::Tensor& b) { return a + b; }
torch::Tensor maybe(torch::Tensor a, c10::optional<at::Tensor> b) { return b ? a + *b : a.clone(); }
std::vector<torch::Tensor> append(std::vector<torch::Tensor> xs, std::vector<int64_t> sizes) {
  xs.push_back(torch::full(sizes, 3));
  return xs;
}
std::tuple<torch::Tensor, torch::Tensor> two(torch::Tensor a, double eps) { return {a, a + eps}; }
std::pair<torch::Tensor, torch::Tensor> pair(torch::Tensor a, float eps) { return {a, a + eps}; }
std::tuple<torch::Tensor, torch::Tensor, torch::Tensor> three(torch::Tensor a) { return std::make_tuple(a, a, a + 2); }
int64_t count(torch::Tensor a, int64_t n, int k, bool flag) { return flag ? a.numel() + n : k; }
double sum(double x, float y) { return x + y; }
bool opposite(bool b) { return !b; }
void increase(torch::Tensor& out, const std::string& mode) { TORCH_CHECK(mode == "x", "mode is ", mode); out.add_(1); }
torch::Tensor fail(int kind) {
  if (kind == 1) throw std::invalid_argument("one");
  if (kind == 2) throw std::out_of_range("two");
  if (kind == 3) throw std::bad_alloc();
  if (kind == 4) TORCH_CHECK_INDEX(false, "four");
  if (kind == 5) TORCH_CHECK_VALUE(false, "five");
  if (kind == 6) TORCH_CHECK_NOT_IMPLEMENTED(false, "six");
  throw std::runtime_error("others");
}
"""

USUAL_FLAGS = ("-O3", "-march=native", "-fopenmp")
"""Those of kernels for the CPU. Each variant has its own precompiled headers, and these exist already."""

Build = Callable[..., Compiled]


def _run(argv: list[str], cwd: Path) -> tuple[int, str, float]:
    done = subprocess.run(argv, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.returncode, done.stdout, 0.0


@pytest.fixture(scope="module")
def prepared(kernelrl_cache: Path) -> Prepared:
    directory = kernelrl_cache / "builds"
    return prepare(find_toolchain("cpp", directory), directory / "toolchains")


@pytest.fixture
def build(prepared: Prepared, tmp_path: Path) -> Build:
    def run(source: str, *functions: str, cflags: tuple[str, ...] = USUAL_FLAGS) -> Compiled:
        named = tuple((name, name) for name in functions)
        request = InlineRequest("cpp", "x", (source,), (), named, cflags, (), (), (), ())
        return compile_extension(request, prepared, tmp_path, run=_run)

    return run


def _load(name: str, path: Path | str) -> Any:
    loader = importlib.machinery.ExtensionFileLoader(name, str(path))
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def _outcome(function: Any, arguments: list[Any], named: dict[str, Any]) -> Any:
    import torch

    copies = [value.clone() if type(value) is torch.Tensor else value for value in arguments]
    try:
        result = function(*copies, **named)
    except Exception as error:
        # The text of an error about arguments names types in other words.
        return type(error), "" if isinstance(error, TypeError) else str(error).splitlines()[0]
    return _plain(result), _plain(copies)


def _plain(value: Any) -> Any:
    import torch

    if isinstance(value, torch.Tensor):
        return type(value), value.dtype, value.shape, value.requires_grad, value.tolist()
    if isinstance(value, list | tuple):
        return type(value), [_plain(item) for item in value]
    return type(value), repr(value)


def test_bound_functions_behave_like_those_of_an_ordinary_module(
    prepared: Prepared, build: Build, tmp_path: Path
) -> None:
    import torch

    usual: dict[str, list[Any]] = {
        "add": [torch.ones(3), torch.ones(3)],
        "maybe": [torch.ones(3), None],
        "append": [[torch.ones(3)], [2]],
        "two": [torch.ones(3), 0.5],
        "pair": [torch.ones(3), 0.5],
        "three": [torch.ones(3)],
        "count": [torch.ones(3), 1, 2, True],
        "sum": [1.0, 2.0],
        "opposite": [True],
        "increase": [torch.ones(3), "x"],
        "fail": [0],
    }
    built = build(_FUNCTIONS, *usual)
    assert built.route == "bound"
    ours = _load("kernelrl_binder", prepared.binder()).bind(built.path, json.dumps(built.bindings))

    definitions = "".join(f'm.def("{name}", torch::wrap_pybind_function({name}));' for name in usual)
    source = tmp_path / "ordinary.cpp"
    source.write_text(f"#include <torch/extension.h>\n{_FUNCTIONS}\nPYBIND11_MODULE(ordinary, m) {{ {definitions} }}\n")
    paths = [f"-L{path}" for path in prepared.toolchain.library_dirs]
    header = prepared.header("extension", USUAL_FLAGS)
    # -O1 takes the header of -O3, and half the time.
    command = [*prepared.host_command((*USUAL_FLAGS, "-O1")), f"-I{header.parent}", "-include", header.name, "-shared"]
    command += [str(source), "-o", str(tmp_path / "ordinary.so"), *paths]
    status, log, _ = _run([*command, "-lc10", "-ltorch_cpu", "-ltorch", "-ltorch_python"], tmp_path)
    assert status == 0, log
    ordinary = _load("ordinary", tmp_path / "ordinary.so")

    values: list[Any] = [
        *(torch.ones(3), torch.nn.Parameter(torch.ones(3)), torch.tensor(3), None, 1, 2.5, True, "x", "y", b"x", -1),
        *(2**31, 2**63, 2**64, 1e300),
        *([torch.ones(2)], (torch.ones(2),), [1, 2], torch.Size([2]), [], [None], [1.5]),
    ]
    for name, arguments in usual.items():
        calls = [(arguments, {}), (arguments[:-1], {}), ([*arguments, 1], {}), (arguments[:-1], {"arg": arguments[-1]})]
        for place in range(len(arguments)):
            calls += [([*arguments[:place], value, *arguments[place + 1 :]], {}) for value in values]
        calls += [([kind], {}) for kind in range(8)] if name == "fail" else []
        for given, named in calls:
            expected = _outcome(getattr(ordinary, name), given, named)
            assert _outcome(ours[name], given, named) == expected, (name, given, named)


def test_flags_of_the_candidate_have_the_last_word(build: Build) -> None:
    source = "#if __cplusplus < 202002L || ROWS != 3\n#error\n#endif\ntorch::Tensor f(torch::Tensor a) { return a; }"
    assert build(source, "f", cflags=(*USUAL_FLAGS, "-O2 -DROWS=3", "-std=c++20")).route == "bound"


def test_a_mistake_is_reported_with_the_lines_of_the_source_and_without_paths(build: Build, tmp_path: Path) -> None:
    with pytest.raises(CompileError) as error:
        build("// first\ntorch::Tensor f(torch::Tensor a) {\n  return a.numle();\n}\n", "f")
    text = str(error.value)
    assert "main.cpp:3:" in text
    assert "return a.numle();" in text
    assert str(tmp_path) not in text
    assert "site-packages" not in text


def test_a_function_that_is_bound_and_not_declared_is_reported_as_a_mistake_in_the_argument(build: Build) -> None:
    with pytest.raises(CompileError) as error:
        build("torch::Tensor f(torch::Tensor a) {\n  return a;\n}\n", "nope")
    assert str(error.value) == "functions names 'nope', which cpp_sources neither declares nor defines"


def test_another_mistake_is_reported_without_the_generated_lines(build: Build) -> None:
    with pytest.raises(CompileError) as error:
        build("torch::Tensor f(torch::Tensor a) { return a; }\n3\n", "f")
    assert re.match(r"main\.cpp:[23]:", str(error.value))
    assert "pybind11_" not in str(error.value)


def test_a_name_that_headers_use_and_do_not_declare_is_the_candidates_mistake(
    build: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Prepared, "known_names", lambda self: frozenset([b"stride"]))
    tested: list[str] = []

    def visible(self: Diagnosis, names: set[str], log: str) -> set[str]:
        tested.extend(names)
        return set()

    monkeypatch.setattr(Diagnosis, "_visible", visible)
    with pytest.raises(CompileError, match="stride"):
        build("int64_t f(torch::Tensor a) { return stride; }", "f")
    assert tested == ["stride"]


_HIP = """\
#include <torch/extension.h>
#include <hip/hip_runtime.h>
__global__ void k(float* x) { x[threadIdx.x] *= 2; }
torch::Tensor f(torch::Tensor x) { k<<<1, 32>>>(x.data_ptr<float>()); return x; }
"""


def _hip(source: str, directory: Path) -> Compiled:
    toolchain = find_toolchain("hip", directory)
    request = InlineRequest("hip", "x", (), (source,), (("f", "f"),), (), (), (), (), ("gfx90a",), device_only=True)
    return compile_extension(request, prepare(toolchain, directory), directory, run=_run)


@pytest.mark.skipif(shutil.which("hipcc") is None, reason="needs hipcc")
def test_device_code_of_hip_is_compiled_without_headers_of_torch(tmp_path: Path) -> None:
    assert _hip(_HIP, tmp_path).kind == "device_only"


@pytest.mark.skipif(shutil.which("hipcc") is None, reason="needs hipcc")
def test_a_mistake_in_device_code_of_hip_is_reported_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match=r"cuda\.cu:3:.*'y'"):
        _hip(_HIP.replace("x[threadIdx.x]", "y[0]"), tmp_path)


_FUNCTOR = """\
#include <torch/extension.h>
#include <cuda_runtime.h>
static int blocks(int n) { return (n + 31) / 32; }
struct Scale { float s; int grid(int n) const { return blocks(n); }
  __device__ float operator()(float a) const { return a * s; } };
template <typename F> __global__ void k(float* x, F f) { x[threadIdx.x] = f(x[threadIdx.x]); }
torch::Tensor f(torch::Tensor x) { Scale s{2.f}; k<<<s.grid(9), 32>>>(x.data_ptr<float>(), s); return x; }
"""


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", ""),
        ("static int blocks", "static int count = 0;\nstatic int blocks"),
        ("return blocks(n)", "return std::vector<int>(n).size()"),
        ("static int blocks(int n)", "__device__ int blocks(float n) { return 1; }\nstatic int blocks(int n)"),
        ("return blocks(n)", "TORCH_CHECK(n > 0); return n"),
    ],
    ids=["a function", "a variable", "the standard library", "an overload", "torch"],
)
def test_a_struct_for_the_device_that_uses_a_host_function_is_no_compile_error(
    old: str, new: str, tmp_path: Path
) -> None:
    assert _cuda(_FUNCTOR.replace(old, new) if old else _FUNCTOR, tmp_path).route in ("bound", "ordinary", "unchecked")


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="needs nvcc")
def test_a_mistake_in_a_struct_for_the_device_is_reported_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match=r"cuda\.cu.5.*nothing"):
        _cuda(_FUNCTOR.replace("return a * s", "return a * nothing").replace("blocks(n)", "n"), tmp_path)


def _cuda(source: str, directory: Path) -> Compiled:
    toolchain = find_toolchain("cuda", directory)
    request = InlineRequest("cuda", "x", (), (source,), (("f", "f"),), (), (), (), (), ("9.0",), device_only=True)
    return compile_extension(request, prepare(toolchain, directory), directory, run=_run)
