from __future__ import annotations

import pytest

from headwater.base.errors import HeadwaterError
from headwater.base.json_path import Steps, parse_path, path_text


@pytest.mark.parametrize(
    ("text", "column", "steps"),
    [
        ("props.user.id", "props", ("user", "id")),
        ("props.tags[0]", "props", ("tags", 0)),
        ("props[0][12].a", "props", (0, 12, "a")),
        ("props['http.status_code']", "props", ("http.status_code",)),
        ('props["it\'s"].x', "props", ("it's", "x")),
        (r"props['a\'b\\c\"d']", "props", ("a'b\\c\"d",)),
        ("['my props'].0", "my props", ("0",)),
        ("props.größe.日本", "props", ("größe", "日本")),
        ("$.props", "$", ("props",)),
        ("props.user-id.$ref.@type.a:b", "props", ("user-id", "$ref", "@type", "a:b")),
    ],
)
def test_a_path_is_a_column_and_steps(text: str, column: str, steps: Steps) -> None:
    assert parse_path(text) == (column, steps)
    assert parse_path(path_text(column, steps)) == (column, steps)


@pytest.mark.parametrize(
    "text",
    ["", "props", "props.", ".props.a", "props..a", "props.a b", "props[a]", "props[-1]", "props['a", "props['']", "props.*",
     "props['*']", "props[0", "props[0]a", "[0].a", "props['a\nb']", "props['a\\nb']", "p." + "a." * 300 + "a",
     "props[1234567890]"],
)  # fmt: skip
def test_what_is_not_understood_is_refused(text: str) -> None:
    with pytest.raises(HeadwaterError) as refused:
        parse_path(text)
    assert refused.value.code == "HW-S03"
    assert refused.value.hint
