"""Secrets are named, never written: `env:NAME` and `file:path` are references to them.

This module finds secrets that are written out, resolves references at the last moment before use, and makes a mask that
hides the values in a text before it is stored. No message ever holds a value.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path as FilePath

from headwater.base.errors import HeadwaterError, nearest
from headwater.manifest.documents import Part
from headwater.manifest.positions import Path
from headwater.manifest.spec import PipelineSpec, ProjectSpec
from headwater.manifest.vocabulary import SECRET_NAME

_SECRET_KEY = re.compile(
    r"(^|_)(password|passwd|passphrase|pwd|secret|token|api_?key|access_key|secret_key|private_key|account_key"
    r"|credentials?|authorization)$"
)
_INNOCENT_KEY = re.compile(r"(^|_)(page|next|continuation|cursor|sync|start|end)_token$")
_WRITTEN_OUT = re.compile(
    r"[A-Za-z][A-Za-z0-9+.-]*://[^/\s:@?#]*:[^/\s@]+@"  # scheme://user:password@host
    r"|(^|[\s?&;])(?i:password|passwd|pwd|sslpassword)\s*=\s*[^\s&;]"  # of a connection string or a query
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----"
)
HIDDEN = "***"
PART_CHARACTERS = 8
"""In a secret of several lines, such as a key file, a line of at least this length is also hidden by itself."""


def leaves(value: object, path: Path = ()) -> Iterator[tuple[Path, object]]:
    """The values in tables and lists that are neither, each with its path, in order."""
    match value:
        case Mapping():
            for key, inner in value.items():
                yield from leaves(inner, (*path, key))
        case list() | tuple():
            for index, inner in enumerate(value):
                yield from leaves(inner, (*path, index))
        case _:
            yield path, value


def is_reference(text: str) -> bool:
    """True for `env:NAME` and `file:path`; `file://...` is an address, not a reference."""
    if text.startswith("env:"):
        return SECRET_NAME.fullmatch(text[4:]) is not None
    return text.startswith("file:") and len(text) > 5 and not text.startswith("file://")


def resolve_reference(text: str, secrets: Collection[str] | None, environ: Mapping[str, str], root: FilePath) -> str:
    """The value of a reference; any other text as it is. `secrets` are the names that may be read (None: any); a path
    is relative to `root`, and the last line break of the file is not part of its secret."""
    if not is_reference(text):
        return text
    kind, _, name = text.partition(":")
    if kind == "env":
        if secrets is not None and name not in secrets:
            raise HeadwaterError("HW-M08", f"the secret `{name}` is not listed", hint=_list_it(name, secrets))
        value = environ.get(name)
        if value is None:
            hint = f"set it before the command: `export {name}=...`"
            raise HeadwaterError("HW-M08", f"the environment variable `{name}` is not set", hint=hint)
        return value
    try:
        return (root / name).read_text(encoding="utf-8").removesuffix("\n").removesuffix("\r")
    except (OSError, UnicodeDecodeError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or "it is not UTF-8 text"
        hint = "a path after `file:` is relative to the project's directory"
        raise HeadwaterError("HW-M08", f"cannot read the secret file `{name}`: {reason}", hint=hint) from error


def pipeline_secrets(part: Part, spec: PipelineSpec, listed: Collection[str] | None) -> Iterator[HeadwaterError]:
    """Secrets that are written out, and references to names that are not `listed` (None: any may be)."""
    for name, config in (("source", spec.source), ("destination", spec.destination)):
        if config is not None:
            yield from _walk(part, config.config, (name, "config"), listed)


def project_secrets(part: Part, spec: ProjectSpec) -> Iterator[HeadwaterError]:
    """Secrets that are written into the project's own settings."""
    yield from _walk(part, spec.spark.conf, ("spark", "conf"), None)
    yield from _walk(part, {"catalog": spec.context.catalog}, ("context",), None)
    yield from _walk(part, {"remote": spec.spark.remote}, ("spark",), None)
    serve = {"token": spec.serve.token, "webhook_secret": spec.serve.webhook_secret}
    yield from _walk(part, serve, ("serve",), None)
    if isinstance(spec.sync, dict):
        yield from _walk(part, spec.sync, ("sync",), None)
    if spec.encryption is not None and not is_reference(spec.encryption.key_source):
        yield _written_out(part, ("encryption", "key_source"))


def secret_values(specs: Iterable[PipelineSpec], environ: Mapping[str, str], root: FilePath) -> set[str]:
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


def _walk(
    part: Part, config: Mapping[str, object], base: Path, secrets: Collection[str] | None
) -> Iterator[HeadwaterError]:
    for path, value in leaves(config, base):
        is_secret = _is_secret_key(next(step for step in reversed(path) if isinstance(step, str)))
        match value:
            case str() if value.startswith("env:"):
                yield from _environment_reference(part, path, value[4:], secrets)
            case str():
                if not is_reference(value) and (is_secret or _WRITTEN_OUT.search(value)):
                    yield _written_out(part, path)
            case int() | float() if is_secret and not isinstance(value, bool):
                yield _written_out(part, path)


def _environment_reference(
    part: Part, path: Path, name: str, secrets: Collection[str] | None
) -> Iterator[HeadwaterError]:
    if SECRET_NAME.fullmatch(name) is None:
        message = ": `env:` is not followed by the name of a variable"
        yield part.wrong(path, message, hint="write it as `env:GITHUB_TOKEN`", code="HW-M08")
    elif secrets is not None and name not in secrets:
        message = f" reads the secret `{name}`, which the pipeline does not list"
        yield part.wrong(path, message, hint=_list_it(name, secrets), code="HW-M08")


def _list_it(name: str, secrets: Collection[str]) -> str:
    meant = nearest(name, {secret.lower() for secret in secrets})
    listed = next((secret for secret in secrets if secret.lower() == meant), None)
    return f"did you mean `{listed}`?" if listed else f'add it to the pipeline: `secrets = ["{name}"]`'


def _written_out(part: Part, path: Path) -> HeadwaterError:
    name = re.sub(r"[^A-Z0-9]+", "_", str(path[-1]).upper()).strip("_")
    name = name if name and not name[0].isdigit() else "PASSWORD"
    hint = f"write a reference: `env:{name}` or `file:path`"
    if path[:2] in (("source", "config"), ("destination", "config")):
        hint += f', and list the name: `secrets = ["{name}"]`'
    if path[-1] in ("url", "uri", "dsn", "catalog", "endpoint", "connection"):
        hint = "leave the password out of the address, or put the whole address into a variable: `env:NAME`"
    return part.wrong(path, " holds a secret", hint=hint, code="HW-M08")


def _is_secret_key(key: str) -> bool:
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", key).lower()
    words = re.sub(r"[^a-z0-9]+", "_", words)
    return _SECRET_KEY.search(words) is not None and _INNOCENT_KEY.search(words) is None
