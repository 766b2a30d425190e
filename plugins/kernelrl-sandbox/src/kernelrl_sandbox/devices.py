"""The device nodes that a runner sees."""

from __future__ import annotations

import glob
import os
from collections.abc import Mapping

__all__ = ["device_nodes"]

_ALWAYS = tuple(f"/dev/{name}" for name in ("null", "zero", "full", "random", "urandom"))
_SHARES_MEMORY = "/dev/zero"
"""Only for drivers of GPUs, as in `seccomp`: memory that several processes map from it belongs to none of them."""
_NVIDIA = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")
_NVIDIA_NEEDED = _NVIDIA[:2]


def device_nodes(environment: Mapping[str, str], *, on_gpu: bool, root: str = "/") -> list[str] | None:
    """Device nodes of one runner; None if it is not certain which GPU it uses.

    Only a UUID identifies one of several GPUs. An index in `CUDA_VISIBLE_DEVICES` counts the GPUs that a process sees,
    so it would mean another GPU where the rest is hidden.

    Args:
        environment: variables of the runner.
        on_gpu: whether the runner uses a GPU.
        root: directory that a test uses as the root of the file system.
    """

    def exist(paths: tuple[str, ...]) -> list[str]:
        return [path for path in paths if os.path.exists(root + path.lstrip("/"))]

    always = exist(_ALWAYS)
    if not on_gpu:
        return [path for path in always if path != _SHARES_MEMORY]
    if os.path.exists(f"{root}dev/dxg"):
        return [*always, "/dev/dxg"]
    if os.path.exists(f"{root}dev/kfd"):
        renderers = ["/" + os.path.relpath(path, root) for path in glob.glob(f"{root}dev/dri/renderD*")]
        return [*always, "/dev/kfd", *renderers] if len(renderers) == 1 else None
    if len(exist(_NVIDIA_NEEDED)) < len(_NVIDIA_NEEDED):
        return None
    minors = {path[len(f"{root}dev/nvidia") :] for path in glob.glob(f"{root}dev/nvidia[0-9]*")}
    visible = environment.get("CUDA_VISIBLE_DEVICES", "").strip()
    minor = _minor_of(visible, root) if len(minors) != 1 or visible.startswith("MIG") else next(iter(minors))
    return [*always, *exist(_NVIDIA), f"/dev/nvidia{minor}"] if minor in minors else None


def _minor_of(visible: str, root: str) -> str:
    """Number of the device node of the GPU whose UUID begins with `visible`; empty if it is not certain."""
    if not visible.startswith("GPU-") or "," in visible:
        return ""
    found = set()
    for path in glob.glob(f"{root}proc/driver/nvidia/gpus/*/information"):
        try:
            with open(path) as file:
                facts = dict(line.split(":", 1) for line in file if ":" in line)
        except OSError:
            return ""
        if facts.get("GPU UUID", "").strip().startswith(visible):
            found.add(facts.get("Device Minor", "").strip())
    return found.pop() if len(found) == 1 else ""
