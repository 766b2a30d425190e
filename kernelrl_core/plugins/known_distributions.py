"""Where the components named in the documentation come from, for the message that tells how to install them.

Core uses these names in messages alone and treats the distributions like anyone's.
"""

from __future__ import annotations

__all__ = ["distribution_of"]

_COMPONENTS = {
    "backends": {
        "triton": "triton",
        "cuda": "cuda",
        "hip": "hip",
        "cpp": "cpp",
        "tilelang": "tilelang",
        "cute": "cute",
    },
    "evaluators": {"local": "local", "modal": "modal", "ray": "ray"},
    "tasks": {
        "starter": "starter",
        "kernelbench": "kernelbench",
        "directory": "kernelbench",
        "dataset": "kernelbench",
    },
    "retrievers": {"bm25": "raicl", "faiss": "raicl", "hybrid": "raicl"},
    "rewards": dict.fromkeys(
        ("format", "compile", "correctness", "speedup", "milestone", "coverage", "cuda_l1", "thinking", "length"),
        "rewards",
    ),
    "checkers": {"source_rules": "checkers", "evaluation_rules": "checkers", "kernelguard": "checkers"},
    "feedback": dict.fromkeys(("structured", "raw", "minimal", "profile"), "feedback"),
    "policies": {name: name for name in ("torch", "tinker", "scripted")},
    "loggers": {name: name for name in ("tensorboard", "wandb", "trackio")},
    "commands": {"index": "raicl", "modal": "modal", "tinker-server": "tinker", "lab": "kernelrl-lab"},
}


def distribution_of(kind: str, name: str) -> str:
    """Distribution that offers the component, or empty text when the name is nobody's."""
    plugin = _COMPONENTS.get(kind, {}).get(name, "")
    return plugin if not plugin or plugin.startswith("kernelrl-") else f"kernelrl-plugin-{plugin}"
