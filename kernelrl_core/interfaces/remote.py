"""An evaluation by a process elsewhere: request and response as plain JSON.

The worker calls `serve_request`, the client `read_response`. An error of the evaluator arrives as the same class of
error; nothing is unpickled.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import cattrs

from kernelrl_core.errors import InfrastructureError, KernelRLError, MissingPrerequisite, UsageError
from kernelrl_core.types.evaluations import Evaluation, EvaluationRequest
from kernelrl_core.types.serialization import from_json, to_json

__all__ = ["read_response", "serve_request"]

logger = logging.getLogger(__name__)

_ERRORS = (UsageError, MissingPrerequisite, InfrastructureError)


async def serve_request(
    evaluate: Callable[[EvaluationRequest], Awaitable[Evaluation]], request: Mapping[str, Any]
) -> dict[str, Any]:
    """The response to a request that `to_json` made: `evaluation`, or `error` with `message`, `fix` and `see`.

    Args:
        evaluate: as `Evaluator.evaluate`.
    """
    try:
        return {"evaluation": to_json(await evaluate(from_json(EvaluationRequest, request)))}
    except _ERRORS as error:
        name = next(kind.__name__ for kind in _ERRORS if isinstance(error, kind))
        return {"error": name, "message": error.message, "fix": error.fix, "see": error.see}
    except Exception as error:  # a worker serves others: the client raises the error
        logger.exception("the evaluator of this worker failed")
        return {"error": "InfrastructureError", "message": f"the worker failed: {type(error).__name__}: {error}"}


def read_response(response: Any) -> Evaluation:
    """The evaluation in a response of `serve_request`.

    Raises:
        InfrastructureError, UsageError, MissingPrerequisite: the evaluator of the worker raised it. The first also
            where the response cannot be read.
    """
    error: KernelRLError = InfrastructureError("a worker returned neither with an evaluation nor with an error")
    if isinstance(response, Mapping):
        for kind in _ERRORS:
            if response.get("error") == kind.__name__:
                raise kind(
                    str(response.get("message")), fix=str(response.get("fix", "")), see=str(response.get("see", ""))
                )
        try:
            return from_json(Evaluation, response["evaluation"])
        except (KeyError, TypeError, ValueError, cattrs.BaseValidationError) as cause:
            raise error from cause
    raise error
