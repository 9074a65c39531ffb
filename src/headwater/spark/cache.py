"""Where this package keeps files that can be made again: the Java shim, class-data archives, the log configuration."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def cache_directory() -> Path:
    """`$HEADWATER_CACHE_DIR`, else `headwater` in the user's cache directory; a private temporary one if that
    cannot be written. Everything in it may be deleted at any time."""
    named = os.environ.get("HEADWATER_CACHE_DIR")
    base = os.environ.get("XDG_CACHE_HOME")
    if named:
        directory = Path(named)
    elif base:
        directory = Path(base) / "headwater"
    else:
        directory = Path("~/.cache/headwater").expanduser()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if os.access(directory, os.W_OK):
            return directory.absolute()
    except (OSError, RuntimeError):
        pass
    return _private_directory()


def write_if_changed(path: Path, text: str, *, mode: int = 0o644) -> Path:
    """Make sure `path` holds `text`; readers at the same time see the old text or the new one, never a part."""
    try:
        if path.read_text() == text:
            return path
    except OSError:
        pass
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    Path(temporary).chmod(mode)
    Path(temporary).replace(path)
    return path


def _private_directory() -> Path:
    """One directory per user below the temporary one; refused if another user made it first."""
    directory = Path(tempfile.gettempdir()) / f"headwater-{os.getuid()}"
    directory.mkdir(mode=0o700, exist_ok=True)
    if directory.stat().st_uid != os.getuid():
        return Path(tempfile.mkdtemp(prefix="headwater-"))
    return directory
