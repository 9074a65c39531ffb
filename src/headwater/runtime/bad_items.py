"""Items of a slice that cannot be read at all: kept as dead letters, or reported in one error that names them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from headwater.base import limits
from headwater.base.errors import HeadwaterError, Position
from headwater.base.printable import quoted
from headwater.connectors.protocol import ArrowRead, BadItem, TableAsk


def read_without(read: ArrowRead, bad: Collection[str]) -> ArrowRead:
    """The same read without some items."""
    assert read.without is not None
    return replace(read, partitions=read.without(read.partitions, frozenset(bad)))


def check_bad_items(ask: TableAsk, bad: Collection[BadItem]) -> None:
    """Raises HW-C02, which names the items, if there are more of them than may be kept."""
    if len(bad) <= ask.max_bad_items:
        return
    hint = 'repair or remove them; `on_bad_file = "dead_letter"` lands the others'
    if ask.max_bad_items:
        hint = f"repair or remove them; up to {ask.max_bad_items} of a slice are kept (`max_bad_files`)"
    shown = _shown(bad)
    message = f"{len(bad)} files of `{ask.name}` cannot be read: {_listed(bad)}"
    if len(bad) == 1:
        message, hint = _listed(bad), shown[0].hint or hint
    files = [
        {"file": item.source_id, "line": item.error.line, "reason": item.error.reason, "detail": item.error.detail}
        for item in shown
    ]
    raise HeadwaterError(
        "HW-C02",
        message,
        hint=hint,
        places=tuple(Position(item.source_id, item.error.line) for item in shown),
        detail={"table": ask.name, "total": len(bad), "files": files},
    )


def bad_items_warning(bad: Collection[BadItem]) -> str:
    """The warning of a plan about them."""
    files = "1 file" if len(bad) == 1 else f"{len(bad)} files"
    return f"{files} cannot be read and will be kept as dead letters: {_listed(bad)}"


def _shown(bad: Collection[BadItem]) -> list[BadItem]:
    return sorted(bad, key=lambda item: item.source_id)[: limits.ERRORS_SHOWN]


def _listed(bad: Collection[BadItem]) -> str:
    texts = [f"{quoted(item.source_id)} {item.error.detail}" for item in _shown(bad)]
    more = len(bad) - len(texts)
    return "; ".join(texts) + (f"; and {more} more" if more else "")
