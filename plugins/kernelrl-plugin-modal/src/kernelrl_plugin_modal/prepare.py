"""Build the example of each backend with a toolchain, while the image is made: this precompiles PyTorch's headers."""

from __future__ import annotations

import asyncio
import sys

from kernelrl_core.api import API_VERSION
from kernelrl_core.api.components import Use, registry
from kernelrl_core.api.evaluators import EvaluationRequest, EvaluationSettings, sha256_text
from kernelrl_judge.client.builds import Builds

__all__ = ["example_request", "main"]

_ARCH = "8.0"
"""Headers are the same for each architecture."""


def example_request(backend: str) -> EvaluationRequest:
    """The request for a backend's example kernel."""
    example = registry().make("backends", Use(backend)).facts.example
    return EvaluationRequest(
        task_id="example",
        task_source=example.reference,
        task_sha256=sha256_text(example.reference),
        source=example.kernel,
        source_sha256=sha256_text(example.kernel),
        backend=backend,
        backend_options={},
        settings=EvaluationSettings(build_timeout_s=600.0),
        seed="0" * 32,
        api_version=API_VERSION,
    )


async def main() -> None:
    """Build the examples; exits with 1 if one cannot be built."""
    builds = Builds(1)
    for backend in ("cuda", "cpp"):
        if not await builds.compile(example_request(backend), True, _ARCH):
            sys.exit(f"the example of backend {backend} cannot be built in this image")


if __name__ == "__main__":
    asyncio.run(main())
