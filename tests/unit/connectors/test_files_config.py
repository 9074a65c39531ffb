"""Configs of the files connector: what is taken, and what each mistake is told."""

from __future__ import annotations

import pytest

from headwater.base.errors import HeadwaterError
from headwater.connectors.files.config import check_config, compression_of, format_of, parse_config


@pytest.mark.parametrize(
    ("name", "format_", "compression"),
    [
        ("a.ndjson", "ndjson", "none"),
        ("a.jsonl.gz", "ndjson", "gzip"),
        ("a.json", "json", "none"),
        ("A.CSV.ZST", "csv", "zstd"),
        ("x/a.b.parquet", "parquet", "none"),
        ("a.gz", None, "gzip"),
        ("a.txt", None, "none"),
        ("ndjson", None, "none"),
    ],
)
def test_suffixes_tell_format_and_compression(name: str, format_: str | None, compression: str) -> None:
    assert (format_of(name), compression_of(name)) == (format_, compression)


def test_a_full_config_is_taken() -> None:
    config = parse_config(
        {"path": ["a/*.csv", "b/**"], "format": "csv", "compression": "gzip", "delimiter": ";", "header": False}
        | {"quote": "", "nulls": ["NA"]}
    )
    assert config.patterns == ("a/*.csv", "b/**")
    assert (config.format, config.compression) == ("csv", "gzip")
    assert (config.csv.delimiter, config.csv.header, config.csv.quote, config.csv.nulls) == (";", False, "", ("NA",))


@pytest.mark.parametrize(
    ("config", "key", "words"),
    [
        ({}, "path", "needs a `path`"),
        ({"path": ""}, "path", "empty"),
        ({"path": 1}, "path", "a text or a list"),
        ({"path": []}, "path", "a text or a list"),
        ({"path": ["a", 2]}, "path", "a text or a list"),
        ({"path": "s3://bucket/a.csv"}, "path", "not a path on this machine"),
        ({"path": "a/*/../b.csv"}, "path", "after a wildcard"),
        ({"path": "a/**.csv"}, "path", "a part of its own"),
        ({"path": "a.csv", "format": "cvs"}, "format", "`cvs` is not a format"),
        ({"path": "a.csv", "compression": "zip"}, "compression", "`zip` is not a compression"),
        ({"path": "a/*.txt"}, "format", "`.txt`"),
        ({"path": ["a/*.csv", "b/*.json"]}, "path", "one format"),
        ({"path": "a.csv", "delimiter": ";;"}, "delimiter", "one ASCII character"),
        ({"path": "a.csv", "delimiter": "\n"}, "delimiter", "one ASCII character"),
        ({"path": "a.csv", "delimiter": '"'}, "quote", "same character"),
        ({"path": "a.csv", "quote": 1}, "quote", "one ASCII character"),
        ({"path": "a.csv", "header": "yes"}, "header", "true or false"),
        ({"path": "a.csv", "nulls": "NA"}, "nulls", "a list of texts"),
        ({"path": "a.json", "delimiter": ","}, "delimiter", "CSV only"),
        ({"path": "a.parquet", "compression": "gzip"}, "compression", "compressed inside"),
    ],
)
def test_each_mistake_is_named_by_its_key(config: dict[str, object], key: str, words: str) -> None:
    ((found_key, message, _),) = check_config(config)
    assert found_key == key
    assert words in message
    with pytest.raises(HeadwaterError) as error:
        parse_config(config)
    assert error.value.code == "HW-C01"


def test_a_misspelt_key_is_told_the_nearest_one() -> None:
    assert check_config({"path": "a.csv", "delimeter": ";"}) == [
        ("delimeter", "the files connector has no key `delimeter`", "did you mean `delimiter`?")
    ]


def test_all_mistakes_are_told_in_one_go() -> None:
    problems = check_config({"pth": "a", "format": "xml", "header": 1})
    assert [key for key, _, _ in problems] == ["pth", "path", "format", "header"]


@pytest.mark.parametrize(
    ("config", "key", "message", "hint"),
    [
        (
            {"path": "a.csv", "encoding": "latn-1"},
            "encoding",
            "`latn-1` is not an encoding of text",
            "did you mean `latin-1`?",
        ),
        (
            {"path": "a.csv", "encoding": "rot13"},
            "encoding",
            "`rot13` is not an encoding of text",
            "for example latin-1, windows-1252, utf-16 or shift_jis",
        ),
        ({"path": "a.csv", "encoding": 1}, "encoding", "`encoding` is a text", 'for example encoding = "latin-1"'),
        (
            {"path": "a.parquet", "encoding": "latin-1"},
            "encoding",
            "a Parquet file is no text",
            "remove `encoding`",
        ),
        ({"path": "a.json", "records": 1}, "records", "`records` is a text", 'for example records = "$.data[*]"'),
        (
            {"path": "a.json", "records": "$.data[0]"},
            "records",
            "the path `$.data[0]` is not understood: at character 7",
            "write it as `$.data[*]` or `$['a key'][*].rows[*]`: keys, and `[*]` for every item of an array",
        ),
        (
            {"path": "a.json", "records": "data"},
            "records",
            "the path `data` is not understood: it begins with `$`, the document",
            "write it as `$.data[*]` or `$['a key'][*].rows[*]`: keys, and `[*]` for every item of an array",
        ),
        (
            {"path": "a.csv", "records": "$.data"},
            "records",
            "`records` means something for JSON documents only, not for csv",
            "remove it",
        ),
    ],
)
def test_encodings_and_paths_are_checked(config: dict[str, object], key: str, message: str, hint: str) -> None:
    assert check_config(config) == [(key, message, hint)]


@pytest.mark.parametrize(("name", "codec"), [("utf8", None), ("UTF-8-SIG", None), ("Latin-1", "iso8859-1")])
def test_an_encoding_has_one_name(name: str, codec: str | None) -> None:
    assert parse_config({"path": "a.csv", "encoding": name}).encoding == codec


@pytest.mark.parametrize(
    ("path", "steps"),
    [("$", ()), ("$.data[*]", ("data", None)), ("$['a b'].c[*].d", ("a b", "c", None, "d")), ("$[*]", (None,))],
)
def test_a_path_to_records_is_keys_and_every_item(path: str, steps: tuple[str | None, ...]) -> None:
    assert parse_config({"path": "a.json", "records": path}).records == steps
