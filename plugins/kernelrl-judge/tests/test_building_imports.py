"""What a shared object imports, read from files that a linker made."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelrl_judge.building.imports import library_imports
from kernelrl_judge.operators import computing_symbols

_TORCH = """
namespace at {
namespace _ops { struct relu { static int call(int); }; struct empty_like { static int call(int); }; }
namespace cpu { int clamp_min(int); }
}
"""
compiles = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")


def _built(tmp_path: Path, source: str) -> Path:
    (tmp_path / "a.cpp").write_text(source)
    subprocess.run(["g++", "-shared", "-fPIC", "a.cpp", "-o", "a.so"], cwd=tmp_path, check=True)
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
def test_what_a_candidate_defines_by_itself_is_no_import(tmp_path: Path) -> None:
    source = 'extern "C" void sgemm_(int) {}\nvoid f() { sgemm_(1); }'
    assert library_imports(_built(tmp_path, source), "cpp") == []


@compiles
def test_functions_found_by_name_are_suspect_on_the_processor_alone(tmp_path: Path) -> None:
    built = _built(tmp_path, '#include <dlfcn.h>\nvoid* f() { return dlsym(RTLD_DEFAULT, "x"); }')
    assert (library_imports(built, "cpp"), library_imports(built, "cuda")) == (["dlsym"], [])


def test_what_arranges_or_sums_does_not_compute() -> None:
    named = ["aten::empty_like", "aten::sum", "aten::relu", "cublasSgemm_v2"]
    assert computing_symbols(named) == ["aten::relu", "cublasSgemm_v2"]


@given(st.binary(max_size=300))
def test_what_is_no_shared_object_imports_nothing(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "odd.so"
    path.write_bytes(b"\x7fELF\x02\x01" + content)
    assert library_imports(path, "cpp") == []
