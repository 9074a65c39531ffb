"""The pages for contributors are true: the levels of packages, and the words of the glossary."""

from __future__ import annotations

from architecture.test_architecture import LEVELS, SOURCE
from docs.pages import ROOT
from docs.test_reference import rows

WORDS = {
    *(
        "pipeline",
        "pond",
        "ripple",
        "inlet",
        "tap",
        "pulse",
        "wave",
        "tide",
        "freshness",
        "staleness",
        "window",
        "demand",
    ),
    *("slice", "cursor", "commit", "cut", "run", "job", "attempt", "lease", "chunk", "coverage", "landing", "ledger"),
    *("dead letter", "base", "tail", "merge", "fold", "snapshot", "tombstone"),
}
"""The words of the theory of freshness, and ours. No others have a meaning of their own."""


def test_the_page_has_the_level_of_every_package() -> None:
    page = (ROOT / "docs" / "explanation" / "architecture.md").read_text()
    packages = [row for row in rows(page.partition("## Packages")[2]) if len(row) == 3]
    assert {row[0].strip("`"): int(row[1]) for row in packages} == LEVELS
    later = {row[0].strip("`") for row in packages if row[2] == "*later*"}
    assert later == {name for name in LEVELS if not (SOURCE / name).is_dir()}


def test_the_glossary_has_every_word_in_order() -> None:
    words = [row[0].strip("*").lower() for row in rows((ROOT / "docs" / "glossary.md").read_text())]
    assert words == sorted(WORDS)
