"""Retrieval of worked kernels from an index of corpora."""

from __future__ import annotations

from kernelrl_core.api import Component, Requires, hookimpl

_DENSE = Requires(modules=("sentence_transformers",), fix="pip install 'kernelrl-plugin-raicl[dense]'")


@hookimpl
def kernelrl_retrievers() -> list[Component]:
    return [
        Component(
            "bm25",
            "kernelrl_plugin_raicl.retrievers:Bm25",
            config="kernelrl_plugin_raicl.config:Bm25Config",
            summary="Lexical search in an index",
        ),
        Component(
            "faiss",
            "kernelrl_plugin_raicl.retrievers:Faiss",
            config="kernelrl_plugin_raicl.config:FaissConfig",
            summary="Dense search in an index",
            requires=_DENSE,
        ),
        Component(
            "hybrid",
            "kernelrl_plugin_raicl.retrievers:Hybrid",
            config="kernelrl_plugin_raicl.config:HybridConfig",
            summary="Lexical and dense search, weighted",
            requires=_DENSE,
        ),
        Component(
            "value",
            "kernelrl_plugin_raicl.retrievers:Value",
            config="kernelrl_plugin_raicl.config:ValueConfig",
            summary="Prefers examples that helped in this run",
        ),
    ]


@hookimpl
def kernelrl_commands() -> list[Component]:
    return [
        Component(
            "index",
            target="kernelrl_plugin_raicl.commands:command",
            summary="Build, inspect and query an index of worked kernels.",
        )
    ]
