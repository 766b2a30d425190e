"""Clients of Tinker's SDK, whichever version is installed; the differences are found in the SDK itself."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import tinker

from kernelrl_tinker_server.local import LocalServer


@contextlib.contextmanager
def service_client(server: LocalServer) -> Iterator[Any]:
    """A client of the server, with its session ended at the end where the SDK can end one."""
    client = tinker.ServiceClient(base_url=server.base_url, api_key=server.api_key)
    with client if hasattr(client, "__enter__") else contextlib.nullcontext():
        yield client


def ready(made: Any) -> Any:
    """The client that a call makes: older versions return it, newer ones a future of it."""
    return made.result() if hasattr(made, "result") else made


def rest_client(server: LocalServer, service: Any) -> Any:
    """A client for requests outside a session; in older versions it is made from the service's client."""
    if hasattr(tinker, "RestClient"):
        return tinker.RestClient(base_url=server.base_url, api_key=server.api_key)
    return service.create_rest_client()


def served_models(rest: Any, service: Any) -> list[Any]:
    """The models that the server lists."""
    source = rest if hasattr(rest, "get_server_capabilities") else service
    found = source.get_server_capabilities()
    return list(ready(found).supported_models)
