"""The values of a project's secrets, and a mask that hides them in a text before it is stored."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from headwater.base.errors import HeadwaterError
from headwater.manifest.references import is_reference, leaves, resolve_reference
from headwater.manifest.spec import PipelineSpec

HIDDEN = "***"
PART_CHARACTERS = 8
"""In a secret of several lines, such as a key file, a line of at least this length is also hidden by itself."""


def secret_values(specs: Iterable[PipelineSpec], environ: Mapping[str, str], root: Path) -> set[str]:
    """The present values of the declared secrets of these pipelines and of the references in their configs. A secret
    that is not set, or cannot be read, has none."""
    found: set[str] = set()
    for spec in specs:
        found.update(environ.get(name, "") for name in spec.secrets)
        for part in (spec.source, spec.destination):
            for _, value in leaves(part.config) if part is not None else ():
                if isinstance(value, str) and is_reference(value):
                    with suppress(HeadwaterError):
                        found.add(resolve_reference(value, None, environ, root))
    return found - {""}


def mask_of(values: Iterable[str]) -> Callable[[str], str]:
    """Replaces the values in a text, also where they are written as Python or JSON writes them."""
    forms: set[str] = set()
    for value in values:
        lines = [line for line in value.splitlines() if len(line) >= PART_CHARACTERS]
        for each in (value, *lines):
            forms |= {each, repr(each)[1:-1], json.dumps(each)[1:-1]}
    if not forms:
        return lambda text: text
    pattern = re.compile("|".join(re.escape(form) for form in sorted(forms, key=len, reverse=True)))
    return lambda text: pattern.sub(HIDDEN, text)
