"""The one error type that a user sees: a code, what was attempted, where, and a hint in one sentence.

Every part of the system raises `HeadwaterError`; foreign exceptions are translated at the border where they enter.
`docs/reference/errors.md` lists the codes; a test compares that page with `CODES`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from headwater.base.printable import printable, printable_lines


class Exit(IntEnum):
    """Exit codes of the command line."""

    DONE = 0
    FAILED = 1
    USAGE = 2
    INVALID = 3
    CONFLICT = 4
    PARTLY = 5
    REFUSED = 6
    CHANGES = 10
    INTERRUPTED = 130


CODES: dict[str, tuple[str, Exit]] = {
    # manifest
    "HW-M01": ("no project found", Exit.INVALID),
    "HW-M02": ("a manifest file cannot be read or is not valid TOML or JSON", Exit.INVALID),
    "HW-M03": ("a value of the manifest has the wrong type or form", Exit.INVALID),
    "HW-M04": ("a pipeline id or table name is defined twice", Exit.INVALID),
    "HW-M05": ("an unknown key", Exit.INVALID),
    "HW-M06": ("an unknown connector", Exit.INVALID),
    "HW-M07": ("a missing source, or a cycle of sources", Exit.INVALID),
    "HW-M08": ("a secret is written in the manifest, or is not listed or not set", Exit.INVALID),
    "HW-M09": ("a part of the manifest that this version does not support yet", Exit.INVALID),
    "HW-M10": ("several errors in the manifest", Exit.INVALID),
    "HW-M11": ("a pipeline that is not in the manifest", Exit.INVALID),
    "HW-M12": ("a file or directory that is in the way", Exit.INVALID),
    "HW-M13": ("a scenario file cannot be read, or says something that cannot be simulated", Exit.INVALID),
    # connectors
    "HW-C01": ("a source is configured wrongly", Exit.INVALID),
    "HW-C02": ("a source failed for good", Exit.FAILED),
    "HW-C03": ("a source failed for a moment, and went on failing", Exit.FAILED),
    "HW-C04": ("bad rows in a source", Exit.FAILED),
    "HW-C05": ("the source is not the one the cursor was made for", Exit.CONFLICT),
    # schema
    "HW-S01": ("a schema change that needs a decision", Exit.FAILED),
    "HW-S02": ("the primary key changed", Exit.FAILED),
    "HW-S03": ("a type or column that does not exist or cannot be used", Exit.INVALID),
    # store
    "HW-T01": ("the store was written by a newer version", Exit.FAILED),
    "HW-T02": ("the state has moved", Exit.CONFLICT),
    "HW-T03": ("a lease was lost", Exit.CONFLICT),
    "HW-T04": ("the store is damaged", Exit.FAILED),
    "HW-T05": ("the store cannot be written", Exit.FAILED),
    "HW-T06": ("the catalog cannot be reached", Exit.FAILED),
    "HW-T07": ("a table that does not exist", Exit.INVALID),
    # pushed rows
    "HW-I01": ("an idempotency key that was used for something else", Exit.CONFLICT),
    "HW-I02": ("pushed rows that cannot be taken", Exit.INVALID),
    "HW-I03": ("a table that takes no pushed rows", Exit.INVALID),
    "HW-I04": ("a pushed batch that cannot be read, or is too large", Exit.INVALID),
    # spark
    "HW-J01": ("no Java, or one that is too old", Exit.FAILED),
    "HW-J02": ("Spark did not start", Exit.FAILED),
    "HW-J03": ("a Spark job failed", Exit.FAILED),
    # query and command line
    "HW-Q01": ("a query failed", Exit.FAILED),
    "HW-Q02": ("a query took longer than it may", Exit.FAILED),
    "HW-Q03": ("a query needed more memory than it may have", Exit.FAILED),
    "HW-U01": ("the command was called wrongly", Exit.USAGE),
    "HW-U02": ("a run that is not known", Exit.INVALID),
    "HW-R01": ("a run failed", Exit.FAILED),
    "HW-R02": ("demand that a blocked pipeline does not take", Exit.FAILED),
    "HW-R03": ("a ripple was stopped, by its timeout or by a user", Exit.FAILED),
    # http
    "HW-H01": ("the HTTP server cannot listen", Exit.FAILED),
    "HW-H02": ("a request without the right token or signature", Exit.REFUSED),
    "HW-H03": ("a request for a host that is not this server, or from a page that is not its own", Exit.REFUSED),
    "HW-H04": ("a request that cannot be understood", Exit.USAGE),
    "HW-H05": ("a server that is at its limit", Exit.FAILED),
    "HW-X01": ("an error of Headwater itself", Exit.FAILED),
}


@dataclass(frozen=True)
class Position:
    """A position in a file a user wrote; line and column count from 1, 0 means the whole file."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        if not self.line:
            return self.file
        return f"{self.file}:{self.line}:{self.column}" if self.column else f"{self.file}:{self.line}"


