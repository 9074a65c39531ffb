"""`/docs`: the paths for people, made from the OpenAPI document. It loads nothing from other servers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}"
    "code{font:14px ui-monospace,monospace}h2{margin-top:2rem;font-size:1rem}"
    "table{border-collapse:collapse}td{padding:.1rem 1rem .1rem 0;vertical-align:top}"
    "@media(prefers-color-scheme:dark){body{background:#111;color:#ddd}a{color:#8bf}}"
)


def docs_page(document: Mapping[str, Any]) -> str:
    """One page of HTML."""
    title = escape(f"{document['info']['title']} {document['info']['version']}")
    parts = [
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>',
        f"<style>{_STYLE}</style></head><body><h1>{title}</h1>",
        f"<p>{escape(document['info'].get('description', ''))}</p>",
        '<p><a href="/openapi.json">openapi.json</a></p>',
    ]
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            parts += _operation(method, path, operation)
    return "\n".join([*parts, "</body></html>"])


def _operation(method: str, path: str, operation: Mapping[str, Any]) -> Iterator[str]:
    yield f"<h2><code>{method.upper()} {escape(path)}</code></h2>"
    yield f"<p>{escape(operation.get('description', operation.get('summary', '')))}</p>"
    parameters = operation.get("parameters", [])
    if parameters:
        yield "<table>"
        for parameter in parameters:
            cells = (
                f"<code>{escape(parameter['name'])}</code>",
                parameter["in"],
                escape(parameter.get("description", "")),
            )
            yield "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"
        yield "</table>"
