"""Paths that a process in the sandbox sees: programs, libraries, Python with its packages, drivers.

Everything else does not exist for it: working directories and journals of runs, files of users, sockets of services.
"""

from __future__ import annotations

import glob
import itertools
import os
import re
import sys
from collections.abc import Iterable, Mapping

__all__ = ["closed_directories", "installation", "outermost", "paths_of_runner", "system_paths"]

_TOP_LEVEL = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store", "/gnu/store")
_INSTALLATIONS = ("/usr", "/usr/local")
"""Directories with programs and libraries, and with other files, such as `/usr/src`."""
_TOOLKITS = (
    *("/usr/local/cuda*", "/usr/local/nvidia", "/opt/cuda*", "/opt/nvidia"),
    *("/opt/rocm*", "/opt/amdgpu", "/opt/intel"),
)
_SETTINGS = ("/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d")
_SETTINGS_OF_RUNNER = (
    *("/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/localtime", "/etc/os-release"),
    *("/etc/nvidia", "/etc/OpenCL"),
)
"""Python's `getpass`, with which compilers name their caches, reads the users."""
_PARTS = (
    *("bin", "sbin", "lib*", "include", "share", "pyvenv.cfg"),
    *("nvvm", "targets", "amdgcn", "llvm", "hip", "compiler_compat", "*-linux-gnu*"),
)
"""Parts of an installation. Others may belong to users: an environment of Python can be in a project."""
_MACHINE = ("/sys/devices/system", "/sys/kernel/mm/transparent_hugepage")
"""Cores, nodes of memory and sizes of pages, which libraries for threads and memory read."""
_MACHINE_WITH_GPU = ("/sys",)
_DRIVERS = ("/run/nvidia-persistenced", "/run/nvidia", "/run/opengl-driver", "/run/current-system")
_CACHE = "KERNELRL_CACHE_DIR"
_NOT_NAMED = ("HOME", "TMPDIR", "PWD", "OLDPWD", "PYTHONPATH")
"""Variables with paths that a runner does not see because of them."""
_OWN = "kernelrl_"
"""Prefix of the packages of this project. Some of them contain solutions of tasks."""
_MAPPED = re.compile(r"^\S+ \S+ \S+ \S+ \S+\s+(/.*\.so[.\d]*)$", re.MULTILINE)
_FINDS_LIBRARIES = "/etc/ld.so.conf"


def system_paths() -> list[str]:
    """Programs, libraries and toolkits of the machine, and the settings that they read."""
    found = [*_TOP_LEVEL, *_SETTINGS]
    for directory in _INSTALLATIONS:
        found += installation(directory)
    for pattern in _TOOLKITS:
        found += glob.glob(pattern)
    found += _directories_of_loader(_FINDS_LIBRARIES)
    return _existing(found)


def installation(prefix: str) -> list[str]:
    """Programs, libraries and headers in a directory such as `/usr` or an environment of Python."""
    if prefix == "/":
        return [*_TOP_LEVEL]
    escaped = glob.escape(prefix)
    return [path for part in _PARTS for path in glob.glob(f"{escaped}/{part}")]


def paths_of_runner(environment: Mapping[str, str], *, on_gpu: bool) -> list[str]:
    """Everything that a runner sees, in addition to devices, its processes and its own directories.

    Call it in a process that has loaded the modules that the runner needs.

    Args:
        environment: variables of the runner.
        on_gpu: whether it needs the files of a GPU's driver.
    """
    found = [*system_paths(), *_SETTINGS_OF_RUNNER, *(_MACHINE_WITH_GPU if on_gpu else _MACHINE)]
    if on_gpu:
        found += [*_DRIVERS, _mps_pipes(environment)]
    for prefix in {sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix}:
        found += installation(prefix)
    found += [sys.executable, *filter(_holds_packages, sys.path), *_loaded_modules(), *_loaded_libraries()]
    found += _named(environment)
    return _existing(found)


