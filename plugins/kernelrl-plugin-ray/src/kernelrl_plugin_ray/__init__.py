"""The evaluator for candidates on a Ray cluster, and its batch script for SLURM."""

from __future__ import annotations

from kernelrl_core.api import Component, Requires, hookimpl


@hookimpl
def kernelrl_evaluators() -> list[Component]:
    return [
        Component(
            "ray",
            target="kernelrl_plugin_ray.evaluator:RayEvaluator",
            config="kernelrl_plugin_ray.config:RayConfig",
            summary="Evaluates candidates on a Ray cluster, or on one that it starts on this machine",
            requires=Requires(modules=("ray",), fix="pip install kernelrl-plugin-ray"),
        )
    ]


@hookimpl
def kernelrl_commands() -> list[Component]:
    return [
        Component("ray", target="kernelrl_plugin_ray.command:command", summary="Print batch scripts for Ray on SLURM.")
    ]
