"""Triton's driver, made once in the zygote: it compiles a module in C, which every fork would compile for itself.

Nothing here starts CUDA, which a fork could not use afterwards: the module is compiled and loaded, and that is all.
"""

from __future__ import annotations

import contextlib
import subprocess

from triton.runtime import driver

# A machine that lacks the C compiler or the driver says so when a kernel is launched.
with contextlib.suppress(RuntimeError, OSError, AssertionError, subprocess.CalledProcessError):
    driver.active.utils  # noqa: B018
