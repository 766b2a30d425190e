"""Conversion of SDK errors to errors of kernelrl, and the paths that may be deleted."""

from __future__ import annotations

import httpx
import pytest
import tinker

from kernelrl_core.api.errors import InfrastructureError, MissingPrerequisite, UsageError
from kernelrl_plugin_tinker.saved import SavedPaths, SavedState, seconds_to_live
from kernelrl_plugin_tinker.service import explained

STATUS = {
    400: tinker.BadRequestError,
    401: tinker.AuthenticationError,
    402: getattr(tinker, "BillingError", tinker.APIStatusError),  # SDKs before 0.26 have none
    403: tinker.PermissionDeniedError,
    404: tinker.NotFoundError,
    409: tinker.ConflictError,
    422: tinker.UnprocessableEntityError,
    429: tinker.RateLimitError,
    500: tinker.InternalServerError,
}


def failed(status: int, text: str = "no") -> Exception:
    request = httpx.Request("POST", "http://server/api", headers={"X-API-Key": "tml-secret-1234"})
    body = {"detail": text}
    return STATUS[status](text, response=httpx.Response(status, json=body, request=request), body=body)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, UsageError), (401, MissingPrerequisite), (402, MissingPrerequisite), (403, MissingPrerequisite),
        (404, UsageError), (409, InfrastructureError), (422, UsageError), (429, InfrastructureError),
        (500, InfrastructureError),
    ],
)  # fmt: skip
def test_every_http_status_has_an_error_class(status: int, kind: type[Exception]) -> None:
    assert type(explained(failed(status), "a reply")) is kind


@pytest.mark.parametrize("category", ["user", "server", "unknown"])
def test_the_category_of_a_failed_request_selects_the_error_class(category: str) -> None:
    error = tinker.RequestFailedError("too long", request_id="1", category=tinker.types.RequestErrorCategory(category))
    assert type(explained(error, "a reply")) is (UsageError if category == "user" else InfrastructureError)


def test_a_key_in_a_server_s_message_is_removed() -> None:
    for key in ("tml-secret-1234", "tml-se.cr+et/12=", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln"):
        message = str(explained(failed(500, f"unknown key {key}"), "a reply"))
        assert key not in message
        assert "tml-…" in message


def test_the_fix_of_a_server_is_not_part_of_the_message() -> None:
    error = explained(failed(404, "there is no checkpoint\nfix: take another"), "loading")
    assert (error.message, error.fix) == ("the server refuses loading: there is no checkpoint", "take another")


def test_only_paths_that_no_checkpoint_needs_are_superfluous() -> None:
    saved = SavedPaths()
    for number in range(5):
        saved.add_sampler(f"s{number}")
        saved.add(SavedState(f"w{number}", f"s{number}"), f"c{number}")
    # Checkpoints 3 and 4 exist; the newest three sampler weights are always kept.
    assert saved.superfluous({"c3"}) == ["w0", "s0", "w1", "s1", "w2"]
    assert saved.superfluous({"c3", "c4"}) == []


def test_paths_of_a_replaced_checkpoint_are_superfluous() -> None:
    """A crash left checkpoint 1 without its row, so it is saved again; the newest three sampler weights are kept."""
    saved = SavedPaths()
    saved.add(SavedState("w1", "s1"), "c1")
    saved.add(SavedState("w1 again", "s1 again"), "c1")
    for number in (2, 3, 4):
        saved.add_sampler(f"s{number}")
    assert saved.superfluous({"c1"}) == ["w1", "s1"]


def test_the_time_to_live_is_at_least_an_hour() -> None:
    assert seconds_to_live(30.0) == 30 * 86400
    assert seconds_to_live(0.001) == 3600
    assert seconds_to_live(None) is None
