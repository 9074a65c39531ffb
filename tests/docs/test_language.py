"""Pages and code are written in plain words: no idiom that readers stumbled over.

Of a page the prose is checked (what commands print is the code's), of a module its comments and texts. A word that is right
where it is gets an entry in `ALLOWED`, with the reason.
"""

from __future__ import annotations

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.pages import ROOT

ROOTS = ("README.md", "CONTRIBUTING.md", "docs", "src")
"""Files and folders that are checked."""

PERSONS = (
    "attacker|author|caller|client|consumer|contributor|engineer|operator|people|person|reader|reviewer|sender|user"
)
IDIOMS = {
    r"\bmend(s|ed|ing)?\b": "fix",
    r"\btold\b": "reported, shown",
    r"\bstands\b": "is, is set, means",
    r"\bknowingly\b": "explicitly",
    r"\b(nobody|somebody)\b": "name the subject: no server, a user",
    r"\bwho(ever|m)?\b": "name the subject: the client, the caller",
}
PAGE_IDIOMS = {
    r"(?<!dead )(?<!case )(?<!small )(?<!capital )\bletters\b": "dead letters",
    r"\b(doors?|lanes?)\b": "queue, path",
    r"\bso many\b": "give the number",
}
ALLOWED: dict[tuple[str, str], str] = {}
"""(file, a part of the line) -> why it is right there. At most 20."""

_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`[^`\n]*`")
_TARGET = re.compile(r"\]\([^)\s]*\)")
_PERSON = re.compile(rf"\b({PERSONS})s?,? who\b")


def files() -> Iterator[Path]:
    for root in ROOTS:
        path = ROOT / root
        yield from [path] if path.is_file() else sorted([*path.rglob("*.md"), *path.rglob("*.py")])


def prose(path: Path, text: str) -> str:
    """The text with everything but prose made blank, so that lines keep their numbers."""
    if path.suffix == ".py":
        kept = {tokenize.COMMENT, tokenize.STRING, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING)}
        lines = [""] * (text.count("\n") + 2)
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type in kept:
                for number, line in enumerate(token.string.split("\n"), start=token.start[0]):
                    lines[number - 1] += f" {line}"
        return _CODE.sub("", "\n".join(lines))
    fenced = _FENCED.sub(lambda block: "\n" * block[0].count("\n"), text)
    return _TARGET.sub("]", _CODE.sub("", fenced))


def found(path: Path, text: str) -> Iterator[tuple[int, str, str]]:
    """Line, what is there, and what to write instead."""
    idioms = IDIOMS | (PAGE_IDIOMS if path.suffix == ".md" else {})
    present = {pattern: instead for pattern, instead in idioms.items() if re.search(pattern, text, re.IGNORECASE)}
    if not present:
        return  # to find the prose of a module takes much longer
    for number, line in enumerate(_PERSON.sub("", prose(path, text)).splitlines(), start=1):
        for pattern, instead in present.items():
            for match in re.finditer(pattern, line, re.IGNORECASE):
                yield number, match[0], instead


def is_allowed(path: Path, line: str) -> bool:
    name = str(path.relative_to(ROOT))
    return any(file == name and part in line for file, part in ALLOWED)


def test_no_idiom_is_used() -> None:
    wrong = []
    for path in files():
        text = path.read_text()
        lines = text.splitlines()
        for number, word, instead in found(path, text):
            if not is_allowed(path, lines[number - 1]):
                wrong.append(f"{path.relative_to(ROOT)}:{number}: `{word}`; {instead}: {lines[number - 1].strip()}")
    assert not wrong, "\n".join(wrong)


def test_the_allow_list_is_short_and_every_entry_is_needed() -> None:
    assert len(ALLOWED) <= 20
    for (file, part), reason in ALLOWED.items():
        assert reason
        path = ROOT / file
        text = path.read_text()
        assert any(part in text.splitlines()[number - 1] for number, _, _ in found(path, text)), (file, part)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.md", "Who asks, waits. The user who asks, waits.", ["Who"]),
        ("a.md", "Nobody is told of it.\n```console\n$ nobody\n```\n`told`", ["told", "Nobody"]),
        ("a.md", "Mend it knowingly: the file stands there.", ["Mend", "stands", "knowingly"]),
        ("a.md", "Dead letters are kept; letters are too.", ["letters"]),
        ("a.py", 'nobody = "told"  # somebody\n', ["told", "somebody"]),
        ("a.py", '"""Recommended.\n\nWhoever reads it."""\n', ["Whoever"]),
    ],
)
def test_idioms_are_found_in_prose_alone(name: str, text: str, words: list[str]) -> None:
    assert [word for _, word, _ in found(Path(name), text)] == words
