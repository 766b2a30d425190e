"""Errors of the SDK in the words of kernelrl."""

from __future__ import annotations

import httpx
import pytest
import tinker

from kernelrl_core.errors import InfrastructureError, MissingPrerequisite, UsageError
from kernelrl_plugin_tinker.saved import SavedPaths, SavedState, seconds_to_live
from kernelrl_plugin_tinker.service import explained

STATUS = {
    400: tinker.BadRequestError,
    401: tinker.AuthenticationError,
    402: tinker.BillingError,
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
def test_every_status_is_somebodys_business(status: int, kind: type[Exception]) -> None:
    assert type(explained(failed(status), "a reply")) is kind


@pytest.mark.parametrize("category", ["user", "server", "unknown"])
def test_a_failed_request_says_whose_fault_it_is(category: str) -> None:
    error = tinker.RequestFailedError("too long", request_id="1", category=tinker.types.RequestErrorCategory(category))
    assert type(explained(error, "a reply")) is (UsageError if category == "user" else InfrastructureError)


def test_a_key_in_a_servers_words_is_not_passed_on() -> None:
    for key in ("tml-secret-1234", "tml-se.cr+et/12=", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2ln"):
        told = str(explained(failed(500, f"who is {key}?"), "a reply"))
        assert key not in told
        assert "tml-…" in told


def test_the_fix_of_a_server_is_no_part_of_its_message() -> None:
    told = explained(failed(404, "there is no checkpoint\nfix: take another"), "loading")
    assert (told.message, told.fix) == ("the server refuses loading: there is no checkpoint", "take another")


def test_only_what_no_checkpoint_needs_is_superfluous() -> None:
    saved = SavedPaths()
    for number in range(5):
        saved.add_sampler(f"s{number}")
        saved.add(SavedState(f"w{number}", f"s{number}"), f"c{number}")
    # Checkpoints 3 and 4 are there; of the samplers the newest three stay in any case.
    assert saved.superfluous({"c3"}) == ["w0", "s0", "w1", "s1", "w2"]
    assert saved.superfluous({"c3", "c4"}) == []


def test_what_a_checkpoint_of_the_same_name_replaced_is_superfluous() -> None:
    """A crash left checkpoint 1 without its row, so it is made again; the newest three samplers stay."""
    saved = SavedPaths()
    saved.add(SavedState("w1", "s1"), "c1")
    saved.add(SavedState("w1 again", "s1 again"), "c1")
    for number in (2, 3, 4):
        saved.add_sampler(f"s{number}")
    assert saved.superfluous({"c1"}) == ["w1", "s1"]


def test_the_server_is_never_asked_for_less_than_an_hour() -> None:
    assert seconds_to_live(30.0) == 30 * 86400
    assert seconds_to_live(0.001) == 3600
    assert seconds_to_live(None) is None
