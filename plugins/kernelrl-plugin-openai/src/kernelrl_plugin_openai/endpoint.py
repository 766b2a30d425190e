"""One endpoint over HTTP: what is asked, what is repeated, and what each failure means to the user.

    key refused          MissingPrerequisite        the run ends; nothing is repeated
    request refused      UsageError                 the run ends; nothing is repeated
    overloaded or away   repeated for `patience_s`; then InfrastructureError if others were answered meanwhile (the
                         sample is lost), else KernelRLError (the run ends, and can be continued)
    half an answer       repeated twice; then InfrastructureError

No message holds the key: texts of the endpoint are searched for it, and its exceptions, which hold requests, end here.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import openai
from tenacity import AsyncRetrying, RetryCallState, retry_if_exception_type, wait_random_exponential

from kernelrl_core.api.errors import InfrastructureError, KernelRLError, MissingPrerequisite, UsageError, suggestion
from kernelrl_plugin_openai.config import OpenAIConfig

__all__ = ["CHAT", "UNREADABLE", "Endpoint", "IncompleteResponse", "readable_logprob"]

_LOWEST_LOGPROB = -9999.0
"""What endpoints say for a probability of 0, which JSON cannot hold as a logarithm."""

T = TypeVar("T")

CHAT = "/chat/completions"
UNREADABLE = (KeyError, TypeError, IndexError, AttributeError, ValueError, OverflowError)
"""What reading an answer of another shape raises."""

_MAX_HALF_ANSWERS = 3
_START_PATIENCE_S = 5.0
_FIRST_WAIT_S = 0.5
_LONGEST_WAIT_S = 60.0
_MAX_TEXT = 300


class IncompleteResponse(Exception):
    """An answer that lacks what was asked for.

    Args:
        told: what it lacks, in words without a secret.
        fix: what the user can do about it, where that is known.
    """

    def __init__(self, told: str, fix: str = "") -> None:
        super().__init__(told)
        self.fix = fix


class Unavailable(Exception):
    """Overloaded or not there; worth another try.

    Args:
        told: what happened, in words without a secret.
        wait_s: how long the endpoint asks us to wait, if it does.
    """

    def __init__(self, told: str, wait_s: float | None = None) -> None:
        super().__init__(told)
        self.told, self.wait_s = told, wait_s


class Endpoint:
    """Answers of one endpoint, with bounded repetition."""

    def __init__(self, options: OpenAIConfig) -> None:
        """Raises MissingPrerequisite: the variable that should hold the key is empty."""
        self._options = options
        self._key = os.environ.get(options.api_key_env, "") if options.api_key_env else ""
        if options.api_key_env and not self._key:
            raise MissingPrerequisite(
                f"policy openai: the environment variable {options.api_key_env} is not set", fix=options.requires().fix
            )
        # Its client logs a line for every request, and in debug mode the request itself.
        for name in ("openai", "httpx", "httpcore"):
            logging.getLogger(name).setLevel(logging.WARNING)
        self._client = openai.AsyncOpenAI(
            base_url=options.base_url, api_key=self._key or "none", max_retries=0, timeout=options.timeout_s
        )
        self._slots = asyncio.Semaphore(options.max_concurrent)
        self._last_answer = -1.0

    async def models(self) -> dict[str, Any]:
        """Name -> description of the models that are served; empty where the endpoint does not say."""
        try:
            page = await self._client.models.list(timeout=_START_PATIENCE_S)
            return {model.id: model for model in page.data}
        except (openai.OpenAIError, ValueError, TypeError, AttributeError):
            return {}

    async def probe(self, body: Mapping[str, Any], read: Callable[[Any], T], *, path: str = CHAT) -> T:
        """Ask as `ask` does, to find out before anything is spent whether the endpoint does what is needed.

        Raises:
            MissingPrerequisite: nobody answers, or the key is refused.
            UsageError: the model or a parameter is unknown there, or the answer lacks what `read` looks for.
        """
        try:
            return await self.ask(body, read, path=path, patience_s=min(_START_PATIENCE_S, self._options.patience_s))
        except InfrastructureError as error:
            raise UsageError(error.message, fix=error.fix) from None
        except (UsageError, MissingPrerequisite):
            raise
        except KernelRLError as error:
            raise MissingPrerequisite(error.message, fix="start the server, or correct policy.base_url") from None

    def limit(self, max_tokens: int) -> dict[str, int]:
        """The reply's limit, as this sort of server calls it."""
        return {"max_completion_tokens" if self._options.server == "openai" else "max_tokens": max_tokens}

    async def ask(
        self, body: Mapping[str, Any], read: Callable[[Any], T], *, path: str = CHAT, patience_s: float | None = None
    ) -> T:
        """One answer.

        Args:
            body: fields of the request; the model, where it names none, and `extra_body` are added.
            read: extracts the result from the response, plain data, or text where it is not JSON; raises
                `IncompleteResponse` where it is missing.
            path: what is asked, below the address.
            patience_s: in place of the option.

        Raises:
            KernelRLError: see the table of this module.
        """
        patience = self._options.patience_s if patience_s is None else patience_s
        began = time.monotonic()
        halves = 0

        def stop(state: RetryCallState) -> bool:
            nonlocal halves
            failure = state.outcome.exception() if state.outcome else None
            halves += isinstance(failure, IncompleteResponse)
            return halves >= _MAX_HALF_ANSWERS or time.monotonic() + state.upcoming_sleep > began + patience

        retrying = AsyncRetrying(
            retry=retry_if_exception_type((Unavailable, IncompleteResponse)), wait=_wait, stop=stop, reraise=True
        )
        try:
            async with self._slots:
                began = time.monotonic()
                answer: T = await retrying(self._once, path, body, read)
        except IncompleteResponse as error:
            told = f"{error}, {halves} times" if error.fix else f"half an answer, {halves} times: {error}"
            raise InfrastructureError(f"{self._where}: {told}", fix=error.fix) from None
        except Unavailable as error:
            waited = time.monotonic() - began
            told = f"{self._where}: {error.told}, for {waited:.0f} s"
            if self._last_answer > began:
                raise InfrastructureError(told) from None
            raise KernelRLError(
                told,
                fix="wait until it answers again and go on (kernelrl resume; kernelrl eval with the same --output); "
                "policy.max_concurrent asks less at once, policy.patience_s waits longer",
            ) from None
        self._last_answer = time.monotonic()
        return answer

    async def aclose(self) -> None:
        await self._client.close()

    @property
    def _where(self) -> str:
        return f"policy openai: {self._options.base_url}"

    async def _once(self, path: str, body: Mapping[str, Any], read: Callable[[Any], T]) -> T:
        try:
            answer = await self._client.post(
                path,
                body={**self._options.extra_body, "model": self._options.model, **body},
                cast_to=object,
            )
        except openai.APITimeoutError:
            raise Unavailable(f"no answer within {self._options.timeout_s:g} s") from None
        except openai.APIConnectionError as error:
            raise Unavailable(f"no connection ({self._clean(str(error.__cause__ or error))})") from None
        except openai.APIStatusError as error:
            raise await self._refused(error) from None
        except (openai.OpenAIError, ValueError) as error:
            if isinstance(error, json.JSONDecodeError) and error.pos == 0:
                raise self._no_json() from None
            raise IncompleteResponse(self._clean(f"{type(error).__name__}: {error}")) from None
        try:
            found: T = read(answer)
            return found
        except UNREADABLE as error:
            if isinstance(answer, str):
                raise self._no_json() from None
            raise IncompleteResponse(self._clean(f"it cannot be read ({type(error).__name__}: {error})")) from None

    def _no_json(self) -> IncompleteResponse:
        return IncompleteResponse(
            "the answer is no JSON of an OpenAI-compatible server",
            fix=f"correct policy.base_url, {self._options.base_url}: the address of the API, up to and including /v1",
        )

    async def _refused(self, error: openai.APIStatusError) -> Exception:
        status, told = error.status_code, self._clean(_message(error))
        if status in (401, 403):
            variable = self._options.api_key_env
            fix = f"check the key in {variable}" if variable else "name the key's variable in policy.api_key_env"
            return MissingPrerequisite(f"{self._where}: the key was refused ({status})", fix=fix)
        if error.code == "insufficient_quota":
            # A 429 like that of an overload, but no waiting helps.
            return MissingPrerequisite(f"{self._where}: the account has no credit left", fix="add credit, then go on")
        if status in (408, 409, 425, 429) or status >= 500:
            return Unavailable(f"answers {status} ({told})", _retry_after(error))
        if status == 404 or "model" in told.lower():
            served = await self.models()
            if served and self._options.model not in served:
                hint = suggestion(self._options.model, served)
                return UsageError(f"{self._where} serves no model {self._options.model!r}; {hint}")
        fix = "correct policy.base_url, which ends in /v1" if status == 404 else ""
        return UsageError(f"{self._where} refuses the request ({status}): {told}", fix=fix)

    def _clean(self, text: str) -> str:
        """Text of somebody else, without the key and on one short line."""
        text = text.replace(self._key, "[key]") if self._key else text
        return " ".join(text.split())[:_MAX_TEXT]


