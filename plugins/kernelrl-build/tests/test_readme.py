"""The README lists the limits of `load_inline`."""

from __future__ import annotations

import re
from pathlib import Path

from kernelrl_build import extensions
from kernelrl_build.limits import MAX_EXTENSION_MIB

PACKAGE = Path(extensions.__file__).parent
README = (PACKAGE.parents[1] / "README.md").read_text(encoding="utf-8")


def test_limits_are_those_of_the_code() -> None:
    limits = dict(re.findall(r"^\| (CPU time|memory|size)[^|]* \| (\d+)", README, re.MULTILINE))
    settings = extensions._SETTINGS
    assert limits == {
        "CPU time": f"{settings.build_timeout_s:g}",
        "memory": str(settings.build_memory_mib // 1024),
        "size": str(MAX_EXTENSION_MIB),
    }
