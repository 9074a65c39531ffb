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
