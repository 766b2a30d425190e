"""Messages while the first build on this machine precompiles PyTorch's headers."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Iterator
from typing import Any

from kernelrl_judge.build.survey import precompiled_headers

__all__ = ["FirstBuild"]

logger = logging.getLogger(__name__)

_PROGRESS_INTERVAL_S = 30


class FirstBuild:
    """Logs why the first build takes minutes, once, and that it still goes on."""

    def __init__(self) -> None:
        self._is_over = False
        self._n_builds = 0
        self._started = 0.0
        self._reporting: asyncio.Task[None] | None = None

    @contextlib.contextmanager
    def reported(self, source: str, spec: Any) -> Iterator[None]:
        """Context of an evaluation.

        Args:
            spec: toolchain of its backend; None if nothing is compiled.
        """
        if self._is_over or spec is None or spec.get("device_only"):
            yield
            return
        from kernelrl_judge.build.calls import find_inline_calls

        builds = bool(find_inline_calls(source))
        self._n_builds += builds
        if builds and self._reporting is None:
            self._reporting = asyncio.create_task(self._report(spec["language"]))
        try:
            yield
        finally:
            self._n_builds -= builds
            if self._reporting is not None and not self._n_builds:
                self._reporting.cancel()
                self._reporting = None

    async def _report(self, language: str) -> None:
        self._is_over = bool(precompiled_headers(language))
        if not self._is_over and not self._started:
            self._started = time.monotonic()
            logger.warning("the first build precompiles PyTorch's headers, once: 1 to 3 minutes")
        while not self._is_over:
            await asyncio.sleep(_PROGRESS_INTERVAL_S)
            self._is_over = bool(precompiled_headers(language))
            if not self._is_over:
                waited_s = time.monotonic() - self._started
                logger.warning("still precompiling PyTorch's headers after %.0f s", waited_s)
