"""Device memory that judge and runner share, and the release of device memory that a process keeps unused.

The judge creates an arena with CUDA's virtual memory management and passes its file descriptor. The runner maps the
same memory in its own context. The contents are never copied through the host. Unlike CUDA's IPC handles, a descriptor
crosses user, process and mount namespaces, and the arena outlives the death of either process.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import math
import os
from typing import Any

import torch

__all__ = ["Arena", "DeviceMemoryError", "give_back_spare", "supported"]

_PINNED = 1
_LOCATION_DEVICE = 1
_POSIX_DESCRIPTOR = 1
_READ_WRITE = 3
_OUT_OF_MEMORY = 2
_KEPT_SPARE_BYTES = 1 << 30


class DeviceMemoryError(Exception):
    """The driver reports an error."""


class _Location(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class _Properties(ctypes.Structure):
    _fields_ = (
        ("type", ctypes.c_int),
        ("requested_handle_types", ctypes.c_int),
        ("location", _Location),
        ("win32", ctypes.c_void_p),
        ("flags", ctypes.c_ubyte * 8),
    )


class _Access(ctypes.Structure):
    _fields_ = (("location", _Location), ("flags", ctypes.c_int))


@functools.cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def _call(name: str, *arguments: Any) -> None:
    code = getattr(_driver(), name)(*arguments)
    if code:
        meaning = " (out of memory)" if code == _OUT_OF_MEMORY else ""
        raise DeviceMemoryError(f"{name} failed with CUDA error {code}{meaning}")


def _properties(device: int) -> _Properties:
    return _Properties(_PINNED, _POSIX_DESCRIPTOR, _Location(_LOCATION_DEVICE, device))


def supported(device: int = 0) -> bool:
    """Whether an arena can be created and exported on a device."""
    try:
        arena = Arena.create(1, device)
        os.close(arena.export())
        arena.close()
    except (DeviceMemoryError, OSError, AttributeError, RuntimeError):
        return False
    return True


def give_back_spare() -> None:
    """Release the device memory that torch caches in this process, if it is more than 1 GiB."""
    if torch.cuda.memory_reserved() - torch.cuda.memory_allocated() > _KEPT_SPARE_BYTES:
        torch.cuda.empty_cache()


class Arena:
    """A block of device memory with an address in this process."""

    def __init__(self, handle: int, size: int, device: int) -> None:
        self.size = size
        self.device = device
        self._whole: torch.Tensor | None = None
        self._handle = ctypes.c_ulonglong(handle)
        self._address = ctypes.c_ulonglong()
        _call("cuMemAddressReserve", ctypes.byref(self._address), _size(size), _size(0), ctypes.c_ulonglong(0), 0)
        try:
            _call("cuMemMap", self._address, _size(size), _size(0), self._handle, 0)
            access = _Access(_Location(_LOCATION_DEVICE, device), _READ_WRITE)
            _call("cuMemSetAccess", self._address, _size(size), ctypes.byref(access), _size(1))
        except BaseException:
            self._free()
            raise

    @classmethod
    def create(cls, size: int, device: int) -> Arena:
        """A new arena of at least `size` bytes.

        Raises:
            DeviceMemoryError: the device has too little free memory.
        """
        # A context must be current. This makes the primary context current.
        torch.zeros((), device=f"cuda:{device}")
        properties = _properties(device)
        granularity = ctypes.c_size_t()
        _call("cuMemGetAllocationGranularity", ctypes.byref(granularity), ctypes.byref(properties), 0)
        size = max(1, math.ceil(size / granularity.value)) * granularity.value
        handle = ctypes.c_ulonglong()
        _call("cuMemCreate", ctypes.byref(handle), _size(size), ctypes.byref(properties), ctypes.c_ulonglong(0))
        return cls(handle.value, size, device)

    @classmethod
    def attach(cls, descriptor: int, size: int, device: int) -> Arena:
        """Map the arena of another process.

        Args:
            descriptor: from `export`; the caller still has to close it.
            size: `size` of the arena in the process that created it.
        """
        torch.zeros((), device=f"cuda:{device}")
        handle = ctypes.c_ulonglong()
        _call("cuMemImportFromShareableHandle", ctypes.byref(handle), ctypes.c_void_p(descriptor), _POSIX_DESCRIPTOR)
        return cls(handle.value, size, device)

    def export(self) -> int:
        """A new descriptor with which another process can attach."""
        descriptor, flags = ctypes.c_int(), ctypes.c_ulonglong(0)
        _call("cuMemExportToShareableHandle", ctypes.byref(descriptor), self._handle, _POSIX_DESCRIPTOR, flags)
        return descriptor.value

    def tensor(self, offset: int, shape: tuple[int, ...], dtype: torch.dtype, *, apart: bool = False) -> torch.Tensor:
        """A tensor over a part of the arena.

        Args:
            offset: in bytes; a multiple of the element's size.
            apart: give the tensor a storage of its own, like that of a new tensor.

        Raises:
            ValueError: the part is not within the arena.
        """
        count = math.prod(shape)
        width = torch.empty((), dtype=dtype).element_size()
        device = f"cuda:{self.device}"
        if not count:
            return torch.empty(shape, dtype=dtype, device=device)
        if offset < 0 or offset + count * width > self.size:
            raise ValueError("a tensor outside of the shared memory")
        if apart:
            part = torch.as_tensor(_Bytes(self.address + offset, count * width), device=device)
        else:
            if self._whole is None:
                self._whole = torch.as_tensor(_Bytes(self.address, self.size), device=device)
            part = self._whole[offset : offset + count * width]
        return part.view(dtype).view(shape)

    @property
    def address(self) -> int:
        """Address of its first byte in this process."""
        return int(self._address.value)

    def close(self) -> None:
        """Unmap and release the arena. The memory is free once every process has done so. `size` is 0 afterwards."""
        if not self.size:
            return
        torch.cuda.synchronize(self.device)
        self._whole = None
        self._free()
        self.size = 0

    def _free(self) -> None:
        for name, arguments in (
            ("cuMemUnmap", (self._address, _size(self.size))),
            ("cuMemRelease", (self._handle,)),
            ("cuMemAddressFree", (self._address, _size(self.size))),
        ):
            with contextlib.suppress(DeviceMemoryError):
                _call(name, *arguments)


class _Bytes:
    """Bytes on the device, described by `__cuda_array_interface__`."""

    def __init__(self, address: int, count: int) -> None:
        layout = {"shape": (count,), "typestr": "|u1", "strides": None}
        self.__cuda_array_interface__ = {**layout, "data": (address, False), "version": 2}


def _size(value: int) -> ctypes.c_size_t:
    return ctypes.c_size_t(value)
