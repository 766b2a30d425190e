"""Addresses of servers: `http://HOST:PORT`, `https://HOST`, or `unix:PATH` for a socket of this machine."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from kernelrl_core.api.errors import MissingPrerequisite
from kernelrl_core.api.evaluators import SERVICE_SOCKET, SERVICE_VARIABLE, UNIX, lock_directory

__all__ = ["address_fault", "default_socket", "is_service_running", "service_urls"]

_CONNECT_S = 0.5


def service_urls(environment: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """The servers that `KERNELRL_SERVICE` names; if it is not set, the one of this user on this machine, if its socket
    exists."""
    given = environment.get(SERVICE_VARIABLE)
    if given is not None:
        return tuple(url.strip() for url in given.split(",") if url.strip())
    path = default_socket()
    return (f"{UNIX}{path}",) if path is not None and path.exists() else ()


def default_socket() -> Path | None:
    """Socket of this user's `kernelrl serve --unix` on this machine; None where another user could have put one."""
    try:
        path = lock_directory() / SERVICE_SOCKET
        found = path.lstat()
    except FileNotFoundError:
        return path
    except (MissingPrerequisite, OSError):
        return None
    return path if stat.S_ISSOCK(found.st_mode) and found.st_uid == os.getuid() else None


def is_service_running() -> bool:
    """Whether `KERNELRL_SERVICE` names a server; if it is not set, whether this user's socket accepts connections."""
    urls = service_urls()
    if not urls or SERVICE_VARIABLE in os.environ:
        return bool(urls)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(_CONNECT_S)
        try:
            client.connect(urls[0].removeprefix(UNIX))
        except OSError:  # a server that was killed leaves its socket behind
            return False
    return True


def address_fault(url: str) -> str:
    """The reason why an address cannot be used; empty if it can. Does not contain the address, which may hold a
    secret."""
    if url.startswith(UNIX):
        path = url.removeprefix(UNIX)
        return "" if path.startswith("/") else f"{UNIX} needs an absolute path, such as {UNIX}/run/kernelrl.sock"
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        return "an address must be a URL such as http://127.0.0.1:8790, or unix:/run/kernelrl.sock"
    if parts.username or parts.password or parts.query or parts.fragment:
        return "an address must have no user, password or query; set the token in the variable of token_env"
    return ""
