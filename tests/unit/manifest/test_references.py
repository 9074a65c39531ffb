"""Secrets: what counts as a reference, how it is resolved, and that a value never shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from headwater.base.errors import HeadwaterError
from headwater.manifest.load import load_project
from headwater.manifest.references import is_reference, resolve_reference


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("env:TOKEN", True),
        ("env:", False),
        ("env:my-token", False),
        ("environment:TOKEN", False),
        ("file:secrets/token", True),
        ("file:/run/secrets/token", True),
        ("file:", False),
        ("file:///data/orders.csv", False),
        ("plain", False),
    ],
)
def test_a_reference_is_recognised(text: str, expected: bool) -> None:
    assert is_reference(text) is expected


def test_references_are_resolved_and_other_values_stay(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from-file\n")
    texts = ["env:T", "file:token", "x", "file:///data"]
    resolved = [resolve_reference(text, ["T"], {"T": "from-env"}, tmp_path) for text in texts]
    assert resolved == ["from-env", "from-file", "x", "file:///data"]


def test_a_secret_keeps_all_but_its_last_line_break(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"line 1\nline 2 \r\n")
    assert resolve_reference("file:key", (), {}, tmp_path) == "line 1\nline 2 "


@pytest.mark.parametrize(
    ("text", "secrets", "message"),
    [
        ("env:OTHER", ["TOKEN"], "the secret `OTHER` is not listed"),
        ("env:TOKEN", ["TOKEN"], "the environment variable `TOKEN` is not set"),
        ("env:TOKEN", None, "the environment variable `TOKEN` is not set"),
        ("file:nowhere", [], "cannot read the secret file `nowhere`: No such file or directory"),
        ("file:binary", [], "cannot read the secret file `binary`: it is not UTF-8 text"),
    ],
)
def test_a_reference_that_leads_nowhere_is_refused(
    tmp_path: Path, text: str, secrets: list[str] | None, message: str
) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(HeadwaterError) as caught:
        resolve_reference(text, secrets, {"OTHER": "hunter2"}, tmp_path)
    assert (caught.value.code, caught.value.message) == ("HW-M08", message)
    assert "hunter2" not in caught.value.render()


@pytest.mark.parametrize(
    "line",
    [
        'primary_key_column = "id"',
        'page_token = "next"',
        'next_token = "$.next"',
        'token_url = "https://host/oauth"',
        'url = "postgresql://me@db:5432/shop"',
        'url = "https://host/a:b@c"',
        'query = "select password from users"',
        'password = "env:PGPASSWORD"',
        'password = "file:secrets/pg"',
        "use_token = true",
        'nested = { credentials = { user = "me" } }',
    ],
)
def test_what_is_no_secret_is_accepted(tmp_path: Path, line: str) -> None:
    text = 'id = "a"\nsecrets = ["PGPASSWORD"]\ntables = ["t"]\n[source]\nconnector = "x"\n[source.config]\n'
    (tmp_path / "headwater.toml").write_text("")
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "a.toml").write_text(text + line + "\n")
    assert load_project(tmp_path, connectors={"x"}, environ={}).pipelines
