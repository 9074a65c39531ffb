"""What `duck.db` was made from, as the small file beside it says, and when it may be made again. Whether it is up to
date is known without opening it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

from headwater.base import limits
from headwater.storage.store_files import read_text

DUCK, DUCK_MARK = "duck.db", ".duck.json"
FORMAT = 2
"""The version of the derived files; a new number makes all of them anew."""


def views_seq(root: Path) -> int:
    """The sequence that the views and `duck.db` were last brought up to; 0 if they never were, or if they were made
    in another directory or by another version."""
    mark = read_mark(root)
    is_ours = (mark.get("format"), mark.get("root")) == (FORMAT, str(root.resolve()))
    return int(mark["seq"]) if is_ours and (root / DUCK).exists() else 0


def views_shown(root: Path, others: Collection[str]) -> dict[str, str]:
    """What `duck.db` shows besides tables and views of the names `others`: a digest of each."""
    return {name: digest for name, digest in read_mark(root).get("views", {}).items() if name not in others}


def read_mark(root: Path) -> dict[str, Any]:
    """The stored mark of the present `duck.db`; empty if there is none, or if it cannot be read."""
    try:
        mark = json.loads(read_text(root / "views" / DUCK_MARK) or "")
    except (OSError, ValueError):
        return {}
    return mark if isinstance(mark, dict) and isinstance(mark.get("views"), dict) and "seq" in mark else {}


def view_pause(took_seconds: float) -> float:
    """How long to wait until the views are written again, after a time that took so long: where many files or many
    commits make it slow, it must not slow down what lands."""
    return max(limits.VIEW_REFRESH_SECONDS, limits.VIEW_REFRESH_SHARE * took_seconds)


def digest_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
