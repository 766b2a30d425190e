"""Rules about single components: their options and their code."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import metadata
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement

from kernelrl_core.errors import KernelRLError, MissingPrerequisite
from kernelrl_core.plugins.registry import Registry
from kernelrl_core.plugins.use import Use
from kernelrl_core.recipe.rules.contradiction import Contradiction

__all__ = ["feedback_code", "made", "own_problems", "required_distributions"]


def own_problems(path: tuple[str, ...], use: Use) -> Iterator[Contradiction]:
    """Contradictions that a component finds in its own options (`ComponentConfig.problems`)."""
    try:
        found = [str(problem) for problem in use.options.problems()]
    except Exception as error:  # plugin code
        found = [f"component {use.use!r} cannot check its options: {type(error).__name__}: {error}"]
    yield from (Contradiction(path, message) for message in found)


def made(kind: str, path: tuple[str, ...], use: Use, registry: Registry) -> tuple[Any, Contradiction | None]:
    """A component that needs neither machine nor network, and the first mistake in its code; None if there is none."""
    try:
        return registry.make(kind, use), None  # type: ignore[call-overload]
    except MissingPrerequisite as error:
        return None, Contradiction(path, error.message, error.fix, missing=True)
    except KernelRLError as error:
        return None, Contradiction(path, error.message, error.fix)


def feedback_code(feedback: Use, registry: Registry) -> Iterator[Contradiction]:
    """Mistakes in the code of the feedback formatter."""
    _, mistake = made("feedback", ("feedback",), feedback, registry)
    if mistake is not None:
        yield mistake


def required_distributions(requires: tuple[str, ...]) -> Iterator[Contradiction]:
    """Distributions that are not installed, or in another version."""
    for text in requires:
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            yield Contradiction(("requires",), f"{text!r} is not a requirement", "expected: such as 'kernelrl>=0.1'")
            continue
        try:
            installed = metadata.version(requirement.name)
        except metadata.PackageNotFoundError:
            yield Contradiction(("requires",), f"{text} is not installed", f"pip install '{text}'", missing=True)
            continue
        if not requirement.specifier.contains(installed, prereleases=True):
            message = f"{text} is required, {installed} is installed"
            yield Contradiction(("requires",), message, f"pip install '{text}'", missing=True)