def _wait(state: RetryCallState) -> float:
    failure = state.outcome.exception() if state.outcome else None
    asked = failure.wait_s if isinstance(failure, Unavailable) else None
    drawn: float = wait_random_exponential(multiplier=_FIRST_WAIT_S, max=_LONGEST_WAIT_S)(state)
    # On top, so that those who are told the same moment do not all come back in it.
    return drawn if asked is None else min(asked, _LONGEST_WAIT_S) + min(drawn, 1.0)


def _retry_after(error: openai.APIStatusError) -> float | None:
    try:
        seconds = float(error.response.headers["retry-after"])
    except (KeyError, ValueError):
        return None
    return seconds if 0 <= seconds < 1e6 else None


def _message(error: openai.APIStatusError) -> str:
    body = error.body
    if isinstance(body, Mapping):
        nested = body.get("error")
        body = nested.get("message") if isinstance(nested, Mapping) else body.get("message") or nested
    return body if isinstance(body, str) else json.dumps(body) if body else str(error.status_code)


def readable_logprob(value: Any) -> float:
    """A log-probability as it is used: some servers say minus infinity, or a rounded number above 0.

    Raises:
        TypeError, ValueError: it is no number.
    """
    number = float(value)
    if math.isnan(number):
        raise ValueError("a log-probability is not a number")
    return min(max(number, _LOWEST_LOGPROB), 0.0)
