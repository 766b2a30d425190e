"""Environments by recipe: created on first use, closed with the event loop.

Only the recipe, as JSON, is sent between processes. An environment owns processes and cannot be sent.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
from collections.abc import AsyncGenerator, Sequence
from weakref import WeakKeyDictionary

from kernelrl_core.api.config import cache_directory
from kernelrl_core.api.episodes import Environment, Recipe, load_recipe, recipe_from_mapping, registry

__all__ = ["make_environment", "read_recipe", "recipe_of", "shared_environment"]

_open: WeakKeyDictionary[asyncio.AbstractEventLoop, dict[str, AsyncGenerator[Environment]]] = WeakKeyDictionary()


def read_recipe(name_or_path: str, overrides: Sequence[str] = ()) -> str:
    """The resolved recipe as JSON, independent of the working directory; see `load_recipe` for names and errors."""
    return json.dumps(load_recipe(name_or_path, overrides, registry=registry()).resolved, sort_keys=True)


@functools.lru_cache
def recipe_of(text: str) -> Recipe:
    """The recipe of a text from `read_recipe`."""
    return recipe_from_mapping(json.loads(text), registry=registry(), name="recipe").recipe


def make_environment(recipe: Recipe) -> Environment:
    """A new environment with a random secret, so that its hidden inputs are unpredictable. The caller closes it."""
    return Environment.from_recipe(recipe, registry=registry(), secret=os.urandom(32), cache_dir=cache_directory())


async def shared_environment(text: str) -> Environment:
    """The environment of the running event loop for a recipe. It is closed when `asyncio.run` ends."""
    loop = asyncio.get_running_loop()
    known = _open.setdefault(loop, {})
    if text not in known:
        # `asyncio.run` closes every started asynchronous generator at its end, and so the environment.
        known[text] = _hold(make_environment(recipe_of(text)))
        return await anext(known[text])
    return await known[text].asend(None)


async def _hold(environment: Environment) -> AsyncGenerator[Environment]:
    try:
        while True:
            yield environment
    finally:
        await environment.aclose()
