"""The config of a `files` source in the manifest, checked all at once.

```toml
config = { path = "data/orders/**/*.csv.gz", format = "csv", delimiter = ";", nulls = ["", "NA"] }
```
`path` is a glob or a list of globs, relative to the project; `**` means any number of folders, and a folder
means everything below it. Names that begin with `.` or `_` are skipped (half-written files, `_SUCCESS`, Spark's own
folders) unless the pattern's own part begins so. All files of one source have one format.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from headwater.base.errors import HeadwaterError, nearest
from headwater.base.ids import RESCUED, is_column_name
from headwater.base.json_path import RecordSteps, parse_records
from headwater.base.table_schema import TableSchema
from headwater.base.text_form import TextForm
from headwater.base.types import DYNAMIC, Type
from headwater.connectors.files.encoding import encoding_of, encoding_problem, is_line_safe
from headwater.connectors.protocol import Observed, Problem, config_error, unknown_keys

if TYPE_CHECKING:
    from headwater.coerce.infer import Inferred

FORMATS = ("ndjson", "json", "csv", "parquet")
COMPRESSIONS = ("none", "gzip", "zstd")
FORMAT_SUFFIXES = {".ndjson": "ndjson", ".jsonl": "ndjson", ".json": "json", ".csv": "csv", ".parquet": "parquet"}
Compression = Literal["none", "gzip", "zstd"]
COMPRESSION_SUFFIXES: Mapping[str, Compression] = {".gz": "gzip", ".zst": "zstd"}
WILD = re.compile(r"[*?\[]")

_CSV_KEYS = ("delimiter", "header", "quote", "nulls")
_KEYS = ("path", "format", "compression", "encoding", "records", *_CSV_KEYS)
_NAMED_SUFFIXES = "name it: format = " + ", ".join(f'"{name}"' for name in FORMATS)


def _is_mark(value: object) -> bool:
    return isinstance(value, str) and len(value) == 1 and value.isascii() and value not in "\r\n\0"


def _is_text(value: object) -> bool:
    return isinstance(value, str)


_VALUES: Mapping[str, tuple[Callable[[object], bool], str, str]] = {
    "delimiter": (_is_mark, "`delimiter` is one ASCII character", r'for example ";" or "\t"'),
    "quote": (
        lambda value: value == "" or _is_mark(value),
        "`quote` is one ASCII character",
        'an empty text, "", turns quoting off',
    ),
    "header": (lambda value: isinstance(value, bool), "`header` is true or false", ""),
    "nulls": (
        lambda value: isinstance(value, list | tuple) and all(map(_is_text, value)),
        "`nulls` is a list of texts",
        'for example nulls = ["", "NA"]',
    ),
    "encoding": (_is_text, "`encoding` is a text", 'for example encoding = "latin-1"'),
    "records": (_is_text, "`records` is a text", 'for example records = "$.data[*]"'),
}
"""For a key: whether a value of it is right, and the message and the hint for one that is not."""


@dataclass(frozen=True)
class CsvOptions:
    """How CSV text is cut into cells. `quote` is empty where quotes mean nothing; `nulls` are the texts that, without
    quotes, mean null."""

    delimiter: str = ","
    header: bool = True
    quote: str = '"'
    nulls: tuple[str, ...] = ("",)


@dataclass(frozen=True)
class FileFormat:
    """How the files of a source are read: by its checked config, and as a table asks for them.

    format       empty until the files are known, where the config does not say it
    compression  None where each file's name says it
    encoding     None for UTF-8
    records      leads to the rows of a JSON document
    declared     the columns whose types the manifest decides, in order
    forms        how the texts of declared columns are written
    exclude      the columns that are left out
    primary_key  that of the table
    takes_all    columns that a schema lacks are read as they are, behind its own, and a column of text takes any value
    below        the folder of the files, if links below it are not followed
    patterns     the globs of the config
    """

    format: str
    compression: str | None = None
    csv: CsvOptions = field(default_factory=CsvOptions)
    declared: Mapping[str, Type] = field(default_factory=dict)
    exclude: frozenset[str] = frozenset()
    forms: Mapping[str, TextForm] = field(default_factory=dict)
    encoding: str | None = None
    records: RecordSteps = ()
    primary_key: tuple[str, ...] = ()
    takes_all: bool = False
    below: str = ""
    patterns: tuple[str, ...] = ()

    def compression_of(self, source_id: str) -> str:
        return self.compression or compression_of(source_id)

    def is_splittable(self, source_id: str) -> bool:
        """Whether every newline of the file ends a row, so that it can be read from the middle."""
        is_safe = self.encoding is None or is_line_safe(self.encoding)
        return self.format == "ndjson" and is_safe and self.compression_of(source_id) == "none"

    def coerced(self, schema: TableSchema) -> TableSchema:
        """The schema that rows are read by: without columns that are excluded, or that the source no longer has. In
        JSON, excluded columns stay as columns that take anything, so that they are not unknown keys."""
        kept = tuple(c for c in schema.columns if not c.dropped and c.name not in self.exclude)
        found = replace(schema, columns=kept)
        for name in sorted(self.exclude) if self.format in ("ndjson", "json") else ():
            found = found.added(name, DYNAMIC)
        return found.formed(self.forms)

    def observed(self, inferred: Inferred) -> Observed:
        """The columns of text files that hold a value, with the declared type where there is one. What cannot be the
        name of a column is rescued, in JSON also if it is null. JSON rows without any value have nulls for a key."""
        kept = ((name, type_) for name, type_ in inferred.columns.items() if name not in self.exclude)
        known = {name: self.declared.get(name, type_) for name, type_ in kept}
        found = {name: type_ for name, type_ in known.items() if type_ is not None and is_column_name(name)}
        is_json = self.format in ("ndjson", "json")
        if any(not is_column_name(name) and (is_json or type_ is not None) for name, type_ in known.items()):
            found[RESCUED] = DYNAMIC
        nulls = known.keys() - found.keys()
        if is_json and inferred.rows and not found:
            nulls |= set(self.primary_key)
        return Observed(found, nulls=frozenset(nulls))


def check_config(config: Mapping[str, object]) -> list[Problem]:
    """Everything that is wrong with a config, each with its key; empty if nothing is."""
    problems = unknown_keys("files", config, _KEYS)
    problems += _check_path(config)
    problems += _check_word(config, "format", FORMATS)
    problems += _check_word(config, "compression", COMPRESSIONS)
    given = [(key, *rule) for key, rule in _VALUES.items() if key in config]
    problems += [(key, message, hint) for key, is_right, message, hint in given if not is_right(config[key])]
    delimiter = config.get("delimiter", ",")
    if _is_mark(delimiter) and config.get("quote", '"') == delimiter:
        problems.append(("quote", "`quote` and `delimiter` are the same character", "choose two"))
    encoding, records = config.get("encoding"), config.get("records")
    if isinstance(encoding, str) and (problem := encoding_problem(encoding)):
        problems.append(("encoding", *problem))
    try:
        parse_records(records if isinstance(records, str) else "$")
    except HeadwaterError as error:
        problems.append(("records", error.message, error.hint))
    return problems or _check_format(config)


def parse_config(config: Mapping[str, Any]) -> FileFormat:
    """The config as a record. Raises HW-C01 for the first problem that `check_config` finds."""
    for _, message, hint in check_config(config):
        raise config_error(message, hint)
    patterns = tuple(pattern.removeprefix("./") for pattern in _patterns(config["path"]))
    formats = {format_of(pattern) for pattern in patterns}
    options = {key: config[key] for key in _CSV_KEYS if key in config}
    if "nulls" in options:
        options["nulls"] = tuple(options["nulls"])
    return FileFormat(
        config.get("format") or (formats.pop() if len(formats) == 1 else None) or "",
        compression=config.get("compression"),
        csv=CsvOptions(**options),
        encoding=encoding_of(config.get("encoding", "utf-8")),
        records=parse_records(config.get("records", "$")),
        patterns=patterns,
    )


def format_of(name: str) -> str | None:
    """The format that a file's name says, if any."""
    return FORMAT_SUFFIXES.get(_suffix(_without_compression(name)))


