"""A method that a policy lacks is refused with its name."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from kernelrl_core.errors import UsageError
from kernelrl_core.interfaces.policies import PolicyConfig, TrainablePolicy


@pytest.fixture
def plain() -> TrainablePolicy:
    class Plain(TrainablePolicy):
        pass

    # Only the methods that a policy must have are abstract.
    Plain.__abstractmethods__ = frozenset()
    return Plain()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda policy: policy.begin_from({}, Path()), "cannot begin with the weights of another run"),
        (lambda policy: policy.logprobs([], "reference"), "gives no log-probabilities of its reference weights"),
        (lambda policy: policy.backward([], None), "computes no gradients ahead of an update"),
        (lambda policy: policy.export(Path()), "exports no weights"),
    ],
)
def test_a_method_that_the_policy_lacks_is_refused(
    plain: TrainablePolicy, call: Callable[[Any], Coroutine[Any, Any, Any]], message: str
) -> None:
    with pytest.raises(UsageError, match=f"policy Plain {message}"):
        asyncio.run(call(plain))


def test_options_declare_nothing_by_default() -> None:
    options = PolicyConfig()
    assert (options.capabilities().losses, options.context_limit()) == (frozenset(), None)
