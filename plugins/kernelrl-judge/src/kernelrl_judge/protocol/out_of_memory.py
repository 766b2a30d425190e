"""How the text of an error says that memory did not suffice."""

from __future__ import annotations

__all__ = ["NO_DEVICE_MEMORY", "lacks_device_memory", "lacks_memory"]

NO_DEVICE_MEMORY = 72
"""Exit code of a runner that cannot use the device at its start."""

_DEVICE_SIGNS = (
    *("out of memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED"),
    # torch asks NVML who has the memory, and where NVML does not start, that is what it reports in its place.
    "nvmlInit",
)
_HOST_SIGNS = ("can't allocate memory", "std::bad_alloc", "Cannot allocate memory")


def lacks_device_memory(text: str) -> bool:
    return any(sign in text for sign in _DEVICE_SIGNS)


def lacks_memory(text: str) -> bool:
    """Of a device or of the host."""
    return lacks_device_memory(text) or any(sign in text for sign in _HOST_SIGNS)
