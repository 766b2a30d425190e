from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from kernelrl_tinker_server.local import LocalServer

os.environ["TINKER_TELEMETRY"] = "0"
sys.path.insert(0, str(Path(__file__).parent))  # for the modules of this folder that are not tests


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    """A server with the tiny model, for tests that do not stop it."""
    with LocalServer(state=tmp_path_factory.mktemp("server")) as started:
        yield started


@pytest.fixture
def service(server):
    """The SDK's client for that server."""
    from any_sdk import service_client

    with service_client(server) as client:
        yield client
