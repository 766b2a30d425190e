"""Everything that clients may name: tasks, recipes, backends with their options. Requests are made from it alone."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import attrs

from kernelrl_core.api import API_VERSION
from kernelrl_core.api.components import Registry, Use
from kernelrl_core.api.episodes import (
    DEFAULT_EVALUATION,
    CandidateEvaluator,
    Environment,
    EvaluationSpec,
    Recipe,
    find_task,
    load_recipe,
    read_evaluation_spec,
    read_task_text,
    request_seed,
    spec_of,
    why_untimed,
    with_timing,
)
from kernelrl_core.api.errors import KernelRLError, MissingPrerequisite, UsageError, suggestion
from kernelrl_core.api.evaluators import (
    EvaluationRequest,
    EvaluationSettings,
    Evaluator,
    package_problem,
    sha256_text,
    to_json,
)
from kernelrl_core.api.tasks import Task
from kernelrl_service.bodies import CheckBody, EvaluationBody
from kernelrl_service.options import Limits, ServeOptions
from kernelrl_service.problems import Problem
from kernelrl_service.tokens import Client

__all__ = ["Catalogue", "Served", "ServedRecipe", "read_served"]

_NAME_LIMIT = 200
_HEX = frozenset("0123456789abcdef")
_SEED_DIGITS = 32
_BOUNDED = ("timeout_s", "build_timeout_s", "memory_mib", "build_memory_mib", "trials", "timing_trials")
"""Settings with a limit of the same name."""


@attrs.frozen
class ServedRecipe:
    """A recipe of the server."""

    name: str
    recipe: Recipe
    tasks: Mapping[str, Task]
    """Its tasks by id, of all splits."""
    sha256: str
    """Hash of the resolved recipe."""


@attrs.frozen
class Served:
    """What a server was started with."""

    spec: EvaluationSpec
    """Default evaluation specification; its evaluator is the server's."""
    command_spec: EvaluationSpec
    """That of `kernelrl check` without options; its evaluator is the server's."""
    recipes: Mapping[str, ServedRecipe]
    """By name."""
    tasks: Mapping[str, Task]
    """All tasks by id, those of the recipes included."""


def read_served(options: ServeOptions, registry: Registry) -> Served:
    """Read recipes and tasks. Without either, the tasks of the default task source are served.

    Raises:
        RecipeError: a recipe or an override has mistakes.
        UsageError, MissingPrerequisite: a task or a component cannot be used, or two tasks have the same id.
    """
    chosen = [f"evaluator.use={options.evaluator}"] if options.evaluator else []
    spec = read_evaluation_spec(DEFAULT_EVALUATION, [*chosen, *options.overrides], registry=registry)
    recipes: dict[str, ServedRecipe] = {}
    tasks: dict[str, Task] = {}
    for name_or_path in options.recipes:
        served = _recipe(name_or_path, spec, registry)
        if served.name in recipes:
            raise UsageError(f"two recipes have the name {served.name!r}", fix="rename one of the files")
        recipes[served.name] = served
        _add(tasks, served.tasks.values(), name_or_path)
    named = options.tasks or (() if options.recipes else (registry.default("tasks"),))
    for text in named:
        _add(tasks, _tasks(text, registry), text)
    command_spec = attrs.evolve(read_evaluation_spec(DEFAULT_EVALUATION, registry=registry), evaluator=spec.evaluator)
    return Served(spec, command_spec, recipes, tasks)


def _recipe(name_or_path: str, spec: EvaluationSpec, registry: Registry) -> ServedRecipe:
    loaded = load_recipe(name_or_path, registry=registry)
    resolved = json.dumps(loaded.resolved, sort_keys=True, default=str)
    # The server's evaluator takes the place of the recipe's.
    recipe = attrs.evolve(loaded.recipe, evaluator=spec.evaluator)
    source = registry.make("tasks", recipe.tasks)
    tasks = {task.id: task for split in source.splits() for task in source.tasks(split)}
    return ServedRecipe(loaded.name, recipe, tasks, hashlib.sha256(resolved.encode()).hexdigest())


