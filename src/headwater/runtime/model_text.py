"""The text of a ripple (SQL in the manifest, an SQL file or a Python file) and positions in it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path as FilePath

from headwater.base import limits
from headwater.base.errors import HeadwaterError, Position, did_you_mean
from headwater.base.regular_files import open_regular
from headwater.manifest.documents import PROJECT_FILE, Part
from headwater.manifest.positions import Path, Positions

SQL_SUFFIX = ".sql"
_FROM_ROOT = f"paths begin at the directory of `{PROJECT_FILE}`"


class SqlFault(Exception):
    """Why a text is not a query for a model; `offset` is the position in the text."""

    def __init__(self, message: str, *, hint: str, offset: int):
        super().__init__(message)
        self.message, self.hint, self.offset = message, hint, offset


@dataclass(frozen=True, eq=False)
class ModelText:
    """A text and its file, relative to the project. `part` and `path` are the place in the manifest that names it;
    `is_inline`: the text itself is there."""

    text: str
    file: str
    part: Part
    path: Path
    is_inline: bool = False

    def position(self, offset: int) -> Position:
        """The position of a character; in the manifest, that of the whole text if it is written with escapes."""
        if not self.is_inline:
            return Positions(self.text).position(self.file, offset)
        written = self.part.document.positions
        span = written.values.get((*self.part.base, *self.path))
        begins = written.text.find(self.text, span.start, span.end) if span is not None else -1
        return self.part.position(self.path) if begins < 0 else written.position(self.file, begins + offset)

    def error(self, code: str, message: str, *, hint: str, place: Position) -> HeadwaterError:
        """An error at a position of the text; for a file of its own, also with the place that names it."""
        places = (place,) if self.is_inline else (place, self.part.position(self.path))
        return HeadwaterError(code, message, hint=hint, places=places)


def sql_text(root: FilePath, part: Part, path: Path, value: str) -> ModelText:
    """The SQL of a ripple: the value itself, or a file if the value is one line that ends in `.sql`. Raises HW-M02."""
    file = value.strip()
    if "\n" in file or not file.endswith(SQL_SUFFIX):
        return ModelText(value, part.document.file, part, path, is_inline=True)
    return ModelText(_read(root, file, part, path), file, part, path)


def python_text(root: FilePath, part: Part, path: Path, value: str) -> tuple[ModelText, str]:
    """The text of the file in `file.py:function`, and the function. Raises HW-M02."""
    file, _, function = value.rpartition(":")
    return ModelText(_read(root, file, part, path), file, part, path), function


def _read(root: FilePath, file: str, part: Part, path: Path) -> str:
    """Line ends are normalised, so that a checkout on another system changes nothing."""
    try:
        with open_regular(root / file) as opened:
            raw = opened.read(limits.MANIFEST_BYTES + 1)
        if len(raw) > limits.MANIFEST_BYTES:
            raise _unreadable(part, path, file, f"it is larger than {limits.MANIFEST_BYTES >> 20} MiB")
        text = raw.decode("utf-8-sig")
    except FileNotFoundError as error:
        raise _unreadable(part, path, file, "there is no such file", hint=_near(root / file)) from error
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise _unreadable(part, path, file, reason, hint="check the file and its permissions") from error
    except UnicodeDecodeError as error:
        raise _unreadable(part, path, file, "it is not UTF-8 text", hint="save it as UTF-8") from error
    return text.replace("\r\n", "\n")


def _unreadable(part: Part, path: Path, file: str, reason: str, *, hint: str = "") -> HeadwaterError:
    return part.error("HW-M02", path, f"cannot read `{file[:160]}` of {part.subject}: {reason}", hint=hint)


def _near(missing: FilePath) -> str:
    try:
        beside = [path.name for path in missing.parent.iterdir() if path.suffix == missing.suffix]
    except OSError:
        return _FROM_ROOT
    return did_you_mean(missing.name, beside, _FROM_ROOT)
