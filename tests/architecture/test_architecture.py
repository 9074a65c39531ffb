"""The rules of the house: who may import whom, what stays in its room, how long a file may be."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "headwater"
LEVELS = {
    "base": 0,
    "manifest": 1,
    "freshness": 1,
    "coerce": 1,
    "connectors": 1,
    "crypto": 1,
    "storage": 2,
    "catalog": 2,
    "duck": 3,
    "ingest": 3,
    "spark": 3,
    "access": 3,
    "sync": 3,
    "observe": 3,
    "backfill": 4,
    "retrieval": 4,
    "runtime": 5,
    "app": 6,
    "interfaces": 7,
}
PRIVATE_WORDS = {"door", "lane", "party", "hands", "crew", "looks", "letters", "chronicle", "complaints", "room"}
PRIVATE_WORDS |= {"place", "stands", "told", "again", "through"}
"""Words that mean nothing to a reader who knows the field. `letters` is a term in `dead letters`."""
MAX_LINES = 500
MAX_FUNCTION_LINES = 60


def modules() -> dict[str, Path]:
    found = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE.parent).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = path
    return found


@cache
def nodes(path: Path) -> list[ast.AST]:
    """Every node of a file. Read once: each rule looks through all files."""
    return list(ast.walk(ast.parse(path.read_text())))


def imports(path: Path, *, typing_too: bool) -> Iterator[tuple[str, int]]:
    """Every module that a file imports, wherever in the file, with the line."""
    skipped: set[int] = set()
    if not typing_too:
        for node in nodes(path):
            if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
                skipped.update(id(inner) for child in node.body for inner in ast.walk(child))
    for node in nodes(path):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            assert node.module is not None
            yield node.module, node.lineno
            for alias in node.names:
                yield f"{node.module}.{alias.name}", node.lineno


def room(module: str) -> str | None:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 and parts[0] == "headwater" else None


def upward(found: dict[str, Path]) -> list[str]:
    wrong = []
    for module, path in found.items():
        mine = room(module)
        if mine is None:
            continue
        for target, line in imports(path, typing_too=True):
            theirs = room(target)
            if theirs in LEVELS and LEVELS[theirs] > LEVELS[mine]:
                wrong.append(f"{path.name}:{line}: {mine} imports {theirs}")
    return wrong


def past_app(found: dict[str, Path]) -> list[str]:
    """Imports of interfaces from packages other than `app` and `base`."""
    return [
        f"{path.name}:{line}: an interface imports {target}"
        for module, path in found.items()
        if room(module) == "interfaces"
        for target, line in imports(path, typing_too=True)
        if room(target) in LEVELS.keys() - {"app", "base", "interfaces"}
    ]


def cycles(found: dict[str, Path]) -> list[str]:
    """Strongly connected modules of the import graph (what only a type checker reads is left out)."""
    graph = {
        module: sorted({t for t, _ in imports(path, typing_too=False) if t in found and t != module})
        for module, path in found.items()
    }
    # A package's `__init__` is loaded before its modules: it must not import them back, which this shows too.
    state: dict[str, int] = {}
    wrong: list[str] = []

    def visit(start: str) -> None:
        stack: list[tuple[str, Iterator[str]]] = [(start, iter(graph[start]))]
        state[start] = 1
        while stack:
            module, targets = stack[-1]
            target = next(targets, None)
            if target is None:
                state[module] = 2
                stack.pop()
            elif state.get(target) == 1:
                names = [name for name, _ in stack]
                wrong.append(" -> ".join([*names[names.index(target) :], target]))
            elif target not in state:
                state[target] = 1
                stack.append((target, iter(graph[target])))

    for module in graph:
        if module not in state:
            visit(module)
    return wrong


def room_cycles(found: dict[str, Path]) -> list[str]:
    """Rooms of one level may import each other in one direction only."""
    edges = {
        (room(module), room(target))
        for module, path in found.items()
        for target, _ in imports(path, typing_too=True)
        if room(module) in LEVELS and room(target) in LEVELS and room(module) != room(target)
    }
    return sorted(f"{a} <-> {b}" for a, b in edges if (b, a) in edges and str(a) < str(b))


def long_functions(path: Path) -> list[str]:
    wrong = []
    for node in nodes(path):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > MAX_FUNCTION_LINES:
                wrong.append(f"{path.name}:{node.lineno}: {node.name} has {length} lines")
    return wrong


def test_every_room_has_a_level_and_one_docstring() -> None:
    rooms = {path.name for path in SOURCE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert rooms <= LEVELS.keys()
    for name in rooms:
        tree = ast.parse((SOURCE / name / "__init__.py").read_text())
        assert ast.get_docstring(tree) and len(tree.body) == 1, f"{name}/__init__.py holds one docstring"


def test_nothing_imports_upwards() -> None:
    assert upward(modules()) == []


def test_interfaces_import_app_and_base_only() -> None:
    assert past_app(modules()) == []


def test_there_is_no_import_cycle() -> None:
    found = modules()
    assert cycles(found) == []
    assert room_cycles(found) == []


def test_pyspark_stays_in_its_room() -> None:
    wrong = [
        f"{path}:{line}"
        for module, path in modules().items()
        for target, line in imports(path, typing_too=True)
        if target.split(".")[0] in ("pyspark", "py4j") and room(module) != "spark"
    ]
    assert wrong == []


def test_the_freshness_engine_knows_nothing_but_itself() -> None:
    """Pure: it imports its own room, base, and parts of the standard library that look at nothing outside."""
    pure = {"__future__", "bisect", "collections", "dataclasses", "heapq", "itertools", "math", "typing"}
    allowed = ("headwater.freshness", "headwater.base")
    wrong = [
        f"{path.name}:{line} imports {target}"
        for module, path in modules().items()
        if room(module) == "freshness"
        for target, line in imports(path, typing_too=True)
        if not target.startswith(allowed) and target.split(".")[0] not in pure
    ]
    assert not wrong, wrong


def compared_codes(found: dict[str, Path]) -> list[str]:
    """Places that compare the code of an error. Only interfaces turn codes into something else."""
    wrong = []
    for module, path in found.items():
        if room(module) == "interfaces":
            continue
        for node in nodes(path):
            match node:
                case ast.Compare():
                    parts = [node.left, *node.comparators]
                case ast.Match():
                    parts = [node.subject]
                case _:
                    continue
            if any(isinstance(part, ast.Attribute) and part.attr == "code" for part in parts):
                wrong.append(f"{path.name}:{node.lineno}: {ast.unparse(node)}")
    return wrong


def test_errors_are_told_apart_by_their_type() -> None:
    # These check that a code exists; the last one is how an error is compared with another.
    allowed = {"message.code not in CODES", "self.code in CODES", "self.code == other.code"}
    wrong = [place for place in compared_codes(modules()) if place.partition(": ")[2] not in allowed]
    assert wrong == []


def twin_modules(found: dict[str, Path]) -> list[str]:
    """File stems that occur twice. Allowed: a module of `app` and the interfaces that render it, and the same part of
    several connectors."""
    by_stem: dict[str, list[str]] = {}
    for module in found:
        package, _, stem = module.rpartition(".")
        by_stem.setdefault(stem, []).append(package.removeprefix("headwater").lstrip("."))
    wrong = []
    for stem, packages in by_stem.items():
        others = [package for package in packages if not (package == "app" or package.startswith("interfaces."))]
        is_rendered = not others and packages.count("app") == 1
        is_connector_part = all(package.startswith("connectors.") for package in packages)
        if len(packages) > 1 and not is_rendered and not is_connector_part:
            wrong.append(f"{stem}: {', '.join(sorted(packages))}")
    return wrong


def twin_classes(found: dict[str, Path]) -> list[str]:
    """Class names that occur twice; a leading underscore makes no other name."""
    by_name: dict[str, list[str]] = {}
    for path in found.values():
        for node in nodes(path):
            if isinstance(node, ast.ClassDef):
                by_name.setdefault(node.name.lstrip("_"), []).append(f"{path.name}:{node.lineno}")
    return [f"{name}: {', '.join(where)}" for name, where in by_name.items() if len(where) > 1]


def words(name: str) -> list[str]:
    """The words of a snake_case or CamelCase name, in small letters; `dead letters` is one word."""
    found = [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+", name)]
    return re.sub(r"\bdead letters?\b", "dead-letter", " ".join(found)).split()


def private_words(found: dict[str, Path]) -> list[str]:
    """Modules, classes and public functions whose names have one of `PRIVATE_WORDS`, also as a plural or singular."""
    forbidden = PRIVATE_WORDS | {f"{word}s" for word in PRIVATE_WORDS} | {word.rstrip("s") for word in PRIVATE_WORDS}
    forbidden -= {"look", "hand", "stand", "throughs"}  # verbs of the field: hand over
    names = [(module.rpartition(".")[2], module) for module in found]
    for path in found.values():
        for node in nodes(path):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                is_private = node.name.startswith("_") and not isinstance(node, ast.ClassDef)
                names += [] if is_private else [(node.name, f"{path.name}:{node.lineno}")]
    return [f"{where}: {name}" for name, where in names if not forbidden.isdisjoint(words(name))]


def test_names_are_terms_of_the_field() -> None:
    assert private_words(modules()) == []


def test_one_name_means_one_thing() -> None:
    found = {name: path for name, path in modules().items() if path.stem != "__init__"}
    assert twin_modules(found) == []
    assert twin_classes(found) == []


LANDING_RECORDS = {"TableCreated", "SchemaSet", "FilesAdded", "FilesRemoved", "FilesMerged"}


def made_in(found: dict[str, Path], records: set[str]) -> set[tuple[str, str]]:
    """Which records are constructed in which modules, also under another name."""
    made = set()
    for module, path in found.items():
        names = {record: record for record in records}
        for node in nodes(path):
            if isinstance(node, ast.ImportFrom):
                names |= {alias.asname: alias.name for alias in node.names if alias.asname and alias.name in records}
        for node in nodes(path):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
                name = node.func.id if isinstance(node.func, ast.Name) else node.func.attr
                if name in names:
                    made.add((names[name], module))
    return made


def test_records_that_land_rows_are_made_in_one_module() -> None:
    """What creates a table, sets its schema, adds files or removes them. (`match` patterns read records, and make none.)"""
    assert made_in(modules(), LANDING_RECORDS) == {(name, "headwater.catalog.landing") for name in LANDING_RECORDS}


FILE_CALLS = {
    *("read_text", "read_bytes", "write_text", "write_bytes", "unlink", "mkdir", "rmdir", "rmtree"),
    *("copyfile", "copy2", "copytree", "move", "fsync", "symlink_to", "hardlink_to", "ParquetFile", "ParquetWriter"),
}
OTHER_FILES = {
    "headwater.app.apply": "a saved plan",
    "headwater.app.demo_orders": "files of the demo project",
    "headwater.app.doctor": "whether a directory can be written",
    "headwater.app.init": "files of a new project",
    "headwater.app.schema": "the JSON Schema of manifests",
    "headwater.catalog.database": "the directory of a new SQLite file",
    "headwater.duck.query_pool": "sockets and scratch files of query processes",
    "headwater.duck.query_worker": "the limits of the process",
    "headwater.ingest.due_files": "the drop folder",
    "headwater.ingest.dropped_files": "the drop folder",
    "headwater.spark.archive": "the class archive of the JVM",
    "headwater.spark.cache": "the user's cache",
    "headwater.spark.gateway": "the JVM's connection file",
    "headwater.spark.java": "the JRE",
    "headwater.spark.machine_size": "the machine's limits",
    "headwater.spark.session": "Spark's scratch directory",
    "headwater.spark.train": "the class archive of the JVM",
    "headwater.spark.user_errors": "Python files of the project",
}
"""Modules that open files, none of which belongs to a store. The packages below are checked: the others (manifest,
connectors, interfaces, coerce, observe) know no store."""
STORE_PACKAGES = ("app", "catalog", "duck", "ingest", "runtime", "spark")


def opens_files(found: dict[str, Path]) -> set[str]:
    """Modules that open, write or delete files by themselves."""
    wrong = set()
    for module, path in found.items():
        for node in nodes(path):
            if isinstance(node, ast.Call):
                match node.func:
                    case ast.Name(id="open") | ast.Attribute(value=ast.Name(id="os"), attr="open"):
                        wrong.add(module)
                    case ast.Attribute(attr=name) if name in FILE_CALLS:
                        wrong.add(module)
            elif isinstance(node, ast.ImportFrom) and node.module == "headwater.base.blobs":
                wrong.add(module)
    return wrong


def test_files_of_a_store_are_opened_in_storage_alone() -> None:
    found = {
        name: path for name, path in modules().items() if name.split(".")[1:2] and name.split(".")[1] in STORE_PACKAGES
    }
    assert opens_files(found) - OTHER_FILES.keys() == set()
    assert OTHER_FILES.keys() - opens_files(found) == set(), "an entry that is not needed"


def test_files_and_functions_are_short() -> None:
    wrong = [
        f"{path.name} has {lines} lines"
        for path in modules().values()
        if (lines := len(path.read_text().splitlines())) > MAX_LINES
    ]
    for path in modules().values():
        wrong += long_functions(path)
    assert wrong == []


def test_no_file_is_called_utils_or_manager() -> None:
    assert [p for p in modules().values() if p.stem in ("utils", "util", "helpers", "manager", "common")] == []


def test_no_machine_path_or_registry_host_is_in_the_repository() -> None:
    root = SOURCE.parents[1]
    hosts = ("pypi." + "org", "files.python" + "hosted", "repo1." + "maven", "registry." + "npmjs", "/ro" + "ot/")
    wrong = []
    for folder in ("src", "tests", "docs", "benchmarks", "lock", ".ci"):
        for path in (root / folder).rglob("*"):
            if path.is_file() and path.suffix in (".py", ".md", ".toml", ".txt", ".json", ".sh", ""):
                text = path.read_text(errors="replace")
                wrong += [f"{path.relative_to(root)}: {host}" for host in hosts if host in text]
    assert wrong == []


@pytest.fixture
def little_house(tmp_path: Path) -> dict[str, Path]:
    texts = {
        "headwater.base.a": "import headwater.catalog.b\n",
        "headwater.catalog.b": "from headwater.base import a\n",
        "headwater.catalog.c": "import pyspark\nfrom r import SchemaSet as Set\nr.FilesAdded()\nSet()\n",
        "headwater.duck.e": "from headwater.storage.store_files import read_text\nread_text(path)\n",
        "headwater.spark.f": "path.unlink()\n",
        "headwater.interfaces.d": "def f():\n    from headwater.catalog import c\n    from headwater.app import e\n",
    }
    found = {}
    for name, text in texts.items():
        found[name] = tmp_path / f"{name}.py"
        found[name].write_text(text)
    return found


def test_the_rules_find_what_they_forbid(little_house: dict[str, Path]) -> None:
    assert len(upward(little_house)) == 1
    assert past_app(little_house) == [
        "headwater.interfaces.d.py:2: an interface imports headwater.catalog",
        "headwater.interfaces.d.py:2: an interface imports headwater.catalog.c",
    ]
    assert cycles(little_house) == ["headwater.base.a -> headwater.catalog.b -> headwater.base.a"]
    assert room_cycles(little_house) == ["base <-> catalog"]
    assert made_in(little_house, LANDING_RECORDS) == {
        ("FilesAdded", "headwater.catalog.c"),
        ("SchemaSet", "headwater.catalog.c"),
    }
    assert opens_files(little_house) == {"headwater.spark.f"}


def test_the_rules_find_twin_names(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text("class Run: ...\nclass _Run: ...\n")
    names = ("app.plan", "interfaces.cli.plan", "runtime.plan", "connectors.files.read", "connectors.rest.read")
    found = {f"headwater.{name}": path for name in names}
    assert twin_modules(found) == ["plan: app, interfaces.cli, runtime"]
    assert twin_classes({"headwater.a": path}) == ["Run: a.py:1, a.py:2"]


def test_the_rules_find_private_words(tmp_path: Path) -> None:
    path = tmp_path / "a.py"
    path.write_text("class TwoLanes: ...\ndef told(): ...\ndef dead_letters(): ...\ndef _told(): ...\n")
    found = {"headwater.app.kept_letters": path}
    assert private_words(found) == ["headwater.app.kept_letters: kept_letters", "a.py:1: TwoLanes", "a.py:2: told"]
