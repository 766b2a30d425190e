"""The pool of judges that the tests of this folder share. Modules of this folder can be imported by its tests."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from shared_evaluations import USERS_KEY, Evaluations


@pytest.fixture(scope="session")
def evaluations() -> Iterator[Evaluations]:
    with pytest.MonkeyPatch.context() as patch, Evaluations() as shared:
        patch.setenv("SERVICE_API_KEY", USERS_KEY)
        yield shared
