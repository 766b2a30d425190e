"""The public test kit: values, fakes and contract tests, for tests of the framework and of plugins.

| module | what it has |
|---|---|
| `testing.values` | builders of tasks, turns, evaluations, … with defaults for every field |
| `testing.fakes` | a policy, an evaluator, task source, environment that need no torch and run no candidate |
| `testing.contracts` | one class of tests per kind of component; a plugin's tests derive from it |
| `testing.training` | a recipe of fakes, and the training loop in the test's process |
| `testing.fixtures` | a pytest plugin: an isolated cache directory, one evaluator per test session, `assert_kernel` |

`kernelrl plugins new` writes the tests of a plugin with this kit. Each module of `kernelrl_core.interfaces` shows those
of its sample plugin.

Only `testing.fixtures` imports pytest (`pip install 'kernelrl[testing]'`). Of the rest of the core, only `kernelrl
plugins check` imports this package: it runs the contract tests.
"""
