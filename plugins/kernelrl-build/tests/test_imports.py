"""Imports of shared objects, read from files that a linker made."""

from __future__ import annotations

import shutil
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelrl_build import imports
from kernelrl_build.imports import library_imports

_TORCH = """
namespace at {
namespace _ops { struct relu { static int call(int); }; struct empty_like { static int call(int); }; }
namespace cpu { int clamp_min(int); }
}
"""
compiles = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")


def _built(tmp_path: Path, source: str, *flags: str) -> Path:
    (tmp_path / "a.cpp").write_text(source)
    subprocess.run(["g++", "-shared", "-fPIC", *flags, "a.cpp", "-o", "a.so"], cwd=tmp_path, check=True)
    return tmp_path / "a.so"


@compiles
def test_operators_are_found_however_the_source_names_them(tmp_path: Path) -> None:
    glued = (
        "#define GLUED(a, b) a##b\nint f(int x) { return at::_ops::GLUED(re, lu)::call(x) + at::cpu::clamp_min(x); }"
    )
    assert library_imports(_built(tmp_path, _TORCH + glued), "cpp") == ["aten::clamp_min", "aten::relu"]


@compiles
def test_a_label_for_the_assembler_hides_no_library(tmp_path: Path) -> None:
    source = 'extern "C" void mine(int) asm("sge" "mm_");\nvoid f() { mine(1); }'
    assert library_imports(_built(tmp_path, source), "cpp") == ["sgemm_"]


@compiles
def test_a_function_that_a_candidate_defines_is_no_import(tmp_path: Path) -> None:
    source = 'extern "C" __attribute__((weak, noinline)) void sgemm_(int) {}\nvoid f() { sgemm_(1); }'
    assert library_imports(_built(tmp_path, source, "-Wl,-Bsymbolic-functions"), "cpp") == []
    # If the loader may find a library's function instead, it is an import.
    assert library_imports(_built(tmp_path, source), "cpp") == ["sgemm_"]
    table = 'extern "C" long sgemm_[4] = {};\nlong* f() { return sgemm_; }'
    assert library_imports(_built(tmp_path, table, "-Wl,-Bsymbolic-functions"), "cpp") == ["sgemm_"]


@compiles
def test_functions_found_by_name_are_listed_on_the_cpu_alone(tmp_path: Path) -> None:
    built = _built(tmp_path, '#include <dlfcn.h>\nvoid* f() { return dlsym(RTLD_DEFAULT, "x"); }')
    assert (library_imports(built, "cpp"), library_imports(built, "cuda")) == (["dlsym"], [])


@compiles
def test_routes_around_the_operators_are_found(tmp_path: Path) -> None:
    source = """
    namespace at { namespace compositeimplicitautograd { int matmul(int); } }
    namespace c10 { struct Dispatcher { int findSchemaOrThrow(int) const; }; }
    namespace torch { namespace nn { struct LinearImpl { int forward(int); }; } }
    namespace torch { struct Library { Library(int); int _fallback(int); int _impl(int); }; }
    int f(c10::Dispatcher& all, torch::nn::LinearImpl& layer) {
        torch::Library library(1);
        return at::compositeimplicitautograd::matmul(all.findSchemaOrThrow(library._fallback(library._impl(1))))
            + layer.forward(1);
    }
    """
    found = ["aten::matmul", "c10::Dispatcher::findSchemaOrThrow", "torch::Library::_fallback"]
    found.append("torch::nn::LinearImpl::forward")
    built = _built(tmp_path, source)
    assert library_imports(built, "cpp") == library_imports(built, "cuda") == found


@compiles
def test_an_overload_has_the_name_of_its_operator(tmp_path: Path) -> None:
    source = """
    namespace at { namespace _ops {
    struct fill__Scalar { static int call(int); };
    struct add_Tensor { static int call(int); };
    struct _to_copy { static int call(int); };
    } }
    using namespace at::_ops;
    int f(int x) { return fill__Scalar::call(x) + add_Tensor::call(x) + _to_copy::call(x); }
    """
    assert library_imports(_built(tmp_path, source), "cpp") == ["aten::_to_copy", "aten::add", "aten::fill_"]


@compiles
def test_a_tensor_of_numbers_is_not_listed(tmp_path: Path) -> None:
    source = "namespace at { int tensor(int); }\nint f() { return at::tensor(1); }"
    assert library_imports(_built(tmp_path, source), "cpp") == []


@compiles
def test_switches_of_the_dispatcher_are_listed(tmp_path: Path) -> None:
    source = """
    namespace c10 { namespace impl {
    void tls_set_dispatch_key_included(int, bool);
    struct ExcludeDispatchKeyGuard { ExcludeDispatchKeyGuard(int); ~ExcludeDispatchKeyGuard(); };
    } }
    void f() {
        c10::impl::ExcludeDispatchKeyGuard as_in_torch_empty(1);
        c10::impl::tls_set_dispatch_key_included(1, false);
    }
    """
    assert library_imports(_built(tmp_path, source), "cpp") == ["c10::impl::tls_set_dispatch_key_included"]


@compiles
def test_torchs_conversions_to_other_arrays_are_found(tmp_path: Path) -> None:
    source = "namespace torch { namespace utils { int tensor_to_numpy(int); } }\n"
    source += "int f() { return torch::utils::tensor_to_numpy(1); }"
    assert library_imports(_built(tmp_path, source), "cpp") == ["torch::utils::tensor_to_numpy"]


@compiles
def test_lists_of_the_loader_and_new_processes_are_listed_on_the_cpu(tmp_path: Path) -> None:
    source = "#include <link.h>\n#include <unistd.h>\nvoid* f() { return fork() ? 0 : _r_debug.r_map; }"
    assert library_imports(_built(tmp_path, source), "cpp") == ["_r_debug", "fork"]


