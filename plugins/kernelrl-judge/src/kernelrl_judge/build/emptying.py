"""Makes device sources in which every kernel does nothing, for the probe `no_op`."""

from __future__ import annotations

from collections.abc import Iterator

from kernelrl_judge.build.lexing import Item, Unreadable, items, text_of

__all__ = ["without_kernel_bodies"]


def without_kernel_bodies(source: str) -> str:
    """The source with the bodies of its `__global__` functions emptied, and all else on the line where it was.

    Raises:
        Unreadable: a kernel may be left that does something.
    """
    return "".join(_texts(items(source)))


def _texts(found: list[Item] | tuple[Item, ...]) -> Iterator[str]:
    for item in found:
        if item.kind == "scope":
            yield text_of(item.tokens) + "{"
            yield from _texts(item.children)
            yield "\n}"
            continue
        head = item.tokens if item.kind != "function" else item.tokens[: item.body]
        if not any("__global__" in token.text for token in head):
            # Nor may anything behind the head, a kernel in a body say, be one.
            if any(token.text == "__global__" for token in item.tokens):
                raise Unreadable(f"line {item.line}: a kernel inside of something else")
            yield text_of(item.tokens)
        elif item.kind == "function":
            yield text_of(head) + "{" + "\n" * text_of(item.tokens[item.body :]).count("\n") + "}"
        elif item.kind == "declaration":
            yield text_of(item.tokens)
        else:
            raise Unreadable(f"line {item.line}: a {item.kind} that makes kernels")
