"""Where kernelrl keeps things on this machine."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

__all__ = ["cache_directory"]


def cache_directory() -> Path:
    """Where results are kept between runs: `KERNELRL_CACHE_DIR`, or the user's cache."""
    given = os.environ.get("KERNELRL_CACHE_DIR")
    return Path(given).absolute() if given else platformdirs.user_cache_path("kernelrl")
