"""The runner's own code, which a candidate shares a process with and can lay hands on: put back, and told of.

It is looked at before orders, right after the candidate's code has returned, and when something is said to the judge.
Who looks is a generator: its code and variables cannot be replaced as those of a function or an object can, and what it
has noticed stays noticed. Who finds the generator, through frames or the garbage collector, can still do anything.
"""

from __future__ import annotations

import builtins
import gc
import re
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["names_in", "own_code"]

_PACKAGES = ("kernelrl_judge.", "kernelrl_plugin_")
_FIXED = (types.FunctionType, types.BuiltinFunctionType, type, types.ModuleType, re.Pattern, frozenset)
"""What stays as it is in a module. Its other variables may be its memory."""
_OF_CLASSES = (types.FunctionType, property, classmethod, staticmethod)
_CALLED = (types.FunctionType, types.BuiltinFunctionType, type)


def own_code() -> Callable[[], bool]:
    """To be called before any candidate is loaded; remembers the modules of this project as they are.

    Returns:
        A function that puts back what was replaced since, and returns whether it ever found something of the project's.
        Functions of the standard library that the project names are put back as well, and so are built-in ones: who
        replaces one of those need not mean the runner.
    """
    modules = {name: module for name, module in sys.modules.items() if name.startswith(_PACKAGES)}
    namespaces = [
        (vars(module), {name: value for name, value in vars(module).items() if isinstance(value, _FIXED)})
        for module in modules.values()
    ]
    found = [value for _, kept in namespaces for value in kept.values()]
    classes = [value for value in found if isinstance(value, type) and value.__module__.startswith(_PACKAGES)]
    methods = [
        (kind, vars(kind), {name: value for name, value in vars(kind).items() if isinstance(value, _OF_CLASSES)})
        for kind in dict.fromkeys(classes)
    ]
    inside = [value for *_, kept in methods for value in kept.values()]
    own = [*dict.fromkeys(function for value in (*found, *inside) for function in _functions(value))]
    others = _named_of_others([*modules.values()], own)
    theirs = [value for _, kept in others for value in kept.values() if isinstance(value, types.FunctionType)]
    built_in = {name: value for name, value in vars(builtins).items() if not name.startswith("_")}
    kept_own, kept_theirs = (
        tuple((function, function.__code__, function.__defaults__) for function in functions)
        for functions in (own, theirs)
    )
    looking = _looking(
        tuple(modules.items()),
        tuple((namespace, tuple(kept.items()), built_in.keys() - namespace.keys()) for namespace, kept in namespaces),
        tuple((kind, present, tuple(kept.items())) for kind, present, kept in methods),
        kept_own,
        tuple((namespace, tuple(kept.items())) for namespace, kept in others),
        kept_theirs,
        tuple(built_in.items()),
        _parts((*kept_own, *kept_theirs)),
    )
    return looking.__next__


def _looking(
    modules: Any, namespaces: Any, methods: Any, own: Any, others: Any, theirs: Any, built_in: Any, parts: Any
) -> Iterator[bool]:
    """Looks each time that it is asked. Nothing is looked up elsewhere but built-in functions, which come first."""
    loaded, present, replaced = sys.modules, vars(builtins), False
    place = type.__setattr__
    referents, length = gc.get_referents, len
    functions = tuple(function for function, _, _ in (*own, *theirs))
    while True:
        for name, value in built_in:
            if present.get(name) is not value:
                present[name] = value
        for name, module in modules:
            if loaded.get(name) is not module:
                loaded[name] = module
                replaced = True
        for namespace, kept, hidden in namespaces:
            for name, value in kept:
                if namespace.get(name) is not value:
                    namespace[name] = value
                    replaced = True
            # What has a built-in function's name goes before it.
            if not hidden.isdisjoint(namespace):
                for name in hidden & namespace.keys():
                    del namespace[name]
                    replaced = True
        for kind, attributes, kept in methods:
            for name, value in kept:
                if attributes.get(name) is not value:
                    place(kind, name, value)
                    replaced = True
        for namespace, kept in others:
            for name, value in kept:
                if namespace.get(name) is not value:
                    namespace[name] = value
        # Python asks its audit hooks each time that a function is asked for its code, and only once about all of them.
        found = referents(*functions)
        count, places = parts
        changed = length(found) != count
        for at, value in () if changed else places:
            if found[at] is not value:
                changed = True
        if changed:
            for function, code, defaults in own:
                if function.__code__ is not code or function.__defaults__ is not defaults:
                    function.__code__, function.__defaults__ = code, defaults
                    replaced = True
            for function, code, defaults in theirs:
                if function.__code__ is not code or function.__defaults__ is not defaults:
                    function.__code__, function.__defaults__ = code, defaults
            parts = _parts((*own, *theirs))
        yield replaced


def _parts(functions: Any) -> tuple[int, tuple[tuple[int, Any], ...]]:
    """How many objects functions refer to, and where among these the code and the defaults of each stand."""
    places: list[tuple[int, Any]] = []
    count = 0
    for function, code, defaults in functions:
        found = gc.get_referents(function)
        for value in (code, defaults):
            places += [(count + at, value) for at, other in enumerate(found) if other is value is not None][:1]
        count += len(found)
    return count, tuple(places)


def _functions(value: Any) -> Iterator[types.FunctionType]:
    """The functions of this project that a value is or holds."""
    if isinstance(value, property):
        parts = [value.fget, value.fset, value.fdel]
    elif isinstance(value, classmethod | staticmethod):
        parts = [value.__func__]
    else:
        parts = [value]
    for part in parts:
        if isinstance(part, types.FunctionType) and str(part.__module__).startswith(_PACKAGES):
            yield part


def _named_of_others(modules: list[Any], own: list[Any]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """What functions name of modules of the standard library: namespaces, and functions and classes in each."""
    names = {name for function in own for name in names_in(function.__code__)}
    libraries = {
        value.__name__: value
        for module in modules
        for value in vars(module).values()
        if isinstance(value, types.ModuleType) and value.__name__.partition(".")[0] in sys.stdlib_module_names
    }
    return [
        (space, {name: space[name] for name in sorted(names & space.keys()) if isinstance(space[name], _CALLED)})
        for space in map(vars, libraries.values())
    ]


def names_in(code: types.CodeType) -> Iterator[str]:
    """Names that code, and code within it, looks up in modules and objects."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from names_in(constant)
