"""The parts of a running server, and the name of the client that a request belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

import attrs

from kernelrl_core.api.evaluators import to_json
from kernelrl_service.catalogue import Catalogue
from kernelrl_service.episodes import Episodes
from kernelrl_service.metrics import Metrics
from kernelrl_service.options import Limits
from kernelrl_service.queue import EvaluationQueue
from kernelrl_service.redaction import Redaction
from kernelrl_service.tokens import LOCAL, Client, Tokens

__all__ = ["Server", "current_client"]

current_client: ContextVar[str] = ContextVar("current_client", default=LOCAL.name)
"""Name of the client of the current request, for the evaluations of checks and episodes."""


@attrs.frozen
class Server:
    """The parts of a running server."""

    queue: EvaluationQueue
    catalogue: Catalogue
    episodes: Episodes
    metrics: Metrics
    redact: Redaction
    limits: Limits
    identity: str
    """Everything that an evaluation depends on beside the request; part of its id."""
    evaluator: str
    """Name of the evaluator component."""
    evaluator_identity: str
    gpu_model: str
    versions: Mapping[str, str]
    tokens: Tokens | None = None
    """None: no client needs a token."""
    local: Client = LOCAL
    """The client of a server without tokens."""
    is_loopback: bool = True
    """Whether only requests to a loopback name are served. A page elsewhere, whose name leads here, has another."""

    def redacted(self, value: Any) -> Any:
        """JSON of a value without paths and secrets of this server."""
        return self.redact(to_json(value))