def _importing(*names: str) -> str:
    declared = "".join(f'extern "C" void {name}();\n' for name in names)
    return f"{declared}void f() {{ {' '.join(f'{name}();' for name in names)} }}"


@compiles
def test_functions_that_let_python_objects_compute_are_listed_alone(
    tmp_path: Path,
) -> None:
    calling = [
        *("PyEval_EvalCode", "PyImport_ImportModule", "PyNumber_MatrixMultiply", "PyNumber_Multiply"),
        *("PyObject_CallMethod", "PyObject_CallObject", "PyObject_Vectorcall", "PyRun_SimpleStringFlags"),
        *("PySys_GetObject", "Py_CompileStringExFlags"),
    ]
    harmless = [
        *("PyDict_Next", "PyErr_SetString", "PyEval_RestoreThread", "PyEval_SaveThread", "PyGILState_Ensure"),
        *("PyList_Append", "PyLong_AsLong", "PyNumber_Float", "PyNumber_Long", "PyObject_CallFunctionObjArgs"),
        *("PyObject_GetAttrString", "PySequence_GetItem", "PyTuple_New", "THPVariable_Wrap", "_Py_Dealloc"),
    ]
    built = _built(tmp_path, _importing(*calling, *harmless))
    assert (library_imports(built, "cpp"), library_imports(built, "cuda")) == (calling, [])


@compiles
def test_imports_that_kernels_for_the_cpu_usually_need_are_not_listed(tmp_path: Path) -> None:
    source = """
    #include <algorithm>
    #include <atomic>
    #include <chrono>
    #include <cmath>
    #include <cstdio>
    #include <cstring>
    #include <future>
    #include <map>
    #include <mutex>
    #include <random>
    #include <sstream>
    #include <stdexcept>
    #include <thread>
    #include <unordered_map>
    #include <vector>
    static std::mutex mutex;
    double f(double* x, int n) {
        std::lock_guard<std::mutex> held(mutex);
        std::vector<std::thread> threads;
        for (int i = 0; i < n; ++i)
            threads.emplace_back([=] { x[i] = std::exp(x[i]) + std::erf(x[i]) + std::tgamma(x[i]) + lrint(x[i]); });
        for (auto& thread : threads) thread.join();
        std::map<std::string, int> names{{"a", 1}};
        std::unordered_map<int, float> more{{1, sinf(2.0f)}};
        std::ostringstream text;
        text << names["a"] << more[1] << std::chrono::steady_clock::now().time_since_epoch().count();
        if (n < 0) throw std::runtime_error(text.str());
        std::mt19937 random(1);
        std::sort(x, x + n);
        std::printf("%f", std::pow(x[0], std::fmax(x[1], (double)std::stoi(text.str()))));
        auto later = std::async(std::launch::async, [] { return std::thread::hardware_concurrency(); });
        _Float16 half = (_Float16)x[0];
        return std::uniform_real_distribution<double>()(random) + later.get() + (double)half;
    }
    """
    path = _built(tmp_path, source, "-std=c++17", "-O3", "-ffast-math", "-fopenmp", "-march=native")
    assert library_imports(path, "cpp") == []


_STREAMS = """
#include <fstream>
#include <iostream>
#include <locale>
#include <regex>
#include <stdexcept>
#include <thread>
double f(int n) {
    std::cout << std::use_facet<std::numpunct<char>>(std::locale("")).decimal_point() << n;
    std::thread([] { std::cerr << std::regex_match("a", std::regex("a")); }).join();
    try {
        if (n < 0) throw std::runtime_error("negative");
    } catch (const std::exception& error) {
        std::cout << error.what();
    }
    return n;
}
"""


@compiles
@pytest.mark.parametrize("flags", [(), ("-static-libstdc++", "-static-libgcc")])
def test_the_runtime_of_c_plus_plus_is_not_listed_however_it_is_linked(tmp_path: Path, flags: tuple[str, ...]) -> None:
    assert library_imports(_built(tmp_path, _STREAMS, "-std=c++17", *flags), "cpp") == []


@compiles
def test_the_loaders_list_is_listed_where_the_runtime_does_not_need_it(tmp_path: Path) -> None:
    source = "#include <link.h>\n#include <stdexcept>\n"
    source += 'int f(int n) { if (n) throw std::runtime_error(""); return dl_iterate_phdr(nullptr, nullptr); }'
    assert library_imports(_built(tmp_path, source), "cpp") == ["dl_iterate_phdr"]


@compiles
def test_functions_of_unknown_libraries_and_ways_to_them_are_listed(tmp_path: Path) -> None:
    names = ["LAPACKE_dgesv", "dlmopen", "execve", "mmap", "posix_spawn", "system"]
    assert library_imports(_built(tmp_path, _importing(*names)), "cpp") == names


@given(st.binary(max_size=300))
def test_a_file_that_is_no_shared_object_imports_nothing(
    tmp_path_factory: pytest.TempPathFactory, content: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "odd.so"
    path.write_bytes(b"\x7fELF\x02\x01" + content)
    assert library_imports(path, "cpp") == []


@pytest.mark.parametrize("name", ["cblas_" + "gemm" * 20_000 + ".", "_ZN2at3cpu" + "9" * 5_000 + "x", "1a" * 200_000])
def test_a_long_name_is_listed_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    (tmp_path / "empty").touch()
    monkeypatch.setattr(imports, "_looked_up", lambda content: [(name, False)])
    began = time.process_time()
    assert [len(listed) < 10_000 for listed in library_imports(tmp_path / "empty", "cpp")] == [True]
    assert time.process_time() - began < 0.5
