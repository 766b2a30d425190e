"""Options of the evaluator `route`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import attrs

from kernelrl_core.api import Component, Requires
from kernelrl_core.api.components import RecipeError, Use, component_block, registry
from kernelrl_core.api.errors import KernelRLError, suggestion
from kernelrl_core.api.evaluators import EvaluationSettings, EvaluatorConfig

__all__ = ["RouteConfig"]


@attrs.frozen
class RouteConfig(EvaluatorConfig):
    """The members and how candidates are distributed."""

    members: Mapping[str, Any]
    """Evaluator blocks by name, such as `{near: {use: local}, far: {use: modal, gpu: H100}}`. The first one with free
    capacity, in this order, gets the next candidate."""
    timing: str | None = None
    """Name of the member that times candidates. The other member evaluates each candidate without timing, and
    this one only the correct ones. Null: each candidate is evaluated by one member."""

    @property
    def uses(self) -> dict[str, Use]:
        """The members with their options.

        Raises:
            RecipeError: a block is invalid; paths begin with the name of the member.
        """
        found: dict[str, Use] = {}
        problems = []
        for name, block in self.members.items():
            try:
                found[name] = component_block("evaluator", block if isinstance(block, Mapping) else {}, registry())
            except RecipeError as error:
                problems += [
                    attrs.evolve(problem, path=f"members.{name}{problem.path.removeprefix('evaluator')}")
                    for problem in error.problems
                ]
        if problems:
            raise RecipeError(problems)
        return found

    def problems(self) -> Iterable[str]:
        if len(self.members) < 2:
            yield "members must name at least two evaluators"
        if self.timing is not None and self.timing not in self.members:
            yield f"timing: no member {self.timing!r}; {suggestion(self.timing, self.members)}"
        elif self.timing is not None and len(self.members) != 2:
            yield "timing needs exactly two members: one that times, and one that evaluates before it"
        try:
            _ = self.uses
        except RecipeError as error:
            for problem in error.problems:
                yield f"{problem.path}: {problem.message}; {problem.hint}".rstrip("; ")

    def settings_here(self, settings: EvaluationSettings) -> EvaluationSettings | None:
        found: EvaluationSettings | None = None
        for name, (_, use) in zip(self.members, self._components(), strict=False):
            untimed = self.timing is not None and name != self.timing
            here = use.options.settings_here(attrs.evolve(settings, timing=False) if untimed else settings)
            found = here if found is None or (here is not None and here.timing) else found
        return found

    def requires(self) -> Requires:
        return _absent((component, use.options.requires()) for component, use in self._components())

    def requires_for(self, settings: EvaluationSettings) -> Requires:
        return _absent((component, use.options.requires_for(settings)) for component, use in self._components())

    def prices(self) -> Mapping[str, float]:
        """The highest price of each kind: an upper bound of the cost."""
        found: dict[str, float] = {}
        for _, use in self._components():
            for name, price in use.options.prices().items():
                found[name] = max(price, found.get(name, 0.0))
        return found

    def _components(self) -> Iterator[tuple[Component, Use]]:
        try:
            uses = self.uses
        except KernelRLError:
            return  # reported by `problems`
        for use in uses.values():
            yield registry().find("evaluators", use.use), use


def _absent(needs: Iterable[tuple[Component, Requires]]) -> Requires:
    """What this machine lacks of prerequisites with a fix of their own each."""
    missing = [
        found
        for component, requires in needs
        for found in (*registry().missing(component), *registry().missing(attrs.evolve(component, requires=requires)))
    ]
    return Requires(
        absent=tuple(dict.fromkeys(found.what for found in missing)),
        fix="; ".join(dict.fromkeys(found.fix for found in missing)),
    )
