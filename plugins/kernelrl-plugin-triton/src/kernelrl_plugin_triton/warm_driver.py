"""Create Triton's driver once in the zygote: it compiles a C module, which otherwise every fork would compile.

CUDA is not initialised here, because forks could not use it: the module is only compiled and loaded.
"""

from __future__ import annotations

import contextlib
import subprocess

from triton.runtime import driver

# Without a C compiler or a driver, the first launch of a kernel reports the error.
with contextlib.suppress(RuntimeError, OSError, AssertionError, subprocess.CalledProcessError):
    driver.active.utils  # noqa: B018