def _mps_pipes(environment: Mapping[str, str]) -> str:
    """Directory of NVIDIA's service that lets processes share a GPU."""
    return environment.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps")


def outermost(paths: Iterable[str]) -> list[str]:
    """These paths without those below another one, sorted."""
    wanted = {*paths}
    return sorted(path for path in wanted if not any(parent in wanted for parent in _parents(path)))


def closed_directories() -> list[str]:
    """Directories that are empty for a runner although they may be below a path that it sees: the cache, and packages
    of this project that are not loaded now."""
    cache = os.environ.get(_CACHE, "")
    found = {os.path.realpath(cache)} if os.path.isdir(cache) else set()
    for directory in filter(os.path.isdir, sys.path):
        with os.scandir(directory) as entries:
            found |= {
                os.path.realpath(entry.path)
                for entry in entries
                if entry.name.startswith(_OWN) and entry.name.isidentifier() and entry.is_dir()
            }
    loaded = {
        os.path.realpath(path)
        for name, module in list(sys.modules.items())
        if name.startswith(_OWN)
        for path in getattr(module, "__path__", ())
    }
    return sorted(found - loaded)


def _existing(paths: Iterable[str]) -> list[str]:
    """The absolute paths that exist, and the targets of links among them, without those below another one."""
    found = {os.path.abspath(path) for path in paths if path and os.path.exists(path)}
    found |= {os.path.realpath(path) for path in found}
    return outermost(found - {"/"})


def _parents(path: str) -> list[str]:
    """Directories above an absolute path, without the root."""
    names = path.split("/")[1:-1]
    return ["/" + parent for parent in itertools.accumulate(names, "{}/{}".format)]


def _holds_packages(directory: str) -> bool:
    """Whether a directory of `sys.path` is an archive, or has installed packages.

    Of another one, such as a project that is installed in place, a runner sees the loaded modules alone.
    """
    if os.path.isfile(directory) or os.path.basename(directory) in ("site-packages", "dist-packages"):
        return True
    return bool(glob.glob(f"{glob.escape(directory)}/*.dist-info"))


def _loaded_modules() -> set[str]:
    """Directories of the loaded packages, and files of the other loaded modules."""
    found = set()
    # The main module is the program that started this process. It may have a second name.
    program = sys.modules.get("__main__")
    for module in list(sys.modules.values()):
        if module is program:
            continue
        # Some modules of torch have every attribute.
        facts = getattr(module, "__dict__", {})
        places = [*(facts.get("__path__") or ())] or [facts.get("__file__")]
        found |= {path for path in places if isinstance(path, str)}
    return found


def _loaded_libraries() -> set[str]:
    """Shared objects that this process has mapped, and the directories of libraries among theirs."""
    with open("/proc/self/maps") as file:
        files = {*_MAPPED.findall(file.read())}
    # Libraries load others beside them when they need them.
    directories = {os.path.dirname(path) for path in files}
    return files | {path for path in directories if re.fullmatch(r"lib\w*", os.path.basename(path))}


def _named(environment: Mapping[str, str]) -> list[str]:
    """Paths in variables, such as `LD_LIBRARY_PATH` and `CUDA_HOME`."""
    found: list[str] = []
    for name, value in environment.items():
        if name in _NOT_NAMED or "CACHE" in name:
            continue
        for path in value.split(":"):
            if path.startswith("/"):
                found += installation(path) if name.endswith(("_HOME", "_ROOT")) else [path]
    return found


def _directories_of_loader(path: str, depth: int = 0) -> list[str]:
    """Directories that the dynamic loader searches, from its configuration."""
    try:
        with open(path, errors="replace") as file:
            lines = [line.partition("#")[0].strip() for line in file]
    except OSError:
        return []
    found = [line for line in lines if line.startswith("/")]
    for line in lines:
        kind, _, pattern = line.partition(" ")
        if kind == "include" and depth < 4:
            files = sorted(glob.glob(os.path.join(os.path.dirname(path), pattern.strip())))
            found += [directory for file in files for directory in _directories_of_loader(file, depth + 1)]
    return found
