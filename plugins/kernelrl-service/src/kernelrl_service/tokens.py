"""Tokens of clients: a file with their SHA-256 hashes, and the comparison in constant time.

A token has 256 random bits, so a plain hash of it cannot be searched.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from kernelrl_core.api.config import load_yaml
from kernelrl_core.api.errors import UsageError, suggestion

__all__ = ["LOCAL", "Client", "Tokens", "add_token", "read_tokens"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_KEYS = ("sha256", "inline_tasks")


@attrs.frozen
class Client:
    """A client, as its token identifies it."""

    name: str
    """Name in the file of tokens; limits and shares count per name."""
    inline_tasks: bool = False
    """Whether it may send the source of a task, which a judge executes."""
    is_same_user: bool = False
    """Whether it is a process of the user that runs the server, so that its tasks are executed like the server's."""


LOCAL = Client("local")
"""The client of a server without tokens."""


class Tokens:
    """The known clients.

    Args:
        clients: by the SHA-256 of their token.
    """

    def __init__(self, clients: Mapping[bytes, Client]) -> None:
        self._clients = dict(clients)

    @classmethod
    def of(cls, clients: Mapping[str, Client]) -> Tokens:
        """The clients by their tokens."""
        return cls({_digest(token): client for token, client in clients.items()})

    @property
    def inline_tasks(self) -> bool:
        """Whether any client may send the source of a task."""
        return any(client.inline_tasks for client in self._clients.values())

    def client(self, token: str) -> Client | None:
        """The client of a token; None if no client has it. The time does not depend on the token."""
        digest = _digest(token)
        found = None
        for known, client in self._clients.items():
            if hmac.compare_digest(known, digest):
                found = client
        return found


def read_tokens(path: Path) -> Tokens:
    """The clients of a file with lines `NAME: {sha256: HASH}` or `NAME: {sha256: HASH, inline_tasks: true}`.

    Raises:
        UsageError: the file cannot be read, or a line of it is not valid.
    """
    data = load_yaml(_text(path), path)
    if not isinstance(data, Mapping) or not data:
        raise UsageError(f"{path}: no tokens", fix=_fix(path), see="service-tokens")
    clients: dict[bytes, Client] = {}
    for name, entry in data.items():
        digest, client = _client(path, name, entry)
        clients[digest] = client
    return Tokens(clients)


def add_token(path: Path, name: str, *, inline_tasks: bool) -> str:
    """Make a token, append its hash to a file with mode 0600, and return it.

    Raises:
        UsageError: the name is not valid or taken, or the file cannot be read or written.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name!r} is not a name: letters, digits, '.', '_' and '-', at most 64")
    if path.exists():
        known = load_yaml(_text(path), path) or {}
        if isinstance(known, Mapping) and name in known:
            raise UsageError(f"{path} already has a token {name!r}", fix="choose another name, or remove its line")
    token = f"krl_{secrets.token_urlsafe(32)}"
    permission = ", inline_tasks: true" if inline_tasks else ""
    line = f"{name}: {{sha256: {_digest(token).hex()}{permission}}}\n"
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        with os.fdopen(descriptor, "a", encoding="utf-8") as file:
            file.write(line)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written: {error.strerror}", see="service-tokens") from error
    return token


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "replace")).digest()


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not a text file in UTF-8", fix=_fix(path), see="service-tokens") from error
    except OSError as error:
        raise UsageError(
            f"{path}: the file of tokens cannot be read: {error.strerror}", fix=_fix(path), see="service-tokens"
        ) from error


def _client(path: Path, name: Any, entry: Any) -> tuple[bytes, Client]:
    def refused(problem: str) -> UsageError:
        return UsageError(f"{path}: token {name!r}: {problem}", fix=_fix(path), see="service-tokens")

    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise refused("the name must have letters, digits, '.', '_' and '-' only, at most 64")
    if not isinstance(entry, Mapping):
        raise refused("expected {sha256: HASH}")
    for key in entry:
        if key not in _KEYS:
            raise refused(f"unknown key {key!r}; {suggestion(str(key), _KEYS)}")
    digest, inline_tasks = entry.get("sha256"), entry.get("inline_tasks", False)
    if not isinstance(digest, str) or not _SHA256.fullmatch(digest):
        raise refused("sha256 must be 64 hexadecimal digits")
    if not isinstance(inline_tasks, bool):
        raise refused("inline_tasks must be true or false")
    return bytes.fromhex(digest), Client(name, inline_tasks)


def _fix(path: Path) -> str:
    return f"kernelrl serve --tokens {path} --add-token NAME"
