"""Explanations of recipe keys, options, components, metrics, rules, outcomes and problems, from their definitions.

Keys and options: docstrings and types of their classes. Components: their declarations. Rules: the checkers and
evaluators. Metrics and problems: the files of `kernelrl_core.recipe.explanations`.
"""

from __future__ import annotations

import re
import typing
from collections.abc import Iterator, Sequence
from typing import Any

import attrs

from kernelrl_core.errors import KernelRLError, LookupFailed, nearest
from kernelrl_core.plugins.kinds import KINDS_BY_NAME
from kernelrl_core.plugins.registry import Registry
from kernelrl_core.plugins.use import Use
from kernelrl_core.recipe.blocks import block_at, blocks
from kernelrl_core.recipe.explanations import Metric, metric_groups, metric_of, problems, synonyms
from kernelrl_core.recipe.field_docs import FieldDescription, describe_fields, field_docs
from kernelrl_core.recipe.schema import Recipe
from kernelrl_core.types.mismatches import Cause
from kernelrl_core.types.outcomes import CHECKER_FAILED_RULE, Outcome, Rule, Severity, Verdict

__all__ = ["Explanation", "default_rules", "evaluator_rules", "explain"]

_METRIC = "metric"


@attrs.frozen
class Explanation:
    """One meaning of a name."""

    name: str
    """Full name, such as `train.kl` or `policy.lora_rank`."""
    what: str
    """`recipe key`, `option of policy 'torch'`, `policy`, `metric`, `rule of checker 'source_rules'`, `problem`."""
    text: str
    """Effect or meaning."""
    source: str
    """Place of the definition."""
    field: FieldDescription | None = None
    """Type, default and nested keys of a key or an option."""
    options: tuple[FieldDescription, ...] = ()
    """Options of a component."""
    example: str = ""
    """Use on the command line; empty for a metric or a rule."""
    metric: Metric | None = None
    """Formula, unit and good range of a metric."""


def explain(name: str, registry: Registry) -> list[Explanation]:
    """All meanings of a name: a recipe key, an option, a component (also `KIND NAME`), a metric, a rule, an outcome, a
    severity, a verdict, or the id of a problem, which errors and alarms print as `more`.

    The name that a recipe gives to a component may be part of a key: `rewards.correct.weight`.

    Raises:
        LookupFailed: the name is unknown; the message has the nearest one.
    """
    parts = tuple(name.strip().split("."))
    if len(parts) > 2 and block_at(parts[:2]) is not None and blocks()[parts[0]].named:
        parts = (parts[0], *parts[2:])
    wanted = " ".join(".".join(parts).split())
    known = list(_everything(registry))
    found = _meanings(wanted, known) or _meanings(wanted.lower(), known)
    if not found and (key := synonyms().get(wanted.lower())) is not None:
        found = _meanings(key, known)
    if not found:
        close = nearest(wanted, {name for one in known for name in _names(one)})
        hint = f"; did you mean {close!r}?" if close else ""
        fix = "kernelrl schema lists all keys, kernelrl plugins list all components, and docs/metrics.md all metrics"
        raise LookupFailed(f"no key, component, metric, rule or problem {name!r}{hint}", fix=fix)
    return found


def _meanings(wanted: str, known: Sequence[Explanation]) -> list[Explanation]:
    """The explanations of a name. A key, an option or a metric may be given by its last part alone."""
    found = [one for one in known if wanted in _names(one)]
    if not any(one.what == _METRIC for one in found):
        found += _matching(wanted)
    if not any(one.field is not None for one in found):
        found += [one for one in known if one.field is not None and one.name.rpartition(".")[2] == wanted]
    return found or [one for one in known if one.what == _METRIC and one.name.rpartition("/")[2] == wanted]


