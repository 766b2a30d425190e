"""Options of components: base class and number ranges; files, locks and facts of this machine."""

from __future__ import annotations

from kernelrl_core.interfaces.config import ComponentConfig, MachineFact
from kernelrl_core.interfaces.requirements import Requires
from kernelrl_core.sources.yaml import load_yaml
from kernelrl_core.storage import (
    FileLock,
    cache_directory,
    disk_error,
    new_directory,
    pack_files,
    remove_directory,
    replace_directory,
    sync_to_disk,
    unpack_files,
    write_atomically,
)
from kernelrl_core.types.numbers import Fraction, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from kernelrl_devices.gpus import InstalledGpu, gpu_vendors, nvidia_gpus, used_memory_share, visible_gpus

__all__ = [
    "ComponentConfig",
    "FileLock",
    "Fraction",
    "InstalledGpu",
    "MachineFact",
    "NonNegativeFloat",
    "NonNegativeInt",
    "PositiveFloat",
    "PositiveInt",
    "Requires",
    "cache_directory",
    "disk_error",
    "gpu_vendors",
    "load_yaml",
    "new_directory",
    "nvidia_gpus",
    "pack_files",
    "remove_directory",
    "replace_directory",
    "sync_to_disk",
    "unpack_files",
    "used_memory_share",
    "visible_gpus",
    "write_atomically",
]
