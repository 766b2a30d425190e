"""Refused requests as problem documents (RFC 9457)."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping
from types import MappingProxyType

import attrs
import orjson
from starlette.responses import Response

from kernelrl_core.api.errors import InfrastructureError, MissingPrerequisite, StorageError, UsageError

__all__ = ["PROBLEMS", "Problem", "ProblemDocument", "as_problems"]

logger = logging.getLogger(__name__)

_INFRASTRUCTURE_RETRY_S = 5
_DISK_RETRY_S = 60

PROBLEMS: Mapping[str, tuple[int, str]] = MappingProxyType(
    {
        "version": (400, "the client has another API version"),
        "json": (400, "the body is not JSON"),
        "token": (401, "the token is missing or wrong"),
        "inline-task": (403, "this client may not send the source of a task"),
        "not-found": (404, "not found"),
        "unknown-task": (404, "the server does not serve this task"),
        "unknown-recipe": (404, "the server does not serve this recipe"),
        "method": (405, "the path has no such method"),
        "slow": (408, "the body did not arrive in time"),
        "conflict": (409, "the episode has another turn at this number"),
        "too-large": (413, "the body is too large"),
        "content-type": (415, "the body must be plain JSON"),
        "host": (421, "the header Host names another machine"),
        "invalid": (422, "the request is not valid"),
        "unknown-backend": (422, "the server does not serve this backend"),
        "queue-full": (429, "the queue is full"),
        "too-many": (429, "this client has too much unfinished work"),
        "internal": (500, "the server has a fault"),
        "closing": (503, "the server is closing"),
        "infrastructure": (503, "the evaluation failed, which says nothing about the kernel"),
        "disk": (507, "the server cannot write its journal"),
    }
)
"""Name -> status and title. The type of a problem document is `urn:kernelrl:NAME`."""


@attrs.frozen
class ProblemDocument:
    """Why a request was refused (RFC 9457)."""

    type: str
    """`urn:kernelrl:NAME`; a name has one status."""
    title: str
    """Meaning of the type."""
    status: int
    """Status of the response."""
    detail: str
    """The problem of this request."""
    fix: str
    """The action that solves it; empty where the client can do nothing."""


class Problem(Exception):
    """A request is refused.

    Args:
        name: key of `PROBLEMS`.
        detail: the problem of this request, without paths and secrets.
        fix: the action that solves it.
        retry_after_s: value of the header Retry-After; None: no header.
    """

    def __init__(self, name: str, detail: str, *, fix: str = "", retry_after_s: int | None = None) -> None:
        super().__init__(detail)
        self.name, self.detail, self.fix, self.retry_after_s = name, detail, fix, retry_after_s
        self.status, self.title = PROBLEMS[name]

    def response(self) -> Response:
        """The problem document."""
        document = ProblemDocument(f"urn:kernelrl:{self.name}", self.title, self.status, self.detail, self.fix)
        headers = {} if self.retry_after_s is None else {"Retry-After": str(self.retry_after_s)}
        if self.status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        content = orjson.dumps(attrs.asdict(document))
        return Response(content, self.status, headers, media_type="application/problem+json")


@contextlib.contextmanager
def as_problems() -> Iterator[None]:
    """Errors of the block as problems.

    Raises:
        Problem: in place of an error of kernelrl.
    """
    try:
        yield
    except StorageError as error:
        logger.error("%s", error)
        raise Problem("disk", "the journal cannot be read or written", fix="try again later",
                      retry_after_s=_DISK_RETRY_S) from error  # fmt: skip
    except InfrastructureError as error:
        raise Problem("infrastructure", error.message, fix="try again",
                      retry_after_s=_INFRASTRUCTURE_RETRY_S) from error  # fmt: skip
    except (UsageError, MissingPrerequisite) as refusal:
        raise Problem("invalid", refusal.message, fix=refusal.fix) from refusal
