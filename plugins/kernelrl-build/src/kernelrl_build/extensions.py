"""`load_inline` for a trusted process: a drop-in for `torch.utils.cpp_extension.load_inline`."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from kernelrl_build import inline, loading
from kernelrl_build.errors import BuildCrashed, BuildError, BuildUnavailable
from kernelrl_build.service import BuildReply, BuildService
from kernelrl_build.survey import precompiled_headers, prepares_headers
from kernelrl_core.api.config import cache_directory
from kernelrl_core.api.evaluators import EvaluationSettings

__all__ = ["load_inline"]

logger = logging.getLogger(__name__)

_SETTINGS = EvaluationSettings(build_timeout_s=600.0, build_memory_mib=16384)
_CHECK_S = 1.0
"""Time between two checks whether a build waits for precompiled headers."""
_CUDA_ARCH = re.compile(r"\d+\.\d+[af]?(?:\+PTX)?")

_built: dict[str, Any] = {}
"""Results of `load_inline` in this process, by request without the name. Equal builds are one file, loaded once."""


def load_inline(
    name: str,
    cpp_sources: str | Sequence[str],
    cuda_sources: str | Sequence[str] | None = None,
    sycl_sources: str | Sequence[str] | None = None,
    functions: str | Sequence[str] | Mapping[str, str] | None = None,
    extra_cflags: Sequence[str] | None = None,
    extra_cuda_cflags: Sequence[str] | None = None,
    extra_sycl_cflags: Sequence[str] | None = None,
    extra_ldflags: Sequence[str] | None = None,
    extra_include_paths: Sequence[str] | None = None,
    build_directory: str | None = None,
    verbose: bool = False,
    with_cuda: bool | None = None,
    with_sycl: bool | None = None,
    is_python_module: bool = True,
    with_pytorch_error_handling: bool = True,
    keep_intermediates: bool = True,
    use_pch: bool = False,
    no_implicit_headers: bool = False,
) -> Any:
    """Build an extension from sources, or find it in the cache, and load it.

    It takes the arguments of `torch.utils.cpp_extension.load_inline`. These have no effect: `build_directory`,
    `with_pytorch_error_handling`, `keep_intermediates`, `use_pch` and `no_implicit_headers`. With `verbose`, it prints
    the route and the time of the build.

    Returns:
        The module; the path of the library if `is_python_module` is False.

    Raises:
        BuildError: the sources do not compile, an argument is refused, or this machine cannot build.
        ValueError: `functions` is neither a name, a list nor a dict.
    """
    if sycl_sources or with_sycl:
        raise BuildError(f"Error building extension '{name}': SYCL sources are not supported")
    request = inline.request(
        name,
        cpp_sources,
        cuda_sources,
        functions,
        extra_cflags,
        extra_cuda_cflags,
        extra_ldflags,
        extra_include_paths,
    )
    spec = _toolchain(name, has_device_code=bool(cuda_sources) if with_cuda is None else with_cuda)
    key = json.dumps([{**request, "name": ""}, spec, is_python_module])
    if key not in _built:
        reply = _build(name, request, spec)
        if verbose:
            print(_summary(name, reply), file=sys.stderr)
        _built[key] = _load(name, reply, is_python_module=is_python_module)
    elif is_python_module:
        sys.modules.setdefault(name, _built[key])
    return _built[key]


def _toolchain(name: str, *, has_device_code: bool) -> dict[str, Any]:
    """Language and architectures of an extension."""
    if not has_device_code:
        return {"language": "cpp"}
    language = "hip" if torch.version.hip else "cuda"
    try:
        archs = _hip_archs() if language == "hip" else _cuda_archs()
    except ValueError as error:
        raise BuildError(f"Error building extension '{name}': {error}") from None
    return {"language": language, "arch": archs}


def _cuda_archs() -> list[str]:
    """Architectures of `TORCH_CUDA_ARCH_LIST`, or of the visible GPUs; empty without a GPU."""
    archs = _listed("TORCH_CUDA_ARCH_LIST")
    for arch in archs:
        if not _CUDA_ARCH.fullmatch(arch):
            raise ValueError(f"TORCH_CUDA_ARCH_LIST: {arch!r} is not the number of an architecture, such as 9.0")
    if not archs and torch.cuda.is_available():
        capabilities = [torch.cuda.get_device_capability(index) for index in range(torch.cuda.device_count())]
        archs = [f"{major}.{minor}" for major, minor in capabilities]
    return list(dict.fromkeys(archs))


def _hip_archs() -> list[str]:
    """Architectures of `PYTORCH_ROCM_ARCH`, or of the visible GPUs."""
    archs = _listed("PYTORCH_ROCM_ARCH")
    if not archs and torch.cuda.is_available():
        properties = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
        archs = [str(gpu.gcnArchName).partition(":")[0] for gpu in properties]
    if not archs:
        raise ValueError("this machine has no GPU; set PYTORCH_ROCM_ARCH, for example to gfx942")
    return list(dict.fromkeys(archs))


def _listed(variable: str) -> list[str]:
    return re.findall(r"[^;\s]+", os.environ.get(variable, ""))


def _build(name: str, request: Mapping[str, Any], spec: Mapping[str, Any]) -> BuildReply:
    service = BuildService(cache_directory() / "builds")
    try:
        reply = service.build(
            json.dumps(request).encode(), spec, _SETTINGS, check_cancelled=_header_notice(name, spec["language"])
        )
    except BuildUnavailable as error:
        missing, fix = error.args
        raise BuildError(f"Error building extension '{name}': {missing}; fix: {fix}") from error
    except BuildCrashed as error:
        raise BuildError(f"Error building extension '{name}': {error}") from error
    body = json.loads(reply.body)
    if "error" in body:
        raise BuildError(f"Error building extension '{name}': {body['error']}")
    return reply


def _header_notice(name: str, language: str) -> Callable[[], None]:
    """A function for a running build to call. It warns once if the build waits for precompiled headers."""
    is_first_build = not precompiled_headers(language)
    next_check_s = time.monotonic()
    is_reported = False

    def report() -> None:
        nonlocal next_check_s, is_reported
        now_s = time.monotonic()
        if is_reported or now_s < next_check_s:
            return
        next_check_s = now_s + _CHECK_S
        if is_first_build or prepares_headers(language):
            is_reported = True
            logger.warning(
                "extension %s waits for precompiled headers of PyTorch, which are built once for each set of flags: "
                "1 to 3 minutes",
                name,
            )

    return report


def _load(name: str, reply: BuildReply, *, is_python_module: bool) -> Any:
    # Files of the store keep their paths while it has them, and the loader has read them when they are removed.
    paths = list(reply.paths)
    for descriptor in reply.descriptors:
        os.close(descriptor)
    try:
        if is_python_module:
            return loading.load_extension(name, paths, json.loads(reply.body))
        load_library: Callable[[str], None] = torch.ops.load_library
        load_library(paths[0])
        return paths[0]
    except (ImportError, OSError) as error:
        missing = loading.missing_symbol(error)
        if not missing:
            raise
        raise BuildError(f"Error building extension '{name}': {missing}") from None


def _summary(name: str, reply: BuildReply) -> str:
    build = reply.build
    if build.cached:
        return f"extension {name}: from the cache"
    reason = f" ({build.reason})" if build.reason else ""
    return f"extension {name}: built in {build.seconds or 0.0:.1f} s, route {build.route}{reason}"