def _names(one: Explanation) -> set[str]:
    """The names under which an explanation is found. A component also has those with its kind, and a result of the
    held-out evaluation that without `eval/`, which `kernelrl eval` prints."""
    kinds = [kind for kind, known in KINDS_BY_NAME.items() if known.singular == one.what]
    bare = {one.name.removeprefix("eval/")} if one.what == _METRIC and one.name != "eval/*" else set()
    return {one.name, *bare, *(f"{kind} {one.name}" for kind in kinds), *(f"{one.what} {one.name}" for _ in kinds)}


def _matching(wanted: str) -> list[Explanation]:
    """The metric whose name contains `*` or a number and fits, also without `eval/`."""
    found = metric_of(wanted)
    if found is None:
        result = metric_of(f"eval/{wanted}")
        found = result if result is not None and result.name != "eval/*" else None
    return [_of_metric(found)] if found is not None else []


def _everything(registry: Registry) -> Iterator[Explanation]:
    yield from _keys(registry)
    yield from _components(registry)
    yield from _rules(registry)
    yield from _metrics()
    yield from _words()
    yield from _problems()


def _keys(registry: Registry) -> Iterator[Explanation]:
    for field in describe_fields(Recipe):
        hint = typing.get_type_hints(Recipe)[field.name]
        block = blocks().get(field.name)
        cls = block.cls if block is not None else hint
        if block is None:
            for name, one in _flat(field):
                example = _example(*_override(field, name.split("."), one.example))
                yield Explanation(name, "recipe key", one.help, _place(cls, Recipe), one, example=example)
            continue
        names = sorted(registry.label(block.kind, component) for component in registry.components(block.kind))
        listed = f" Installed: {', '.join(names)}."
        path = f"{field.name}.NAME" if block.named else field.name
        of_use = _example(f"{path}.use", names[0] if names else "TEXT")
        yield Explanation(field.name, "recipe key", field.help + listed, _place(cls, Recipe), field, example=of_use)
        for option in describe_fields(block.cls):
            if option.name not in ("options", "raw"):
                is_use = option.name == "use"
                text = option.help.replace("`plugin:name`", "`PLUGIN:NAME`") + (listed if is_use else "")
                example = of_use if is_use else _example(f"{path}.{option.name}", option.example)
                key = f"{field.name}.{option.name}"
                yield Explanation(key, "recipe key", text, _place(block.cls, Recipe), option, example=example)


def _components(registry: Registry) -> Iterator[Explanation]:
    keys = {block.kind: (key, block.named) for key, block in blocks().items()}
    for kind, (key, named) in keys.items():
        singular = KINDS_BY_NAME[kind].singular
        path = f"{key}.NAME" if named else key
        for component in registry.components(kind):
            label = registry.label(kind, component)
            try:
                config = registry.config_class(kind, label)
                options = describe_fields(config)
            except KernelRLError:
                continue
            source = component.config or component.target
            example = f"kernelrl run RECIPE {path}.use={label}"
            yield Explanation(
                label, singular, component.summary, component.target, options=tuple(options), example=example
            )
            for option in options:
                for name, one in _flat(option):
                    what = f"option of {singular} {label!r}"
                    shown = _example(f"{path}.{name}", one.example)
                    yield Explanation(f"{key}.{name}", what, one.help, source, one, example=shown)


def _flat(field: FieldDescription, prefix: str = "") -> Iterator[tuple[str, FieldDescription]]:
    """A field and all fields below it, with their dotted names."""
    yield f"{prefix}{field.name}", field
    for one in field.fields:
        yield from _flat(one, f"{prefix}{field.name}.")


def _override(root: FieldDescription, names: Sequence[str], text: str) -> tuple[str, str]:
    """Path and value of an override that sets a key. A key of the mappings in a list is set with the whole list.

    Args:
        root: field of the first name.
        names: of the key.
        text: value of the key.
    """
    field = root
    for depth, name in enumerate(names[1:], 1):
        if field.type.startswith("a list"):
            for inner in reversed(names[depth:]):
                text = f"{{{inner}: {text}}}"
            return ".".join(names[:depth]), f"[{text}]"
        field = next(one for one in field.fields if one.name == name)
    return ".".join(names), text


