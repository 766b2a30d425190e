"""Contract of the evaluator `cluster`, with a worker that executes no candidate."""

import asyncio
import sys
from types import MappingProxyType

import pytest

from kernelrl_core.api.errors import InfrastructureError
from kernelrl_plugin_cluster.evaluator import Cluster
from kernelrl_plugin_cluster.options import ClusterConfig
from kernelrl_testing.contracts import EvaluatorContract
from kernelrl_testing.values import make_request

pytest.importorskip("kernelrl_plugin_triton", reason="the contract evaluates the example of backend triton")

WORKER = """
import ast, json, sys

request = json.load(sys.stdin)["request"]
source = request["source"]
if request["backend"] != "triton" or "planted" in request["task_source"]:
    raise SystemExit("the request cannot be carried out")
try:
    ast.parse(source)
    outcome = "runtime_error" if "planted" in source else "incorrect" if "zeros(())" in source else "correct"
except SyntaxError:
    outcome = "compile_error"
correct = outcome == "correct"
found = {"outcome": outcome, "message": "" if correct else outcome, "tests_passed": 5 * correct, "tests_total": 5}
json.dump(found, sys.stdout)
"""
"""Decides by the text of a candidate of the contract."""


class TestContract(EvaluatorContract):
    component = "cluster"
    options = MappingProxyType({"command": (sys.executable, "-c", WORKER)})
    backend = "triton"


def test_a_program_that_fails_is_an_infrastructure_error() -> None:
    config = ClusterConfig(command=(sys.executable, "-c", "raise SystemExit('no GPU')"))
    evaluator = Cluster(config)
    with pytest.raises(InfrastructureError, match="no GPU"):
        asyncio.run(evaluator.evaluate(make_request()))
