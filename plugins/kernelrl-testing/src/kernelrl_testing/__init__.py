"""The test kit: values, fakes and contract tests, for tests of the framework and of plugins; commands for plugins.

| module | contents |
|---|---|
| `values` | builders of tasks, turns, evaluations, … with defaults for every field |
| `fakes` | a policy, an evaluator, task source, environment that need no torch and run no candidate |
| `contracts` | one class of tests per kind of component; a plugin's tests derive from it |
| `training` | a recipe of fakes, and the training loop in the test's process |
| `fixtures` | a pytest plugin: an isolated cache directory, one evaluator per test session, `assert_kernel` |
| `waiting` | waits for a condition, with a deadline that a busy machine keeps too |
| `kernels` | evaluates a kernel as the fixture `assert_kernel` does |

`kernelrl plugins new` writes a plugin whose tests use this kit; `kernelrl plugins check` runs the contract tests. The
kit has the version of the core and may import its private modules; other plugins import `kernelrl_core.api` only.
"""

from __future__ import annotations

from kernelrl_core.api import Component, hookimpl


@hookimpl
def kernelrl_commands() -> list[Component]:
    return [
        Component(
            "plugins check",
            target="kernelrl_testing.check_command:command",
            summary="Test a plugin, and its evaluators with known hacks.",
        ),
        Component(
            "plugins new",
            target="kernelrl_testing.new_command:command",
            summary="Write the package of a new plugin.",
        ),
    ]
