"""Columns of plain text, as CSV has them, by the same rules as JSON strings.

Differences, because plain text has no literals: an empty field is null in every column but a string column (where
it is the empty string; a reader that knows the empty field was not quoted gives null for it); `true` and `false` are
taken in any case; dynamic, vector, list and struct columns take JSON text. Digits alone are no timestamp.
"""

from __future__ import annotations

from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from headwater.base.text_form import TextForm
from headwater.base.types import BOOL, LONG, REAL, STRING, Type
from headwater.coerce.columns import BOOL_WORD, all_match, column_from_texts
from headwater.coerce.forms import texts_by_form
from headwater.coerce.infer import join_types, number_type
from headwater.coerce.row_errors import RowError

_CANONICAL_INTEGER = r"^-?(?:0|[1-9][0-9]{0,17})$"
"""An integer as programs write it, short enough for 64 bits."""
_CANONICAL_NUMBER = r"^-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?$"
_LONG_INTEGER = r"^-?[0-9]{19,}$"


def infer_csv_strings(column: pa.Array) -> Type | None:
    """The type of a text column: long, real or bool if every field that is neither null nor empty is written as one;
    None if there is no such field. Numbers with leading zeros or a plus are texts, and so are columns with an
    integer beyond 64 bits or a number beyond a double."""
    texts = pc.cast(column, pa.string()).drop_null()
    texts = texts.filter(pc.not_equal(texts, ""))
    if not len(texts):
        return None
    if all_match(texts, BOOL_WORD):
        return BOOL
    if all_match(texts, _CANONICAL_INTEGER):
        return LONG
    if not all_match(texts, _CANONICAL_NUMBER):
        return STRING
    if pc.any(pc.match_substring_regex(texts, _LONG_INTEGER)).as_py():
        return reduce(join_types, map(number_type, texts.to_pylist()), None)
    return REAL if pc.all(pc.is_finite(pc.cast(texts, pa.float64()))).as_py() else STRING


def coerce_strings(
    column: pa.Array, type_: Type, form: TextForm | None = None
) -> tuple[pa.Array, tuple[RowError, ...]]:
    """A text column as values of `type_`, of the same length: null where a text is refused, with one error each, in
    order. The line of an error is the position of its row. `form` says how the texts are written."""
    texts = pc.cast(column, pa.string())
    if type_ != STRING:
        texts = pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)
    array, refusals = texts_by_form(texts, type_, form) if form else column_from_texts(texts, type_)
    return array, tuple(refusals[index].at(index, "", "") for index in sorted(refusals))
