"""The contract of components of all kinds, and how a contract is run without pytest."""

from __future__ import annotations

import contextlib
import inspect
import io
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar
from unittest import SkipTest

import attrs

from kernelrl_core.interfaces.requirements import Requires
from kernelrl_core.plugins.boundary import place_of
from kernelrl_core.plugins.declarations import declaration_faults
from kernelrl_core.plugins.kinds import KINDS_BY_NAME
from kernelrl_core.plugins.output import output_to_stderr
from kernelrl_core.plugins.registry import Registry, registry
from kernelrl_core.plugins.use import Use
from kernelrl_core.recipe.problems import RecipeError
from kernelrl_core.types.serialization import dumps
from kernelrl_testing.contracts.breaches import (
    Breach,
    Fault,
    calling,
    located,
    require,
    require_none,
    skipped_where_missing,
)
from kernelrl_testing.contracts.imports import heavy_imports, import_faults, undeclared_imports
from kernelrl_testing.contracts.limits import TookTooLong, wall_clock_limit
from kernelrl_testing.contracts.options import read_options

__all__ = ["ComponentContract", "Result", "failures", "require_unchanged", "results"]

_UNKNOWN_KEY = "no_such_option"


class ComponentContract:
    """Tests for a component of any kind. Derive from the contract of the kind instead."""

    kind: ClassVar[str]
    component: ClassVar[str]
    """Name as a recipe writes it after `use:`."""
    options: Mapping[str, Any] = {}
    """Options as a recipe writes them; a fixture may set them on `self`. Empty: `check_options` of the class of the
    component's options."""
    limit_s: ClassVar[float] = 60.0
    """Wall time of a test. `kernelrl plugins check` interrupts a test that takes longer, and names it."""

    def registry(self) -> Registry:
        """Where the component is looked up: the plugins of this environment."""
        return registry()

    def use(self) -> Use:
        """The component with its options, as a recipe selects it."""
        options = self.options or self.registry().config_class(self.kind, self.component).check_options
        try:
            return read_options(self.registry(), self.kind, self.component, options)
        except RecipeError as error:
            raise Breach(
                *(Fault(f"{one.path}: {one.message}", one.hint or _FIX_OPTIONS) for one in error.problems)
            ) from error

    def make(self) -> Any:
        """A new instance, made with `options`."""
        with skipped_where_missing():
            return self.registry().make(self.kind, self.use())  # type: ignore[call-overload]

    def require_prerequisites(self, *also: Requires) -> None:
        """Skip the test where this machine lacks a prerequisite of the component."""
        component = self.registry().find(self.kind, self.component)
        found = [
            *self.registry().missing(component, self.use().options),
            *(one for requires in also for one in self.registry().missing(attrs.evolve(component, requires=requires))),
        ]
        if found:
            raise SkipTest(f"{found[0].what} is missing; fix: {found[0].fix}")

    def test_is_found_and_loads(self) -> None:
        with skipped_where_missing():
            component = self.registry().find(self.kind, self.component)
            require(component.name == self.component.rpartition(":")[2], "another component is found", "rename it")
            fresh = component.target.partition(":")[0] not in sys.modules
            # The registry sends what it prints to standard error, and reports what fails.
            with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.suppress(Exception, SystemExit):
                component.load()
            self.registry().load(self.kind, self.component)
            unknown = self.registry().unknown_methods(self.kind, self.component)
        require_none(Fault(message, "rename it, or begin its name with '_'") for message in unknown)
        line = next(iter(printed.getvalue().splitlines()), "")
        fix = "remove the output, or log it with the module logging"
        require(not (fresh and line), f"importing {component.target.partition(':')[0]} prints {line[:100]!r}", fix)

    def test_options_import_nothing_heavy(self) -> None:
        require_none(heavy_imports(self.registry().find(self.kind, self.component)))

    def test_import_is_quick_and_quiet(self) -> None:
        require_none(import_faults(self.registry().find(self.kind, self.component)))

    def test_requires_names_all_imports(self) -> None:
        component = self.registry().find(self.kind, self.component)
        dist = self.registry().plugin_of(self.kind, self.component).dist
        with calling("requires() of the options", "return a Requires for any options"):
            also = self.use().options.requires() if KINDS_BY_NAME[self.kind].base_name else Requires()
        require(isinstance(also, Requires), f"requires() of the options returns {also!r}", "return a Requires")
        require_none(undeclared_imports(component, dist, also))

    def test_options_round_trip_and_unknown_ones_are_refused(self) -> None:
        use = self.use()
        try:
            again = read_options(self.registry(), self.kind, self.component, json.loads(json.dumps(use.raw)))
        except (RecipeError, TypeError, ValueError) as error:
            raise Breach(Fault(f"options that are saved cannot be read again: {located(error)}", _FIX_SAVED)) from error
        saved = f"options change when they are saved and read again: {use.options} becomes {again.options}"
        require(again.options == use.options, saved, _FIX_SAVED)
        try:
            read_options(self.registry(), self.kind, self.component, {**use.raw, _UNKNOWN_KEY: 1})
        except RecipeError:
            return
        raise Breach(Fault(f"the unknown option {_UNKNOWN_KEY!r} is accepted", "declare options as attrs fields"))

    def test_declares_what_its_kind_requires(self) -> None:
        found = declaration_faults(self.kind, self.make(), self.use().options)
        require_none(Fault(message, fix) for message, fix in found)