TYPES: dict[str, type[HeadwaterError]] = {}
"""The type of an error with this code; any other is a plain `HeadwaterError`."""


@dataclass
class HeadwaterError(Exception):
    """What went wrong, in words for the person who can fix it. Never holds a secret or a row's value.

    Code that reacts to an error catches its type. The code decides the type: `HeadwaterError("HW-T02", ...)` makes a
    `Conflict`, so an error that came from another process has the right type too.
    """

    code: str
    message: str
    hint: str = ""
    retryable: bool = False
    detail: dict[str, object] = field(default_factory=dict)
    places: tuple[Position, ...] = ()

    def __init_subclass__(cls, codes: tuple[str, ...] = ()) -> None:
        TYPES.update(dict.fromkeys(codes, cls))

    def __new__(cls, *args: Any, **named: Any) -> HeadwaterError:
        code = args[0] if args else named.get("code")
        return super().__new__(TYPES.get(code, cls) if cls is HeadwaterError and isinstance(code, str) else cls)

    def __post_init__(self) -> None:
        assert self.code in CODES, self.code
        super().__init__(self.message)

    def __str__(self) -> str:
        return self.render()

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.code, self.message, self.hint, self.retryable, self.detail, self.places)

    @property
    def exit_code(self) -> Exit:
        return CODES[self.code][1]

    def is_like(self, other: HeadwaterError | None) -> bool:
        """Whether another error is of the same kind, whatever it names."""
        return other is not None and self.code == other.code

    def render(self) -> str:
        """The error as text. Control characters are shown as escapes and further lines of a message are indented, so
        that no name in it can look like another error."""
        lines = [f"error[{self.code}]: {_indented(self.message)}"]
        lines += [f"  {printable(str(place))}" for place in self.places]
        if self.hint:
            lines.append(f"hint: {_indented(self.hint)}")
        return "\n".join(lines)

    def as_json(self) -> dict[str, object]:
        """The error object of every interface: code, message, hint, retryable, detail (with the places, if any)."""
        detail = dict(self.detail)
        if self.places:
            detail["places"] = [{"file": p.file, "line": p.line, "column": p.column} for p in self.places]
        return {
            "code": self.code,
            "message": self.message,
            "hint": self.hint,
            "retryable": self.retryable,
            "detail": detail,
        }


class Conflict(HeadwaterError, codes=("HW-T02",)):
    """What a commit requires is no longer true. Nothing was committed; the caller can retry from the new state."""


class LeaseLost(HeadwaterError, codes=("HW-T03",)):
    """Another process holds the lease now. The work of this process does not count."""


class CatalogUnreachable(HeadwaterError, codes=("HW-T06",)):
    """The catalog does not answer. This says nothing about the work."""


class StoreDamaged(HeadwaterError, codes=("HW-T04",)):
    """A file of the store, its log or its catalog cannot be read as it was written."""


