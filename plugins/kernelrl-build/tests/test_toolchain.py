"""Compilers that are missing, broken, or do not know a GPU: never the fault of a kernel."""

from __future__ import annotations

import os
import re
import time
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import attrs
import pytest

from kernelrl_build import survey as survey_module
from kernelrl_build.prepare import Prepared
from kernelrl_build.survey import precompiled_headers, prepares_headers, requires_compilers, survey
from kernelrl_build.toolchain import Toolchain, ToolchainMissing, find_compilers


def _program(path: Path, script: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def _toolchain(compiler: str, archs: tuple[str, ...] = ("7.5", "9.0", "10.0")) -> Toolchain:
    return Toolchain(
        language="cuda",
        cxx="/usr/bin/g++",
        device_compiler=compiler,
        version="",
        torch_version="",
        standard="",
        include_dirs=(),
        library_dirs=(),
        libraries=(),
        device_flags=(),
        has_device_headers=False,
        archs=archs,
    )


@pytest.fixture
def no_compilers(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("CUDA_HOME", "ROCM_HOME"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)


@pytest.mark.usefixtures("no_compilers")
@pytest.mark.parametrize(
    ("language", "programs"), [("cpp", ("g++",)), ("cuda", ("g++", "nvcc")), ("hip", ("g++", "hipcc"))]
)
def test_each_missing_compiler_is_named(language: str, programs: tuple[str, ...]) -> None:
    assert requires_compilers(language).executables == programs
    assert survey(language) == []
    with pytest.raises(ToolchainMissing, match=r"g\+\+"):
        find_compilers(language)


def test_without_torch_the_compilers_are_still_reported(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    for name in ("g++", "nvcc"):
        (tmp_path / name).write_text("#!/bin/sh\necho release 13.0, V13.0.1\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(metadata, "version", missing)
    assert [fact.label for fact in survey("cuda")] == ["g++", "nvcc", "precompiled headers"]


@pytest.mark.usefixtures("no_compilers")
def test_a_compiler_named_by_the_environment_has_another_fix_than_one_that_is_not_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CXX", "/nowhere/g++")
    assert "CXX" in requires_compilers("cpp").fix


@pytest.mark.usefixtures("no_compilers")
def test_nvcc_beside_the_path_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    nvcc = _program(tmp_path / "toolkit/bin/nvcc", "echo 'Cuda compilation tools, release 13.0, V13.0.88'")
    _program(tmp_path / "g++", "echo 'g++ (Debian) 12.2.0'")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "toolkit"))
    monkeypatch.setenv("KERNELRL_CACHE_DIR", str(tmp_path / "cache"))
    assert requires_compilers("cuda").executables == ()
    facts = survey("cuda")
    found = {fact.label: fact.detail for fact in facts}
    assert found["nvcc"] == f"13.0, {nvcc}"
    assert found["g++"].startswith("12.2.0")
    assert "not yet" in found["precompiled headers"]
    assert [fact.state for fact in facts] == ["ok", "ok", "pending"]


def test_a_header_that_is_being_built_is_not_listed_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = SimpleNamespace(directory=tmp_path)
    monkeypatch.setattr(survey_module, "known_toolchain", lambda language, directory: object())
    monkeypatch.setattr(survey_module, "prepare", lambda toolchain, directory: prepared)
    for name in (".part-x/types", "types"):
        assert precompiled_headers("cpp") == []
        assert prepares_headers("cpp") is (name == "types")
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "kernelrl_prelude.h.gch").touch()
    assert precompiled_headers("cpp") == ["types"]


@pytest.mark.parametrize(("arch", "fix"), [("6.1", "older toolkit"), ("15.0", "newer toolkit")])
def test_an_arch_that_the_toolkit_does_not_know_has_a_fix(arch: str, fix: str) -> None:
    with pytest.raises(ToolchainMissing) as caught:
        _toolchain("/usr/local/cuda/bin/nvcc").require_arch((arch,))
    assert fix in caught.value.args[1]


@pytest.mark.parametrize(
    ("language", "archs", "wanted", "fix"),
    [
        ("cuda", ("7.5", "11.0", "10.3", "9.0"), "9.1", "use 9.0, the nearest that it knows, .* 7.5, 9.0, 10.3, 11.0$"),
        ("hip", ("gfx1030", "gfx908", "gfx90a"), "gfx90b", "use gfx90[8a], the nearest .* gfx908, gfx90a, gfx1030$"),
    ],
)
def test_the_nearest_arch_comes_before_the_sorted_others(
    language: str, archs: tuple[str, ...], wanted: str, fix: str
) -> None:
    with pytest.raises(ToolchainMissing) as caught:
        attrs.evolve(_toolchain("compiler", archs), language=language).require_arch((wanted,))
    assert re.match(fix, caught.value.args[1])


def test_a_compiler_that_cannot_compile_an_empty_kernel_is_broken(tmp_path: Path) -> None:
    nvcc = _program(tmp_path / "bin/nvcc", "echo 'host_config.h:1: error: unsupported GNU version!' >&2; exit 1")
    with pytest.raises(ToolchainMissing, match=r"9\.0: .*unsupported GNU version"):
        Prepared(_toolchain(nvcc), tmp_path / "prepared").prove(["9.0"])


def test_a_compiler_is_proved_once_for_each_architecture(tmp_path: Path) -> None:
    nvcc = _program(tmp_path / "bin/nvcc", f"echo called >> {tmp_path}/calls")
    prepared = Prepared(_toolchain(nvcc), tmp_path / "prepared")
    for archs in (["9.0"], ["9.0"], ["9.0a"]):
        prepared.prove(archs)
    assert (tmp_path / "calls").read_text().count("called") == 2
    Prepared(attrs.evolve(_toolchain(nvcc), language="cpp"), tmp_path / "prepared").prove([])
    assert (tmp_path / "calls").read_text().count("called") == 2


def test_unused_headers_are_removed_when_another_is_built(tmp_path: Path) -> None:
    script = 'for last; do :; done; [ "$last" = --version ] || touch "$last"'
    toolchain = attrs.evolve(_toolchain("nvcc"), cxx=_program(tmp_path / "bin/g++", script))
    other, mine = (Prepared(toolchain, tmp_path / "toolchains" / name) for name in ("other", "mine"))
    old, used = other.header("types", ["-O1"]), mine.header("types", ["-O1"])
    weeks_ago = time.time() - 20 * 86_400
    for header in (old, used):
        os.utime(header.with_suffix(".h.gch"), (weeks_ago, weeks_ago))
    assert mine.header("types", ["-O1"]) == used
    mine.header("extension", ["-O1"])
    assert not old.exists()
    assert used.exists()


def test_waiting_for_a_header_is_reported_and_an_existing_header_is_not(tmp_path: Path) -> None:
    script = 'for last; do :; done; [ "$last" = --version ] || { sleep 0.2; touch "$last"; }'
    toolchain = attrs.evolve(_toolchain("nvcc"), cxx=_program(tmp_path / "bin/g++", script))
    prepared = Prepared(toolchain, tmp_path / "prepared")
    waited: list[float] = []
    prepared.on_wait = waited.append
    prepared.header("types", ["-O1"])
    prepared.header("types", ["-O1"])
    assert len(waited) == 1
    assert waited[0] >= 0.2
