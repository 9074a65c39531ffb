"""Hints by column, from a sample of files, that a user should see before the files land."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headwater.base.errors import nearest
from headwater.base.types import LONG, REAL, Type
from headwater.connectors.files.config import FileFormat

if TYPE_CHECKING:
    import pyarrow as pa

NULL_WORDS = ("NA", "N/A", "n/a", "#N/A", "NULL", "Null", "null", "None", "none", "NaN", "nan", "-", "--", "?", "\\N")
"""Words that mean null in many files. None of them is a number or a time."""
_TEXTS = ("string", "dynamic", "list", "struct", "vector", "binary")


@dataclass
class Texts:
    """Columns as a sample shows them. For CSV: the words for null in each, the type that it would have without them,
    and which columns hold more than times."""

    names: set[str] = field(default_factory=set)
    words: dict[str, dict[str, None]] = field(default_factory=dict)
    others: dict[str, Type | None] = field(default_factory=dict)
    not_times: set[str] = field(default_factory=set)

    def see(self, name: str, texts: pa.Array) -> None:
        import pyarrow as pa
        import pyarrow.compute as pc

        from headwater.coerce.infer import join_types
        from headwater.coerce.text_columns import infer_csv_strings

        texts = texts.drop_null()
        is_word = pc.is_in(texts, value_set=pa.array(NULL_WORDS))
        for word in pc.unique(texts.filter(is_word)).to_pylist():
            self.words.setdefault(name, {})[word] = None
        rest = texts.filter(pc.invert(is_word))
        self.others[name] = join_types(self.others.get(name), infer_csv_strings(rest))
        if name not in self.not_times and not _are_times(rest):
            self.not_times.add(name)


def null_hints(texts: Texts, how: FileFormat) -> dict[str, str]:
    """What to write if a few words keep a column from being numbers or times, or make bad rows."""
    found: dict[str, str] = {}
    for name, words in texts.words.items():
        declared, other = how.declared.get(name), texts.others.get(name)
        shown = ", ".join(f"`{word}`" for word in words)
        if declared is not None:
            if declared.kind in _TEXTS:
                continue
            what = f"column `{name}` is declared `{declared}`, and {shown} in it is none"
        elif other in (LONG, REAL):
            what = f"column `{name}` would be `{other}` but for {shown}"
        elif other is not None and name not in texts.not_times:
            what = f"column `{name}` would hold times but for {shown}"
        else:
            continue
        nulls = json.dumps([*how.csv.nulls, *words], ensure_ascii=False)
        found[name] = f"{what}; if that means null, set `nulls = {nulls}`"
    return found


def exclude_hints(known: Collection[str], how: FileFormat) -> dict[str, str]:
    """A hint for each excluded column that is not among `known`, the columns of the sample."""
    found: dict[str, str] = {}
    for name in sorted(how.exclude - set(known)) if known else ():
        meant = nearest(name, known)
        found[name] = f"`exclude` names `{name}`, and the sample has no such column" + (
            f"; did you mean `{meant}`?" if meant else ""
        )
    return found


def _are_times(texts: pa.Array) -> bool:
    from headwater.coerce.row_errors import Refused
    from headwater.coerce.time_columns import timestamps

    try:
        timestamps(texts)
    except Refused:
        return False
    return True
