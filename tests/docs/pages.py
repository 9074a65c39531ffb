"""The pages of the documentation as things to run: fenced blocks, and a session that does what they say.

Blocks of a page are carried out in order in one empty directory. What a block is, its info string tells:

| info string          | what happens                                                                          |
|----------------------|---------------------------------------------------------------------------------------|
| console              | each `$ command` runs (`> ` goes on with it) and must print the lines below it        |
| LANGUAGE file=PATH   | the text is written to that file                                                      |
| LANGUAGE add=PATH    | the text is put behind what the file holds                                            |
| toml                 | a whole manifest, which must load by itself                                           |
| json                 | one pipeline, which must load by itself                                               |
| python               | runs as a program; the `text output` block behind it is what it prints                |
| sql                  | is asked of the store; `sql source` runs in the database behind PG_URL                |
| text picture         | is for the eye                                                                        |

In expected output `...` on a line of its own stands for any lines, within a line for any text. Runs of spaces and of
dashes count as one. A command that fails must be followed by `$ echo $?` with its exit code. `make TARGET` must be a
target of the Makefile; what its recipe asks of `headwater` is done in its place. `pip install DIRECTORY` installs that
package, without an index, in a folder beside the page's files; a page that uses it needs `process`.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from headwater.app.workspace import load
from headwater.interfaces.cli.main import main
from headwater.spark.java import find_java

ROOT = Path(__file__).parents[2]
_FENCE = re.compile(r"^```(.*)$")
_NEEDS = re.compile(r"^<!-- needs: ([a-z ]+) -->$", re.MULTILINE)
_OPERATORS = re.compile(r"[|<>&;()]+|\$.*")


@dataclass(frozen=True)
class Block:
    """One fenced block. `line` is that of its fence."""

    page: Path
    line: int
    language: str
    tags: tuple[str, ...]
    text: str

    @property
    def place(self) -> str:
        return f"{shown(self.page)}:{self.line}"

    def named(self, key: str) -> str | None:
        return next((tag.partition("=")[2] for tag in self.tags if tag.startswith(f"{key}=")), None)

    @property
    def kind(self) -> str | None:
        """What is done with it; None if nothing would be."""
        if self.named("file") is not None or self.named("add") is not None:
            return "write"
        match self.language, self.tags:
            case ("console" | "python" | "toml" | "json" | "sql") as language, ():
                return language
            case "sql", ("source",):
                return "source"
            case "text", (("output" | "picture") as tag,):
                return tag
        return None


@dataclass(frozen=True)
class Page:
    """`needs` is what must be there to run it: spark, postgres, cluster; `process` if each command
    has to be a process of its own; or more time than the fast tests have."""

    path: Path
    needs: frozenset[str]
    blocks: tuple[Block, ...]

    @property
    def name(self) -> str:
        return shown(self.path)

    @property
    def text(self) -> str:
        return self.path.read_text()


@dataclass(frozen=True)
class Step:
    """A command of a console block and what it must print."""

    line: int
    command: str
    expected: tuple[str, ...]


def shown(path: Path) -> str:
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name


def all_pages() -> list[Page]:
    paths = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [read_page(path) for path in paths]


def read_page(path: Path) -> Page:
    text = path.read_text()
    needs = _NEEDS.search(text)
    return Page(path, frozenset(needs[1].split()) if needs else frozenset(), tuple(_blocks(path, text)))


def _blocks(path: Path, text: str) -> Iterator[Block]:
    opened: tuple[int, str] | None = None
    lines: list[str] = []
    for number, line in enumerate(text.splitlines(), start=1):
        fence = _FENCE.match(line)
        if fence is None:
            lines.append(line)
        elif opened is None:
            opened, lines = (number, fence[1].strip()), []
        else:
            assert not fence[1], f"{path}:{number}: a block begins inside the block of line {opened[0]}"
            language, *tags = opened[1].split() or [""]
            yield Block(path, opened[0], language, tuple(tags), "\n".join(lines) + "\n")
            opened = None
    assert opened is None, f"{path}:{opened}: a block is not closed"


def steps(block: Block) -> list[Step]:
    found: list[tuple[int, list[str], list[str]]] = []
    for number, line in enumerate(block.text.splitlines(), start=block.line + 1):
        if line.startswith("$ "):
            found.append((number, [line[2:]], []))
        elif line.startswith("> ") and found and not found[-1][2]:
            found[-1][1].append(line[2:])
        else:
            assert found, f"{block.place}: a console block begins with `$ `"
            found[-1][2].append(line)
    return [Step(number, "\n".join(command), tuple(out)) for number, command, out in found]


def differs(expected: Sequence[str], printed: str) -> bool:
    """Whether output is not what a page says."""
    parts = []
    for line in expected:
        if line.strip() == "...":
            parts.append(r"(?:.*\n)*?")
        else:
            words = r".*?".join(re.escape(part) for part in _plain(line).split("..."))
            parts.append(words + r"\n")
    actual = "".join(_plain(line) + "\n" for line in printed.splitlines())
    return re.fullmatch("".join(parts), actual) is None


def _plain(line: str) -> str:
    return re.sub(r"-{2,}", "--", re.sub(r" {2,}", " ", line)).rstrip()


@dataclass
class Session:
    """One reader at one terminal, who does what a page says. `apart` runs every command in a process of its own."""

    directory: Path
    environment: dict[str, str]
    apart: bool = False
    code: int = 0
    printed: str | None = None

    def run(self, page: Page) -> None:
        for block in page.blocks:
            match block.kind:
                case "console":
                    self._console(block)
                case "write":
                    self._write(block)
                case "python":
                    self._python(block)
                case "output":
                    assert self.printed is not None, f"{block.place}: there is no program before this output"
                    self._compare(block.place, block.text.splitlines())
                case "sql":
                    self._do(f"headwater query {shlex.quote(block.text)}", block.place)
                    assert self.code == 0, f"{block.place}:\n{self.printed}"
                case "source":
                    self._source(block)
                case "toml":
                    load_alone(self.directory / f".alone-{block.line}", {"headwater.toml": block.text})
                case "json":
                    load_alone(
                        self.directory / f".alone-{block.line}",
                        {"headwater.toml": "", "pipelines/pipeline.json": block.text},
                    )

    def _console(self, block: Block) -> None:
        found = steps(block)
        for step, after in zip(found, [*found[1:], None]):
            place = f"{shown(block.page)}:{step.line}"
            self._do(step.command, place)
            self._compare(place, step.expected)
            asked = after is not None and after.command == "echo $?"
            assert self.code == 0 or asked, f"{place}: exit code {self.code}, and nobody asks for it\n{self.printed}"

    def _do(self, command: str, place: str) -> None:
        words = shlex.split(command)
        if command == "echo $?":
            self.printed, self.code = f"{self.code}\n", 0
        elif words[0] == "cd":
            self.directory, self.printed, self.code = self.directory / words[1], "", 0
            assert self.directory.is_dir(), f"{place}: there is no directory {words[1]}"
        elif words[0] == "export":
            name, _, value = words[1].partition("=")
            self.environment[name] = value
            self.printed, self.code = "", 0
        elif words[0] == "make":
            self._make(words[1:], place)
        elif words[:2] == ["pip", "install"]:
            self._install(words[2:], place)
        elif words[0] in ("headwater", "hw") and not self.apart and not _needs_shell(command):
            self._headwater(words[1:])
        else:
            self._shell(command)

    def _make(self, targets: Sequence[str], place: str) -> None:
        known = makefile()
        printed, self.code = "", 0
        for target in targets:
            assert target in known, f"{place}: the Makefile has no target `{target}`"
            for line in known[target]:
                if line.startswith("$(BIN)/headwater "):
                    self._headwater(shlex.split(line)[1:])
                    printed += self.printed or ""
        self.printed = printed

    def _install(self, packages: Sequence[str], place: str) -> None:
        assert self.apart, f"{place}: a package is seen by new processes only; the page needs `process`"
        target = self.directory / ".packages"
        flags = "--quiet --disable-pip-version-check --no-index --no-deps --no-build-isolation --target"
        self._shell(
            f"{shlex.quote(sys.executable)} -m pip install {flags} {shlex.quote(str(target))} {shlex.join(packages)}"
        )
        before = self.environment.get("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
        self.environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(target), before]))

    def _headwater(self, words: Sequence[str]) -> None:
        """In this process, so that all pages share its one Spark session."""
        out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)
        here = _surroundings(self.environment, self.directory)
        with here, contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
            self.code = int(main(list(words)))
        self.printed = out.buffer.getvalue().decode()

    def _shell(self, command: str, **variables: str) -> None:
        done = subprocess.run(
            ["sh", "-c", command],
            cwd=self.directory,
            env={**os.environ, **self.environment, **variables, "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        self.printed, self.code = done.stdout, done.returncode

    def _python(self, block: Block) -> None:
        program = self.directory / ".program.py"
        program.write_text(block.text)
        # A program that starts Spark by itself needs the Java that Headwater finds by itself.
        java = {"JAVA_HOME": str(find_java().home)} if "pyspark" in block.text else {}
        self._shell(f"{shlex.quote(sys.executable)} .program.py", **java)
        program.unlink()
        assert self.code == 0, f"{block.place}:\n{self.printed}"

    def _source(self, block: Block) -> None:
        import psycopg

        with psycopg.connect(self.environment["PG_URL"]) as connection:
            connection.execute(block.text.encode())

    def _write(self, block: Block) -> None:
        added = block.named("add")
        path = self.directory / str(added or block.named("file"))
        path.parent.mkdir(parents=True, exist_ok=True)
        before = path.read_text() if added else ""
        path.write_text(before + block.text)

    def _compare(self, place: str, expected: Sequence[str]) -> None:
        printed = self.printed or ""
        assert not differs(expected, printed), f"{place} prints otherwise:\n{printed}"


def load_alone(directory: Path, texts: Mapping[str, str]) -> None:
    """Load a manifest that consists of these files. Raises every error of it."""
    for name, text in texts.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    load(directory)


def makefile() -> dict[str, list[str]]:
    """The targets of the Makefile and the lines of their recipes."""
    found: dict[str, list[str]] = {}
    target = ""
    for line in (ROOT / "Makefile").read_text().splitlines():
        head = re.match(r"^([a-z][a-z-]*):", line)
        if head:
            target = head[1]
            found[target] = []
        elif line.startswith("\t") and target:
            found[target].append(line.strip().removeprefix("@"))
        elif line.strip():
            target = ""
    return found


def _needs_shell(command: str) -> bool:
    lexer = shlex.shlex(command, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    return any(_OPERATORS.fullmatch(word) for word in lexer)


@contextlib.contextmanager
def _surroundings(environment: Mapping[str, str], directory: Path) -> Iterator[None]:
    before, here = dict(os.environ), Path.cwd()
    os.environ.update(environment)
    os.chdir(directory)
    try:
        yield
    finally:
        os.chdir(here)
        os.environ.clear()
        os.environ.update(before)
