"""Every page does what it says: its commands are run, its files are loaded, its output is compared."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from docs.pages import ROOT, Page, Session, all_pages, differs, makefile, read_page

PAGES = all_pages()
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def _param(page: Page) -> object:
    if page.needs == {"time"}:
        return pytest.param(page, id=page.name, marks=[pytest.mark.long])
    return pytest.param(page, id=page.name, marks=[pytest.mark.spark] if page.needs else [])


@pytest.mark.parametrize("page", [_param(page) for page in PAGES if page.blocks])
def test_a_page_does_what_it_says(page: Page, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    directory = tmp_path / "work"
    directory.mkdir()
    environment = {"HEADWATER_ACTOR": "operator:ada", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    if "postgres" in page.needs:
        environment["PG_URL"] = request.getfixturevalue("postgres_url")
        environment["HEADWATER_CATALOG"] = environment["PG_URL"]
    if "cluster" not in page.needs:
        if "process" in page.needs:
            environment["HEADWATER_CHECKOUT"] = str(ROOT)
        Session(directory, environment, apart="process" in page.needs).run(page)
        return
    from spark.cluster import LocalCluster

    with LocalCluster() as cluster:
        environment["HEADWATER_SPARK__MASTER"] = cluster.url
        Session(directory, environment, apart=True).run(page)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_block_goes_unchecked(page: Page) -> None:
    unchecked = [block.place for block in page.blocks if block.kind is None]
    assert not unchecked, "give these blocks an info string that docs/pages.py knows"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_relative_link_leads_somewhere(page: Page) -> None:
    prose = re.sub(r"^```.*?^```", "", page.text, flags=re.MULTILINE | re.DOTALL)
    for target in _LINK.findall(prose):
        if "://" in target:
            continue
        file, _, anchor = target.partition("#")
        path = (page.path.parent / file).resolve() if file else page.path
        assert path.exists(), f"{page.name} links to {target}"
        if anchor:
            assert anchor in _anchors(path), f"{page.name} links to {target}"


def test_every_page_can_be_reached_from_the_index() -> None:
    index = ROOT / "docs" / "README.md"
    linked = {(index.parent / target.partition("#")[0]).resolve() for target in _LINK.findall(index.read_text())}
    missing = [page.name for page in PAGES if page.path.is_relative_to(ROOT / "docs") and page.path not in linked]
    assert missing == [str(index.relative_to(ROOT))]


def test_the_readme_names_the_two_commands_that_the_makefile_has() -> None:
    named = re.findall(r"^\$ make ([a-z-]+)", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert named == ["demo", "test"]
    assert {"demo", "test", "check", "bench", "clean"} <= makefile().keys()


def test_decisions_are_short_and_say_why() -> None:
    decisions = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    assert [int(path.name[:4]) for path in decisions] == list(range(1, len(decisions) + 1))
    for path in decisions:
        text = path.read_text()
        assert len(text.splitlines()) < 30, path.name
        parts = [part for part in re.findall(r"^\*\*(\w+)\.\*\*", text, re.MULTILINE) if part != "Rejected"]
        assert parts == ["Context", "Decision", "Consequence"], path.name


@pytest.mark.parametrize(
    ("expected", "printed", "different"),
    [
        (["a  b"], "a b\n", False),
        (["a ... c"], "a b c\n", False),
        (["a", "..."], "a\nb\nc\n", False),
        (["a", "...", "c"], "a\nc\n", False),
        (["a"], "a\nb\n", True),
        (["a", "b"], "a\n", True),
        (["..."], "", False),
        ([], "a\n", True),
        (["a.c"], "abc\n", True),
    ],
)
def test_output_is_compared_line_by_line(expected: list[str], printed: str, different: bool) -> None:
    assert differs(expected, printed) is different


def test_a_command_that_fails_unasked_fails_the_page(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```console\n$ headwater status\nerror[HW-M01]: ...\nhint: ...\n```\n")
    with pytest.raises(AssertionError):
        Session(tmp_path, {}).run(read_page(page))


def _anchors(path: Path) -> set[str]:
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in _HEADING.findall(path.read_text())
    }