class StoreUnwritable(HeadwaterError, codes=("HW-T05",)):
    """The disk is full or read-only, or permissions are missing."""


class NoSuchTable(HeadwaterError, codes=("HW-T07",)):
    """The table, or the version of it that was asked for, does not exist."""


class NotPushed(HeadwaterError, codes=("HW-I03",)):
    """The table takes no pushed rows."""


class RejectedBatch(HeadwaterError, codes=("HW-I01", "HW-I02", "HW-I04")):
    """A pushed batch that is wrong in itself: it will be rejected again."""


class SourceFailed(HeadwaterError, codes=("HW-C02",)):
    """A source cannot be read, and will not be until it is repaired."""


class UnusableColumn(HeadwaterError, codes=("HW-S03",)):
    """A type or column that does not exist or cannot be used."""


class UserCodeFailed(HeadwaterError, codes=("HW-R01",)):
    """The code or query of a ripple failed."""


class OutOfMemory(HeadwaterError, codes=("HW-Q03",)):
    """A query needed more memory than it may have."""


class PassingFailure(HeadwaterError, codes=("HW-C03", "HW-J01", "HW-J02", "HW-X01")):
    """A source, Java, Spark or Headwater itself failed: the same work may succeed later."""


class SparkJobFailed(PassingFailure, codes=("HW-J03",)):
    """A Spark job failed."""


class ErrorList(HeadwaterError):
    """Several errors found in one go; shown one after the other."""

    def __init__(self, errors: Sequence[HeadwaterError], code: str = "HW-M10", where: str = "the manifest"):
        self.errors, self.where = tuple(errors), where
        detail: dict[str, object] = {"errors": [e.as_json() for e in self.errors]}
        super().__init__(code, f"{len(self.errors)} errors in {where}", detail=detail)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.errors, self.code, self.where)

    def render(self) -> str:
        return "\n\n".join(e.render() for e in self.errors)


def raise_all(errors: Sequence[HeadwaterError], *, code: str = "HW-M10", where: str = "the manifest") -> None:
    """Raise the one error, or all of them together; nothing if there are none."""
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise ErrorList(errors, code, where)


def error_of(told: Mapping[str, Any]) -> HeadwaterError:
    """The error from which `as_json` made this object. A code that this version does not know becomes HW-R01."""
    detail = dict(told.get("detail") or {})
    places = tuple(Position(p["file"], p["line"], p["column"]) for p in detail.pop("places", ()))
    code = str(told.get("code"))
    return HeadwaterError(
        code if code in CODES else "HW-R01",
        str(told.get("message", "the run failed")),
        hint=str(told.get("hint", "")),
        retryable=bool(told.get("retryable")),
        detail=detail,
        places=places,
    )


def as_headwater(error: BaseException) -> HeadwaterError:
    """The error itself if it is a `HeadwaterError`; any other exception is an error of Headwater itself."""
    if isinstance(error, HeadwaterError):
        return error
    return HeadwaterError(
        "HW-X01",
        f"an error of Headwater itself: {type(error).__name__}: {error}",
        hint="run the command again with HEADWATER_DEBUG=1 and report what it prints",
    )


def _indented(text: str) -> str:
    return printable_lines(text).replace("\n", "\n  ")


def word_for(value: object) -> str:
    """The kind of a JSON value, for a message that must not show the value."""
    words = {bool: "true or false", int: "a whole number", float: "a number", str: "text", list: "a list"}
    return "null" if value is None else next((words[k] for k in words if isinstance(value, k)), "an object")


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that the user most likely meant, if one is close enough to suggest."""
    found = difflib.get_close_matches(name.lower(), list(known), n=1, cutoff=0.6)
    return found[0] if found else None


def did_you_mean(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """A hint with the nearest known name; `otherwise` if none is close enough."""
    meant = nearest(name, known)
    return f"did you mean `{meant}`?" if meant else otherwise
