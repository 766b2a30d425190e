from __future__ import annotations

import os

import pytest

from kernelrl_tinker_server.local import LocalServer

os.environ["TINKER_TELEMETRY"] = "0"


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """A server with the tiny model, for tests that do not stop it."""
    with LocalServer(state=tmp_path_factory.mktemp("server")) as started:
        yield started


@pytest.fixture
def service(server):
    """The SDK's client for that server."""
    import tinker

    with tinker.ServiceClient(base_url=server.base_url, api_key=server.api_key) as client:
        yield client
