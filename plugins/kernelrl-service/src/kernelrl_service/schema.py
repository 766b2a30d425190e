"""Checks of bodies, and the OpenAPI document, from the classes of `bodies`."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar, cast

import attrs
import cattrs
import jsonschema_rs

from kernelrl_core.api import API_VERSION, __version__
from kernelrl_core.api.errors import suggestion
from kernelrl_core.api.evaluators import from_json
from kernelrl_core.api.recipes import object_schema
from kernelrl_service.problems import PROBLEMS, Problem, ProblemDocument

__all__ = ["Endpoint", "openapi", "read_body"]

T = TypeVar("T")
_MAX_DETAIL = 400
_PARAMETER = re.compile(r"\{(\w+)(?::path)?\}")


@attrs.frozen
class Endpoint:
    """One method of a path."""

    method: str
    path: str
    """With parameters in braces: `/v1/tasks/{id:path}`."""
    summary: str
    handle: Callable[..., Any]
    """Coroutine function of the application."""
    responses: Sequence[tuple[int, type[Any] | None, str]]
    """Status, class of the body or None, and meaning of each response that is no problem."""
    problems: Sequence[str]
    """Names of the problems that it may raise beside those of every endpoint."""
    body: type[Any] | None = None
    """Class of the request's body; `dict`: any object."""
    waits: bool = False
    """Whether it has the query parameter `wait`."""
    is_open: bool = False
    """Whether it needs no token."""
    media_type: str = "application/json"


@functools.cache
def _validator(cls: Any) -> Any:
    return jsonschema_rs.Draft202012Validator(object_schema(cls))


def read_body(cls: type[T], data: Any) -> T:
    """The body of a request.

    Raises:
        Problem: it does not fit its class.
    """
    if cls is dict:
        if not isinstance(data, dict):
            raise Problem("invalid", "the body must be an object")
        return cast(T, data)
    hashable: Any = cls
    found = next(iter(_validator(hashable).iter_errors(data)), None)
    if found is not None:
        error = _innermost(found)
        place = ".".join(map(str, error.instance_path))
        words = _words(error, object_schema(cls))
        raise Problem("invalid", _shortened(f"{place}: {words}" if place else words))
    try:
        return from_json(cls, data)
    except cattrs.BaseValidationError as invalid:  # a range that a schema does not state
        raise Problem("invalid", _shortened("; ".join(map(str, _leaves(invalid))))) from invalid
    except (ValueError, OverflowError, RecursionError) as invalid:
        raise Problem("invalid", _shortened(f"{type(invalid).__name__}: {invalid}")) from invalid


def _innermost(error: Any) -> Any:
    """The error in the branch of a union that fits best: the one whose error is deepest."""
    branches = getattr(error.kind, "context", None) or ()
    inner = [_innermost(one) for branch in branches for one in branch]
    return max(inner, key=lambda one: len(one.instance_path), default=error)


def _words(error: Any, schema: Any) -> str:
    unexpected = next(iter(getattr(error.kind, "unexpected", ())), None)
    if unexpected is None:
        return str(error.message)
    for step in error.instance_path:
        schema = _inside(schema, step)
    return f"unknown key {unexpected!r}; {suggestion(unexpected, _branch(schema).get('properties', {}))}"


def _inside(schema: Any, step: str | int) -> Any:
    """The schema of a property or an item."""
    schema = _branch(schema)
    return schema.get("items", {}) if isinstance(step, int) else schema.get("properties", {}).get(step, {})


def _branch(schema: Any) -> Any:
    """The branch of an optional object that is not null; any other schema itself."""
    return next((one for one in schema.get("anyOf", ()) if "properties" in one), schema)


def _leaves(error: BaseException) -> list[BaseException]:
    """The errors inside a group of errors."""
    if isinstance(error, BaseExceptionGroup):
        return [leaf for one in error.exceptions for leaf in _leaves(one)]
    return [error]


def _shortened(text: str) -> str:
    return text if len(text) <= _MAX_DETAIL else f"{text[: _MAX_DETAIL // 2]} … {text[-_MAX_DETAIL // 2 :]}"


# --- OpenAPI ----------------------------------------------------------------------------------------------------------

_ALWAYS = ("version", "host", "too-many", "internal", "closing")
_WITH_BODY = ("json", "slow", "too-large", "content-type", "invalid")


def openapi(endpoints: Sequence[Endpoint], *, has_tokens: bool, max_wait_s: float) -> dict[str, Any]:
    """The OpenAPI 3.1 document of the endpoints."""
    classes = {ProblemDocument}
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        classes |= {cls for _, cls, _ in endpoint.responses if cls is not None}
        classes |= {endpoint.body} if endpoint.body is not None else set()
        path = _PARAMETER.sub(r"{\1}", endpoint.path)
        paths.setdefault(path, {})[endpoint.method.lower()] = _operation(endpoint, has_tokens, max_wait_s)
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {
            "title": "kernelrl serve",
            "version": __version__,
            "description": f"Evaluations and episodes over HTTP. API version {API_VERSION}.",
        },
        "paths": paths,
        "components": {
            "schemas": {cls.__name__: object_schema(cls) for cls in sorted(classes - {dict}, key=lambda c: c.__name__)}
        },
    }
    if has_tokens:
        document["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    return document


def _operation(endpoint: Endpoint, has_tokens: bool, max_wait_s: float) -> dict[str, Any]:
    responses = {str(status): _answer(endpoint, cls, text) for status, cls, text in endpoint.responses}
    names = [*_ALWAYS, *endpoint.problems]
    names += _WITH_BODY if endpoint.body is not None else ()
    names += ["invalid"] if endpoint.waits else []
    names += ["token"] if has_tokens and not endpoint.is_open else []
    for status in sorted({PROBLEMS[name][0] for name in names}):
        titles = {name: PROBLEMS[name][1] for name in dict.fromkeys(names) if PROBLEMS[name][0] == status}
        responses[str(status)] = {
            "description": "; ".join(f"`{name}`: {title}" for name, title in titles.items()),
            "content": {"application/problem+json": {"schema": _reference(ProblemDocument)}},
        }
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name in _PARAMETER.findall(endpoint.path)
    ]
    if endpoint.waits:
        wait = {"type": "number", "minimum": 0, "maximum": max_wait_s, "default": 0}
        text = "Seconds to wait for the result"
        parameters.append({"name": "wait", "in": "query", "required": False, "description": text, "schema": wait})
    operation: dict[str, Any] = {"summary": endpoint.summary, "parameters": parameters, "responses": responses}
    if endpoint.body is not None:
        content = {"application/json": {"schema": _reference(endpoint.body)}}
        operation["requestBody"] = {"required": True, "content": content}
    if has_tokens and not endpoint.is_open:
        operation["security"] = [{"token": []}]
    return operation


def _answer(endpoint: Endpoint, cls: type[Any] | None, text: str) -> dict[str, Any]:
    if cls is None:
        return {"description": text}
    return {"description": text, "content": {endpoint.media_type: {"schema": _reference(cls)}}}


def _reference(cls: type[Any]) -> dict[str, str]:
    if cls is dict:
        return {"type": "object"}
    return {"$ref": f"#/components/schemas/{cls.__name__}"}
