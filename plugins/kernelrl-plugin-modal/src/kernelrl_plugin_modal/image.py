"""The image of the app as plain data: commands and versions. Imports neither Modal nor torch."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import json
import re
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path

import attrs

from kernelrl_core.api.errors import MissingPrerequisite
from kernelrl_plugin_modal.config import ModalConfig

__all__ = ["DISTRIBUTIONS", "OURS", "Step", "app_name", "image_steps", "project_directory"]

BASE = "nvidia/cuda:13.0.0-devel-ubuntu22.04"
"""nvcc 13.0 and g++ 11. torch must be built for the same major version of CUDA."""
GPU_STACK = ("torch==2.11.0", "triton==3.6.0")
"""torch for CUDA 13.0 and the Triton that it requires; the versions with which the judge was measured on GPUs."""
OURS = (
    "kernelrl",
    "kernelrl-build",
    "kernelrl-devices",
    "kernelrl-judge",
    "kernelrl-plugin-cpp",
    "kernelrl-plugin-cuda",
    "kernelrl-plugin-modal",
    "kernelrl-plugin-triton",
    "kernelrl-sandbox",
    "kernelrl-sources",
)
"""Distributions of kernelrl in the image."""
DISTRIBUTIONS = ("kernelrl-build", "kernelrl-judge", "kernelrl-plugin-modal", "kernelrl-sandbox")
"""Distributions of which client and container must have the same version, besides kernelrl and the backends."""
CACHE = "/kernelrl/cache"
_WHEELS = "/kernelrl/wheels"
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_OF_SOURCES = (".py", ".cpp", ".c", ".h", ".cu", ".json", ".yaml", ".jinja", ".txt")


@attrs.frozen
class Step:
    """A method of `modal.Image` and its arguments."""

    method: str
    arguments: tuple[str, ...]
    options: tuple[tuple[str, str], ...] = ()


def image_steps(wheels: Sequence[str]) -> tuple[Step, ...]:
    """How the image is made.

    Args:
        wheels: file names of kernelrl's own wheels, or requirements such as `kernelrl==0.1.0`.
    """
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    own = [f"{_WHEELS}/{name}" if name.endswith(".whl") else name for name in wheels]
    return (
        Step("from_registry", (BASE,), (("add_python", python),)),
        Step("apt_install", ("g++", "binutils")),
        Step("pip_install", (*GPU_STACK, *_requirements())),
        Step("env", (f"KERNELRL_CACHE_DIR={CACHE}", "KERNELRL_PROCESSOR=modal", "CUDA_HOME=/usr/local/cuda")),
        *(Step("add_local_file", (name, f"{_WHEELS}/{name}")) for name in wheels if name.endswith(".whl")),
        Step(
            "run_commands",
            (
                f"python -m pip install --no-deps {' '.join(own)}",
                # Otherwise each new container would precompile PyTorch's headers, 1 to 3 minutes.
                "python -m kernelrl_plugin_modal.prepare",
            ),
        ),
    )


def app_name(config: ModalConfig) -> str:
    """The app's name: it changes with the options, the image and kernelrl's sources."""
    content = [
        *(str(attrs.astuple(step)) for step in image_steps([_content_hash(name) for name in OURS])),
        *(str(getattr(config, key)) for key in ("gpu", "max_containers", "min_containers", "scaledown_window_s")),
    ]
    return f"{config.app}-{hashlib.sha256(json.dumps(content).encode()).hexdigest()[:12]}"


def project_directory(distribution: str) -> Path | None:
    """Directory of the project, if a distribution is installed in editable form; else None."""
    said = metadata.distribution(distribution).read_text("direct_url.json")
    url = json.loads(said)["url"] if said else ""
    return Path(url.removeprefix("file://")) if url.startswith("file://") else None


@functools.cache
def _content_hash(distribution: str) -> str:
    """Distribution, version and hash of the files of its package."""
    package = {"kernelrl": "kernelrl_core"}.get(distribution, distribution.replace("-", "_"))
    try:
        version = metadata.version(distribution)
        found = importlib.util.find_spec(package)
    except (metadata.PackageNotFoundError, ImportError):
        found = None
    if found is None or not found.submodule_search_locations:
        raise MissingPrerequisite(f"the image of evaluator modal contains {distribution}, which is not installed here",
                                  fix=f"pip install {distribution}", see="modal")  # fmt: skip
    root = Path(next(iter(found.submodule_search_locations)))
    content = hashlib.sha256()
    for path in sorted(root.rglob("*")):
        if path.suffix in _OF_SOURCES and path.is_file():
            content.update(f"{path.relative_to(root)}\0".encode() + path.read_bytes() + b"\0")
    return f"{distribution} {version} {content.hexdigest()}"


def _requirements() -> list[str]:
    """What kernelrl's distributions in the image require, in the versions that are installed here."""
    names = {
        _NAME.match(line).group().lower()  # type: ignore[union-attr]
        for distribution in OURS
        for line in metadata.requires(distribution) or ()
        if "extra ==" not in line
    }
    names -= {*OURS, *(requirement.partition("==")[0] for requirement in GPU_STACK)}
    return [f"{name}=={metadata.version(name).partition('+')[0]}" for name in sorted(names)]
