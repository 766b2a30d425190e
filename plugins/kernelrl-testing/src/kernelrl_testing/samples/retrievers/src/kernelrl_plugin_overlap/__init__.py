"""Retriever `overlap` for kernelrl."""

from kernelrl_core.api import Component, hookimpl


@hookimpl
def kernelrl_retrievers() -> list[Component]:
    return [
        Component(
            "overlap",
            target="kernelrl_plugin_overlap.retriever:Overlap",
            config="kernelrl_plugin_overlap.options:OverlapConfig",
            summary="Examples whose references share the most words with the task",
        )
    ]
