"""The page: one HTML document whose security policy permits its own script and style only."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import Any

__all__ = ["block", "live_page", "packed", "policy", "report_page"]

_SCRIPTS = ("elements", "data", "diff", "charts", "episode", "tree", "views", "main")


def packed(document: Any, *, level: int = 6) -> bytes:
    """A document as compressed JSON, in ASCII."""
    return gzip.compress(json.dumps(document, separators=(",", ":"), allow_nan=False).encode("ascii"), level, mtime=0)


def block(name: str, data: bytes) -> bytes:
    """Data that the page finds by name. In base64, which contains no markup."""
    return b'<script type="application/gzip" id="%s">%s</script>\n' % (name.encode("ascii"), base64.b64encode(data))


def report_page(index: bytes, chunks: Iterable[bytes]) -> bytes:
    """A page that contains its data.

    Args:
        index: the block that the page needs first.
        chunks: blocks with texts.
    """
    return b"".join([_document("report", index), *chunks, b"</body>\n</html>\n"])


@cache
def live_page() -> bytes:
    """A page that fetches its data from the server that sent it."""
    return _document("view", b"") + b"</body>\n</html>\n"


def policy(mode: str) -> str:
    """Content-Security-Policy of a page: nothing but its own script and style; `view` also fetches from its server."""
    script, style = (base64.b64encode(hashlib.sha256(text).digest()).decode() for text in _sources())
    fetched = "'self'" if mode == "view" else "'none'"
    return (
        f"default-src 'none'; script-src 'sha256-{script}'; style-src 'sha256-{style}'; connect-src {fetched}; "
        "base-uri 'none'; form-action 'none'"
    )


@cache
def _sources() -> tuple[bytes, bytes]:
    folder = files("kernelrl_report") / "page"
    script = b"".join((folder / f"{name}.js").read_bytes() for name in _SCRIPTS)
    return b"'use strict';\n(() => {\n" + script + b"})();\n", (folder / "style.css").read_bytes()


def _document(mode: str, index: bytes) -> bytes:
    script, style = _sources()
    head = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<meta http-equiv="Content-Security-Policy" content="{policy(mode)}">
<title>kernelrl</title>
"""
    return b"".join(
        [
            head.encode("ascii"),
            b"<style>" + style + b"</style>\n</head>\n",
            b'<body data-mode="%s">\n<noscript>This page needs JavaScript.</noscript>\n' % mode.encode("ascii"),
            index,
            b"<script>" + script + b"</script>\n",
        ]
    )
