"""The code of a ripple: a query, or a function in a file of the user that is read again for each run.

A Python file is a module of a package that exists for one run only; the files beside it are its siblings
(`from .rates import convert`), two files of one name do not conflict, and a change on disk takes effect at the next
run. Functions of these modules are sent to Spark's workers by value, because the workers cannot import them; so a
sibling is imported at the top of a file, not inside a function that workers run.
"""

from __future__ import annotations

import importlib.util
import itertools
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.machinery import SOURCE_SUFFIXES, FileFinder, ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from headwater.base.errors import HeadwaterError, Position, nearest

RUN_PACKAGE = "_headwater_run_"
_numbers = itertools.count(1)
_lock = threading.Lock()


@dataclass(frozen=True)
class SqlCode:
    """A query in Spark's SQL. `place` is where its text begins in a file of the user."""

    text: str
    position: Position | None = None


@dataclass(frozen=True)
class PythonCode:
    """A function in a file. `shown` is the file's name for the user."""

    path: Path
    function: str
    shown: str

    def position(self, file: str, line: int) -> Position | None:
        """A line of a file of this code, with the file's name for the user; None for any other file."""
        try:
            inside = Path(file).relative_to(self.path.parent)
        except ValueError:
            return None
        if "site-packages" in inside.parts:
            return None
        return Position((Path(self.shown).parent / inside).as_posix(), line)


Code = SqlCode | PythonCode


@contextmanager
def loaded(code: PythonCode) -> Iterator[Callable[..., object]]:
    """The function, read from its file now. Its modules stay until the block ends: Spark may still need them. Raises
    what the file raises; HW-R01 if there is no such file or function."""
    from pyspark import cloudpickle

    with _lock:
        _install_finder()
        name = f"{RUN_PACKAGE}{next(_numbers)}"
    package = ModuleType(name)
    package.__path__ = [str(code.path.parent)]
    sys.modules[name] = package
    cloudpickle.register_pickle_by_value(package)  # type: ignore[no-untyped-call]
    try:
        yield _function(code, _load(code, name))
    finally:
        cloudpickle.unregister_pickle_by_value(package)  # type: ignore[no-untyped-call]
        for module in [m for m in list(sys.modules) if m == name or m.startswith(f"{name}.")]:
            del sys.modules[module]


def _load(code: PythonCode, package: str) -> ModuleType:
    if not code.path.is_file():
        message = f"there is no file `{code.shown}`"
        raise HeadwaterError("HW-R01", message, hint="paths are relative to the project's directory")
    name = f"{package}.{code.path.stem.replace('.', '_')}"
    spec = importlib.util.spec_from_file_location(name, code.path, loader=_FreshLoader(name, str(code.path)))
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _function(code: PythonCode, module: ModuleType) -> Callable[..., object]:
    found = getattr(module, code.function, None)
    if callable(found):
        return found  # type: ignore[no-any-return]
    own = [name for name, value in vars(module).items() if callable(value) and value.__module__ == module.__name__]
    meant = nearest(code.function, own)
    raise HeadwaterError(
        "HW-R01",
        f"there is no function `{code.function}` in `{code.shown}`",
        hint=f"did you mean `{meant}`?" if meant else f"functions there: {', '.join(own) or 'none'}",
        places=(Position(code.shown),),
    )


class _FreshLoader(SourceFileLoader):
    """Compiles the source each time and keeps nothing: the time of a compiled file cannot distinguish two edits in one
    second, and we do not write to a user's directory."""

    def get_code(self, fullname: str) -> CodeType:
        path = self.get_filename(fullname)
        compiled: CodeType = self.source_to_code(self.get_data(path), path)
        return compiled


class _Finder:
    """Finds the siblings of a run's file, without the caches of ordinary imports."""

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: Any = None) -> ModuleSpec | None:
        if path is None or not fullname.startswith(RUN_PACKAGE):
            return None
        for entry in path:
            spec = FileFinder(entry, (_FreshLoader, SOURCE_SUFFIXES)).find_spec(fullname)
            if spec is not None:
                return spec
        return None


def _install_finder() -> None:
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())