def compression_of(name: str) -> Compression:
    return COMPRESSION_SUFFIXES.get(_suffix(name), "none")


def _suffix(name: str) -> str:
    _, dot, suffix = name.rpartition(".")
    return f"{dot}{suffix}".lower()


def _without_compression(name: str) -> str:
    return name.rpartition(".")[0] if _suffix(name) in COMPRESSION_SUFFIXES else name


def _patterns(path: object) -> tuple[str, ...]:
    if isinstance(path, str):
        return (path,)
    return tuple(part for part in path if isinstance(part, str)) if isinstance(path, list | tuple) else ()


def _check_path(config: Mapping[str, object]) -> list[Problem]:
    path = config.get("path")
    if path is None:
        return [("path", "a files source needs a `path`", 'for example path = "data/*.ndjson"')]
    patterns = _patterns(path)
    if not patterns or (not isinstance(path, str) and len(patterns) < len(path)):  # type: ignore[arg-type]
        return [("path", "`path` is a text or a list of texts", 'for example path = ["a/*.csv", "b/*.csv"]')]
    return [problem for pattern in patterns for problem in _check_pattern(pattern)]


def _check_pattern(pattern: str) -> list[Problem]:
    if not pattern.strip() or "\0" in pattern:
        return [("path", "a `path` is empty", 'for example path = "data/*.ndjson"')]
    if "://" in pattern:
        return [("path", f"`{pattern}` is not a path on this machine", "files are read from mounted folders only")]
    wild = False
    for segment in pattern.split("/"):
        if segment == ".." and wild:
            return [("path", f"`..` comes after a wildcard in `{pattern}`", "put `..` at the front of the path")]
        if "**" in segment and segment != "**":
            return [("path", f"`**` is a part of its own, unlike `{segment}`", "write `**/*.csv`, not `**.csv`")]
        wild = wild or WILD.search(segment) is not None
    return []