_FIX_OPTIONS = "correct the options of the test, or check_options of the options class"
_FIX_SAVED = 'use the types of docs/plugin_rules.md, "Options", and change no value in the constructor of the options'


@attrs.frozen
class Result:
    """Result of one test of a contract."""

    test: str
    """Name of the test."""
    faults: tuple[Fault, ...] = ()
    """Requirements that are not fulfilled; none: the test passes or is skipped."""
    skipped: str = ""
    """Reason why the test did not run; empty if it did."""


def results(contract: ComponentContract, folder: Path) -> Iterator[Result]:
    """Run all tests of a contract without pytest, those of all kinds first.

    Args:
        folder: an empty directory for the tests that write.
    """
    for number, name in enumerate(_tests(type(contract))):
        test, directory = getattr(contract, name), folder / str(number)
        directory.mkdir()
        arguments = (directory,) if "tmp_path" in inspect.signature(test).parameters else ()
        try:
            with output_to_stderr(), wall_clock_limit(contract.limit_s):
                test(*arguments)
        except TookTooLong as error:
            fix = "let it end: no endless loop, no sleep, no pattern that backtracks, a limit for each request"
            yield Result(name, (Fault(f"{name} does not end within {contract.limit_s:g} s{place_of(error)}", fix),))
        except SkipTest as skipped:
            yield Result(name, skipped=str(skipped))
        except Breach as breach:
            yield Result(name, breach.faults)
        except (Exception, SystemExit) as error:
            yield Result(name, (Fault(located(error), "correct it in the plugin"),))
        else:
            yield Result(name)


def failures(contract: ComponentContract, folder: Path) -> dict[str, str]:
    """Run all tests of a contract without pytest; skipped ones count as passed.

    Args:
        folder: an empty directory for the tests that write.

    Returns:
        Name of each test that fails -> its message, a line per fault.
    """
    found = {result.test: "\n".join(map(str, result.faults)) for result in results(contract, folder)}
    return {name: message for name, message in found.items() if message}


def _tests(cls: type[ComponentContract]) -> Sequence[str]:
    """Names of the tests, those of base classes first, in the order of their definition."""
    owners = [owner for owner in reversed(cls.__mro__) if owner is not object]
    return tuple(dict.fromkeys(name for owner in owners for name in vars(owner) if name.startswith("test_")))


def require_unchanged(values: Sequence[Any], use: Any, what: str) -> None:
    """`use` must not change mappings inside the values. Its exceptions are reported by other tests."""
    for value in values:
        before = dumps(value)
        with contextlib.suppress(Exception):
            use(value)
        require(dumps(value) == before, f"{what} changes its argument", "copy what it changes")