def _example(path: str, text: str) -> str:
    value = f"'{path}={text}'" if re.search(r"[^\w.+:-]", text) else f"{path}={text}"
    return f"kernelrl run RECIPE {value}"


def _place(cls: Any, default: type[Any]) -> str:
    named = next((one for one in (cls, *typing.get_args(cls)) if isinstance(one, type) and attrs.has(one)), default)
    return f"{named.__module__}:{named.__name__}"


def _rules(registry: Registry) -> Iterator[Explanation]:
    for component in registry.components("checkers"):
        label = registry.label("checkers", component)
        for rule in default_rules(registry, label):
            text = f"{_rule_text(rule)} The key `forbid` replaces the list of stated rules."
            what = f"rule of checker {label!r}, severity {rule.severity.value}"
            yield Explanation(
                rule.id, what, text, component.target, example=f"kernelrl run RECIPE 'forbid=[{rule.id}]'"
            )
    seen: set[str] = set()
    for component in registry.components("evaluators"):
        label = registry.label("evaluators", component)
        for rule in evaluator_rules(registry, label):
            if rule.id not in seen:
                what = f"finding of evaluator {label!r}, severity {rule.severity.value}"
                yield Explanation(rule.id, what, _rule_text(rule), component.target)
            seen.add(rule.id)
    failed = CHECKER_FAILED_RULE
    yield Explanation(failed.id, f"finding, severity {failed.severity.value}", _rule_text(failed), "kernelrl_core")


def _rule_text(rule: Rule) -> str:
    parts = (
        rule.statement,
        rule.reason,
        f"Example: {rule.example}" if rule.example else "",
        f"Honest look-alike: {rule.look_alike}" if rule.look_alike else "",
        f"Misses: {rule.misses}" if rule.misses else "",
    )
    return " ".join(part for part in parts if part)


def evaluator_rules(registry: Registry, name: str) -> list[Rule]:
    """The rules of an evaluator's findings; empty if it cannot be loaded."""
    try:
        rules = registry.load("evaluators", name).rules
    except (KernelRLError, ImportError, AttributeError):
        return []
    return [rule for rule in rules if isinstance(rule, Rule)]


def default_rules(registry: Registry, name: str) -> list[Rule]:
    """The rules of a checker with its default options; empty if it is broken or needs an option."""
    try:
        rules = registry.make("checkers", Use(name)).rules
    except (KernelRLError, TypeError):
        return []
    # `kernelrl validate` reports a wrong declaration.
    return [rule for rule in rules if isinstance(rule, Rule)]


def _words() -> Iterator[Explanation]:
    """The words for the result of an evaluation. The outcome `incorrect` lists the causes of wrong values."""
    causes = field_docs(Cause)
    listed = "\n".join(f"- {cause.value}: {causes[cause.name]}" for cause in Cause)
    for what, cls in (("outcome", Outcome), ("severity of a finding", Severity), ("verdict", Verdict)):
        docs = field_docs(cls)
        for member in cls:
            source = f"{cls.__module__}:{cls.__name__}"
            text = docs.get(member.name, "")
            if member is Outcome.INCORRECT:
                text = f"{text}\nThe message names a likely cause where the output shows one:\n{listed}"
            yield Explanation(member.value, what, text, source)


def _problems() -> Iterator[Explanation]:
    for name, one in problems().items():
        yield Explanation(name, "problem", one.text, f"docs/troubleshooting.md#{name}")


def _metrics() -> Iterator[Explanation]:
    for group in metric_groups():
        for metric in group.metrics:
            yield _of_metric(metric)
        for name, meaning in group.outputs.items():
            yield Explanation(name, "output of kernelrl eval", meaning, group.source)


def _of_metric(metric: Metric) -> Explanation:
    return Explanation(metric.name, _METRIC, metric.meaning, metric.source, metric=metric)
