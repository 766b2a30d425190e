"""The page of findings, from the declarations of the rules."""

from __future__ import annotations

from docpages.markdown import note, wrapped
from kernelrl_core.plugins.registry import registry
from kernelrl_core.recipe.explain import default_rules, evaluator_rules
from kernelrl_core.types import CHECKER_FAILED_RULE, Rule


def declared_rules() -> list[tuple[str, Rule]]:
    """Each rule of this repository with the place of its findings."""
    known = registry()
    rules = []
    for label in ("source_rules", "evaluation_rules"):
        rules += [(f"checker `{label}`", rule) for rule in default_rules(known, label)]
    rules += [("judge", rule) for rule in evaluator_rules(known, "local")]
    return [*rules, ("core", CHECKER_FAILED_RULE)]


def findings_page() -> str:
    """The page with one section per finding."""
    parts = [
        "# Findings",
        note("the declarations of the rules"),
        wrapped(
            "A finding is a reported rule with evidence. Its severity is `note`, `suspect` or `hack`; the worst one is "
            "the verdict of the turn. A note changes neither score nor verdict. A finding of a stated rule (`forbid`) "
            "that is more than a note rejects: the outcome is `rejected`. Other suspect kernels stay `correct`, and "
            "rewards count their speedup as at most 1. A hack ends as `hacked`. `kernelrl explain RULE` prints the "
            "same text."
        ),
        "| finding | severity | from |\n|---|---|---|\n"
        + "\n".join(f"| [`{rule.id}`](#{rule.id}) | {rule.severity.value} | {by} |" for by, rule in declared_rules()),
    ]
    for by, rule in declared_rules():
        stated = ", stated by default" if rule.stated else ""
        rows = {
            "meaning": rule.reason,
            "rule": rule.statement,
            "severity": f"{rule.severity.value}, from {by}{stated}",
            "example": rule.example,
            "honest look-alike": rule.look_alike,
            "does not find": rule.misses,
            "cost": rule.cost or "none: it reads the source or an existing result",
        }
        table = "\n".join(f"| {name} | {text} |" for name, text in rows.items())
        parts += [f"## {rule.id}", f"| | |\n|---|---|\n{table}"]
    return "\n\n".join(parts) + "\n"
