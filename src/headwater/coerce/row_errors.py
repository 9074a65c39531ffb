"""A bad row as a record: where it is, which column, why. Never the value itself.

Reasons: `invalid_json` `expected_object` `too_deep` `lone_surrogate` (these may have no column), `null_in_non_null`
`expected_bool` `expected_number` `not_a_number` `not_integral` `not_finite` `int32_out_of_range`
`int64_out_of_range` `bad_timestamp` `timestamp_out_of_range` `bad_date` `decimal_scale` `decimal_out_of_range`
`expected_string` `bad_base64` `expected_array` `vector_length` `non_numeric_element` `unknown_field`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from headwater.coerce.malformed import Fault


@dataclass(frozen=True)
class RowError:
    """One error of one row. `line` is the physical line (of a document: the element's number from 1, and 0 for the
    document itself), `value_type` one of object, array, string, number, boolean, null, absent, text; `detail` adds
    numbers and the place inside a nested value, such as `[3].price: expected 3, got 2`. For `invalid_json`,
    `fault` is the position in the text, counted from this line, or from the document's first."""

    line: int
    column: str | None
    reason: str
    value_type: str | None = None
    detail: str = ""
    place: str = ""
    fault: Fault | None = None

    @property
    def text(self) -> str:
        """The reason, and the details that are known."""
        more = self.detail or self.value_type
        return f"{self.reason} ({more})" if more else self.reason

    def as_json(self) -> dict[str, object]:
        """As an entry in the `detail` of an error, which names the place once for all entries."""
        fault = self.fault
        return {
            "line": self.line,
            "column": self.column,
            "reason": self.reason,
            "type": self.value_type,
            "detail": self.detail if fault is None else asdict(fault) | {"line": max(self.line, 1) + fault.line - 1},
        }


@dataclass(frozen=True)
class BadRow:
    """A bad row as it came, and the first thing that is wrong with it."""

    error: RowError
    source: bytes


def first_of_each_row(errors: Iterable[RowError]) -> tuple[RowError, ...]:
    found: dict[int, RowError] = {}
    for error in errors:
        found.setdefault(error.line, error)
    return tuple(found.values())


class Refused(Exception):
    """A value that cannot become one of the column's type. `path` is the place inside the column's value."""

    def __init__(self, reason: str, value_type: str, *, detail: str = "", path: str = ""):
        super().__init__(reason)
        self.reason, self.value_type, self.detail, self.path = reason, value_type, detail, path

    def under(self, part: str) -> Refused:
        """The same refusal, seen from the value that holds this one as `part`."""
        return Refused(self.reason, self.value_type, detail=self.detail, path=part + self.path)

    def at(self, line: int, column: str | None, place: str) -> RowError:
        detail = ": ".join(part for part in (self.path, self.detail) if part)
        return RowError(line, column, self.reason, self.value_type, detail, place)


class Unfit(Exception):
    """A quick way met something that only the exact rules can judge. It does not mean that the data is wrong."""
