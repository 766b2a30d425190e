"""Evaluator `cluster` for kernelrl."""

from kernelrl_core.api import Component, Requires, hookimpl


@hookimpl
def kernelrl_evaluators() -> list[Component]:
    return [
        Component(
            "cluster",
            target="kernelrl_plugin_cluster.evaluator:Cluster",
            config="kernelrl_plugin_cluster.options:ClusterConfig",
            summary="Evaluates through a program, on any machine",
            requires=Requires(modules=("kernelrl_plugin_local",), fix="pip install kernelrl-plugin-local"),
        )
    ]