def _tasks(text: str, registry: Registry) -> list[Task]:
    """The task of a file, or all tasks of a source."""
    sources = [component.name for component in registry.components("tasks")]
    if text not in sources or Path(text).is_file():
        return [find_task(text, registry=registry)]
    source = registry.make("tasks", Use(text))
    return [task for split in source.splits() for task in source.tasks(split)]


def _add(tasks: dict[str, Task], more: Iterable[Task], where: str) -> None:
    for task in more:
        known = tasks.setdefault(task.id, task)
        if known.sha256 != task.sha256:
            message = f"{where}: another served task has the id {task.id!r} and another reference"
            raise UsageError(message, fix="serve them with two servers")


class Catalogue:
    """Tasks, recipes and backends of a running server.

    Args:
        evaluator: the server's evaluator, for what it says about backends.
        queued: evaluates for checks and episodes, through the queue.
        secret: key of the hidden input seeds.
    """

    def __init__(
        self,
        served: Served,
        registry: Registry,
        limits: Limits,
        *,
        evaluator: Evaluator,
        queued: Evaluator,
        secret: bytes,
    ) -> None:
        self.served = served
        self._registry, self._limits = registry, limits
        self._evaluator, self._queued, self._secret = evaluator, queued, secret
        self._by_sha256 = {task.sha256: task for task in served.tasks.values()}
        self._defaults = _default_options(registry)
        self._allowed: dict[str, set[str]] = {name: {_canonical(own)} for name, own in self._defaults.items()}
        for spec in (served.spec, *(spec_of(one.recipe) for one in served.recipes.values())):
            self._allowed.setdefault(spec.backend.use, set()).add(_canonical(to_json(spec.backend.options)))
        self.environments = {
            name: Environment.from_recipe(
                one.recipe, registry=registry, secret=secret, cache_dir=None, evaluator=queued
            )
            for name, one in served.recipes.items()
        }
        """By the name of the recipe."""
        self._checking: dict[tuple[str, str, bool], tuple[CandidateEvaluator, str]] = {}

    # --- names --------------------------------------------------------------------------------------------------------

    def task(self, id_: str) -> Task:
        """A served task.

        Raises:
            Problem: there is none with this id.
        """
        _require_known(self.served.tasks, id_, "unknown-task", "task")
        return self.served.tasks[id_]

    def recipe(self, name: str) -> ServedRecipe:
        """A served recipe.

        Raises:
            Problem: there is none of this name.
        """
        _require_known(self.served.recipes, name, "unknown-recipe", "recipe")
        return self.served.recipes[name]

    def task_of(self, recipe: ServedRecipe, id_: str) -> Task:
        """A task of a recipe.

        Raises:
            Problem: it has none with this id.
        """
        _require_known(recipe.tasks, id_, "unknown-task", "task")
        return recipe.tasks[id_]

    def recipes_with(self, task: Task) -> tuple[str, ...]:
        """Names of the recipes that have a task."""
        return tuple(name for name, one in self.served.recipes.items() if task.id in one.tasks)

    def untimed(self) -> dict[str, str]:
        """Backend -> why its kernels cannot be timed here; empty: they can."""
        found = {}
        for name, options in self._defaults.items():
            try:
                found[name] = self._evaluator.why_untimed(name, options)
            except KernelRLError as error:
                found[name] = error.message
        return found

    def task_to_check(self, body: CheckBody, client: Client) -> Task:
        """The task of a check: of the recipe, of the server, or of the client.

        Raises:
            Problem: it is not served, or the client may not send it.
            UsageError: the source is not a task.
        """
        if body.task_source:
            self.require_size("task_source", body.task_source)
            name = body.task[:_NAME_LIMIT]
            task = self._inline_task(name, body.task_source, client, "")
            return attrs.evolve(task, reference=read_task_text(body.task_source, name))
        if body.recipe is not None and body.task in self.recipe(body.recipe).tasks:
            return self.recipe(body.recipe).tasks[body.task]
        return self.task(body.task)

    # --- requests -----------------------------------------------------------------------------------------------------

    async def request(self, body: EvaluationBody, client: Client) -> EvaluationRequest:
        """The evaluation request of a body, with the server's task, defaults and allowed options.

        Raises:
            Problem: the body names what the server does not serve, or exceeds a limit.
        """
        if body.api_version and body.api_version != API_VERSION:
            raise version_problem(body.api_version)
        self._require_short(body)
        task = self._task_of(body, client)
        source_sha256 = sha256_text(body.source)
        if body.source_sha256 not in ("", source_sha256):
            raise Problem("invalid", "source_sha256 does not fit source")
        options = self._options(body, client)
        settings = body.settings or EvaluationSettings().for_task(task)
        self._require_limits(settings)
        if body.kernels is None:
            kernels, complete = await asyncio.to_thread(self._read_kernels, body.backend, body.source)
        else:
            kernels, complete = body.kernels, body.kernels_complete
        return EvaluationRequest(
            task_id=body.task_id or task.id,
            task_source=task.reference,
            task_sha256=task.sha256,
            source=body.source,
            source_sha256=source_sha256,
            backend=body.backend,
            backend_options=options,
            settings=settings,
            seed=_seed(body.seed) or request_seed(self._secret, task.sha256, source_sha256),
            api_version=API_VERSION,
            kernels=kernels,
            kernels_complete=complete,
            suspect_rules=body.suspect_rules,
            domain=task.domain,
            package=body.package,
        )

    def _require_short(self, body: EvaluationBody) -> None:
        for name, text in (("source", body.source), ("task_source", body.task_source)):
            self.require_size(name, text)
        for name in ("task_id", "backend", "task_sha256", "source_sha256", "seed", "domain"):
            if len(getattr(body, name)) > _NAME_LIMIT:
                raise Problem("invalid", f"{name} has more than {_NAME_LIMIT} characters")
        self.require_package(body.package)

    def require_package(self, files: Mapping[str, str]) -> None:
        """Refuse files that cannot travel with a kernel.

        Raises:
            Problem: they cannot.
        """
        if problem := package_problem(files):
            raise Problem("invalid", f"package: {problem}")

    def require_size(self, name: str, text: str) -> None:
        """Refuse a text above the limit.

        Raises:
            Problem: it is too large.
        """
        limit = self._limits.source_bytes
        if len(text) > limit or len(text.encode()) > limit:
            raise Problem("too-large", f"{name} has more than {limit} bytes")

    def _task_of(self, body: EvaluationBody, client: Client) -> Task:
        """The task of a body. That of a client has a domain of the client, so that its judge is confined."""
        sha256 = body.task_sha256
        if body.task_source:
            sha256 = sha256_text(body.task_source)
            if body.task_sha256 not in ("", sha256):
                raise Problem("invalid", "task_sha256 does not fit task_source")
        if not sha256:
            if not body.task_id:
                raise Problem("invalid", "the request names no task", fix="send task_id, task_sha256 or task_source")
            return self.task(body.task_id)
        if sha256 in self._by_sha256:
            return self._by_sha256[sha256]
        return self._inline_task(body.task_id or sha256[:12], body.task_source, client, body.domain)

    def _inline_task(self, name: str, source: str, client: Client, domain: str) -> Task:
        if not client.inline_tasks:
            detail = f"the server serves no task {name!r} with this reference, and you may not send sources of tasks"
            raise Problem("inline-task", detail, fix="serve the task, or use a token with the permission inline_tasks")
        if not source:
            raise Problem("inline-task", f"the server lacks the source of task {name!r}", fix="send task_source")
        # Those of the user that runs the server need no confinement from it, unless this user wants it.
        if not client.is_same_user or domain:
            domain = f"{client.name}/{domain}"
        return Task(name, source, domain=domain)

    def _options(self, body: EvaluationBody, client: Client) -> Mapping[str, Any]:
        if body.backend not in self._allowed:
            fix = f"the server has {', '.join(sorted(self._allowed))}"
            try:
                self._registry.find("backends", body.backend)
            except KernelRLError as error:
                fix = f"on the server: {error.fix}" if error.fix.startswith("pip install") else fix
            raise Problem("unknown-backend", f"the server has no backend {body.backend!r}", fix=fix)
        if not body.backend_options:
            return dict(self._defaults[body.backend])
        if not client.is_same_user and _canonical(body.backend_options) not in self._allowed[body.backend]:
            detail = f"backend {body.backend!r}: these options are not those of a served recipe, and not the defaults"
            raise Problem("invalid", detail, fix="serve a recipe with these options")
        return body.backend_options

    def _require_limits(self, settings: EvaluationSettings) -> None:
        for name in _BOUNDED:
            value, limit = getattr(settings, name), getattr(self._limits, name)
            if not value <= limit:
                raise Problem("invalid", f"settings.{name} is {value:g}; the limit is {limit:g}")

    def _read_kernels(self, backend: str, source: str) -> tuple[tuple[str, ...], bool]:
        facts = self._registry.make("backends", Use(backend)).source_facts(source)
        return tuple(kernel.name for kernel in facts.kernels), not facts.unread

    # --- checks -------------------------------------------------------------------------------------------------------

    def checking(
        self, recipe: str | None, backend: str | None, *, as_command: bool = False
    ) -> tuple[CandidateEvaluator, str]:
        """The evaluator of checks, and the reason why they are not timed.

        Args:
            as_command: without a recipe, use the keys of `kernelrl check`, not those with which the server was started.

        Raises:
            Problem: recipe or backend is not served, or this machine lacks a prerequisite.
        """
        own = self.served.command_spec if as_command else self.served.spec
        spec = own if recipe is None else spec_of(self.recipe(recipe).recipe)
        if backend is not None and backend != spec.backend.use:
            if backend not in self._allowed or backend not in self._defaults:
                fix = f"the server has {', '.join(sorted(self._allowed))}"
                raise Problem("unknown-backend", f"the server has no backend {backend[:_NAME_LIMIT]!r}", fix=fix)
            config = self._registry.config_class("backends", backend)
            spec = attrs.evolve(spec, backend=Use(backend, config()))
        key = (recipe or "", spec.backend.use, as_command)
        if key not in self._checking:
            try:
                # As `kernelrl check`: times are measured where they can be.
                reason = why_untimed(with_timing(spec, False), self._evaluator, self._registry)
                made = CandidateEvaluator.from_spec(
                    with_timing(spec, not reason),
                    registry=self._registry,
                    secret=self._secret,
                    cache_dir=None,
                    evaluator=self._queued,
                )
            except MissingPrerequisite as lack:
                raise Problem("unknown-backend", lack.message, fix=lack.fix) from lack
            self._checking[key] = made, reason
        return self._checking[key]

    async def aclose(self) -> None:
        """Close environments and evaluators of checks."""
        for environment in self.environments.values():
            await environment.aclose()
        for evaluator, _ in self._checking.values():
            await evaluator.aclose()


def version_problem(given: str) -> Problem:
    """The refusal of a client with another API version."""
    fix = f"install kernelrl with API version {API_VERSION} on the client, or the client's version on the server"
    return Problem("version", f"the client has API version {given[:_NAME_LIMIT]!r}, the server {API_VERSION}", fix=fix)


def _require_known(known: Mapping[str, Any], name: str, problem: str, kind: str) -> None:
    if name not in known:
        shown = name[:_NAME_LIMIT]
        raise Problem(problem, f"the server serves no {kind} {shown!r}; {suggestion(shown, known)}")


def _default_options(registry: Registry) -> dict[str, Any]:
    """Backend -> its default options, for each backend that has them all."""
    found = {}
    for component in registry.components("backends"):
        name = registry.label("backends", component)
        try:
            found[name] = to_json(registry.config_class("backends", name)())
        except (KernelRLError, TypeError):
            continue
    return found


def _canonical(options: Any) -> str:
    return json.dumps(options, sort_keys=True, default=list)


def _seed(seed: str) -> str:
    if seed and (len(seed) != _SEED_DIGITS or not set(seed) <= _HEX):
        raise Problem("invalid", f"seed must have {_SEED_DIGITS} hexadecimal digits")
    return seed