def _check_word(config: Mapping[str, object], key: str, known: tuple[str, ...]) -> list[Problem]:
    value = config.get(key)
    if value is None or value in known:
        return []
    meant = nearest(value, known) if isinstance(value, str) else None
    hint = f"did you mean `{meant}`?" if meant else "one of: " + ", ".join(known)
    return [(key, f"`{value}` is not a {key} that files are read in", hint)]


def _check_format(config: Mapping[str, object]) -> list[Problem]:
    """Whether the format is known, and fits the other keys."""
    patterns, named = _patterns(config["path"]), config.get("format")
    for pattern in patterns if named is None else ():
        name = pattern.rpartition("/")[2]
        suffix = _suffix(_without_compression(name))
        if WILD.search(name) and suffix and not WILD.search(suffix) and suffix not in FORMAT_SUFFIXES:
            return [("format", f"the suffix `{suffix}` of `{pattern}` tells no format", _NAMED_SUFFIXES)]
    known = {format_of(pattern) for pattern in patterns} - {None} if named is None else {named}
    if len(known) > 1:
        return [("path", "the files of one source have one format", "make one pipeline for each format")]
    format_ = next(iter(known), None)
    csv_key = next((key for key in _CSV_KEYS if key in config), None)
    if csv_key is not None and format_ not in ("csv", None):
        return [(csv_key, f"`{csv_key}` means something for CSV only, not for {format_}", "remove it")]
    if "records" in config and format_ not in ("json", None):
        return [("records", f"`records` means something for JSON documents only, not for {format_}", "remove it")]
    if format_ == "parquet" and "encoding" in config:
        return [("encoding", "a Parquet file is no text", "remove `encoding`")]
    if format_ == "parquet" and config.get("compression", "none") != "none":
        return [("compression", "a Parquet file is compressed inside, never as a whole", "remove `compression`")]
    return []
