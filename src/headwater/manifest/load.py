"""From a directory to a checked project: reads every file, and reports all errors of all files together.

Without errors this costs `tomllib`, `json` and one validation per pipeline: a file is scanned for positions only if it
has an error.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path as FilePath

from pydantic import JsonValue, ValidationError

from headwater.base.errors import HeadwaterError, did_you_mean, raise_all
from headwater.base.printable import printable, quoted
from headwater.manifest.checks import CheckConfig, LoadedPipeline, check_pipeline, check_project, declare, name_warnings
from headwater.manifest.documents import (
    PROJECT_FILE,
    Document,
    Part,
    Unreadable,
    list_files,
    read_document,
)
from headwater.manifest.environment import apply_environment
from headwater.manifest.positions import Path
from headwater.manifest.references import project_secrets
from headwater.manifest.spec import ProjectSpec
from headwater.manifest.support import Unsupported, unsupported_in_pipeline, unsupported_in_project
from headwater.manifest.violations import explain
from headwater.manifest.vocabulary import is_loopback, legal_name


@dataclass(frozen=True)
class Project:
    """A project whose manifest has no error. `unsupported` are the parts that do nothing yet; `warnings` are
    sentences for people."""

    root: FilePath
    spec: ProjectSpec
    name: str
    pipelines: tuple[LoadedPipeline, ...]
    unsupported: tuple[Unsupported, ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def store_root(self) -> FilePath:
        """The directory of the context store."""
        return self.root / self.spec.context.path / self.name

    def pipeline(self, pipeline_id: str) -> LoadedPipeline:
        """The pipeline of that id. Raises HW-M11 with the nearest one."""
        for pipeline in self.pipelines:
            if pipeline.spec.id == pipeline_id:
                return pipeline
        raise no_such_pipeline(pipeline_id, [pipeline.spec.id for pipeline in self.pipelines])

    def refuse_unsupported(self, pipeline_ids: Iterable[str]) -> None:
        """Raise HW-M09 for every part of the project itself or of one of these pipelines that does nothing yet."""
        asked = {None, *pipeline_ids}
        raise_all([part.error() for part in self.unsupported if part.pipeline in asked])


@dataclass(frozen=True, eq=False)
class ManifestFiles:
    """The files of a project as data: what could be read, and the errors of the rest. `parts` are the pipelines in the
    order of the files; `unread` are the names of files that could not be read."""

    project: Part | None
    parts: tuple[Part, ...]
    errors: tuple[HeadwaterError, ...]
    unread: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()


def find_project(start: FilePath) -> FilePath:
    """The nearest directory with a `headwater.toml`, from `start` upwards. Raises HW-M01."""
    directory = start.resolve()
    for candidate in (directory, *directory.parents):
        if (candidate / PROJECT_FILE).is_file():
            return candidate
    raise HeadwaterError(
        "HW-M01",
        f"no `{PROJECT_FILE}` in `{start}` or any directory above it",
        hint="run `headwater init` to make a project here, or name one with `--project DIR`",
    )


def load_project(
    start: FilePath,
    *,
    connectors: Collection[str],
    check_config: CheckConfig | None = None,
    environ: Mapping[str, str] = os.environ,
    overlay: Mapping[str, str | None] | None = None,
) -> Project:
    """The project that `start` is in, checked as a whole. Raises all errors of all files together.

    `connectors` are the names that exist; `check_config` checks a connector's config. `overlay` holds texts that
    replace files (None: as if deleted), so that an edit can be checked before it is written."""
    root = find_project(start)
    reading = read_project(root, overlay or {})
    errors = list(reading.errors)
    spec, project_part = _project_spec(root, reading.project, environ, errors)
    declared: list[LoadedPipeline] = []
    for part in reading.parts:
        pipeline, wrong = declare(part)
        errors += wrong
        if pipeline is not None:
            errors += check_pipeline(pipeline, connectors, check_config)
            declared.append(pipeline)
    errors += check_project(reading.parts, reading.unread)
    if errors or spec is None or project_part is None:
        raise_all(_in_order(errors))
    assert spec is not None and project_part is not None, "no project without an error"
    warnings = [warning for pipeline in declared for warning in name_warnings(pipeline)]
    warnings += [f"{printable(file)}: not read; manifests are `.toml` or `.json`" for file in reading.ignored]
    unsupported = list(unsupported_in_project(project_part, spec))
    for pipeline in declared:
        unsupported += unsupported_in_pipeline(pipeline.part, pipeline.spec, connectors)
    return Project(
        root=root,
        spec=spec,
        name=spec.project.name or legal_name(root.name),
        pipelines=tuple(declared),
        unsupported=tuple(unsupported),
        warnings=tuple(warnings),
    )


def read_project(root: FilePath, overlay: Mapping[str, str | None]) -> ManifestFiles:
    """Every manifest file of the project as data; errors in a file are returned, not raised."""
    files, ignored = list_files(root, overlay)
    project: Part | None = None
    parts: list[Part] = []
    errors: list[HeadwaterError] = []
    unread: list[str] = []
    for file in files:
        try:
            document = read_document(root, file, overlay)
            if file == PROJECT_FILE:
                own = {key: value for key, value in document.data.items() if key != "pipeline"}
                project = Part(document, (), own, f"`{PROJECT_FILE}`")
            parts += _pipeline_parts(document)
        except Unreadable as error:
            errors += error.errors
            unread.append(FilePath(file).stem)
    return ManifestFiles(project, tuple(parts), tuple(errors), tuple(unread), tuple(ignored))


def no_such_pipeline(pipeline_id: str, known: Collection[str]) -> HeadwaterError:
    hint = did_you_mean(pipeline_id, known, "`headwater pipeline list` shows what there is")
    return HeadwaterError("HW-M11", f"no pipeline `{pipeline_id[:80]}` in the manifest", hint=hint)


def _project_spec(
    root: FilePath, own: Part | None, environ: Mapping[str, str], errors: list[HeadwaterError]
) -> tuple[ProjectSpec | None, Part | None]:
    """The project's own settings, with the environment on top; their errors are added to `errors`."""
    if own is None:
        return None, None
    data, overrides, wrong = apply_environment(own.data, environ)
    errors += wrong
    part = replace(own, data=data, overrides=overrides)
    try:
        spec = ProjectSpec.model_validate(data)
    except ValidationError as error:
        errors += explain(error, part, ProjectSpec)
        return None, part
    errors += project_secrets(part, spec)
    catalog = spec.context.catalog
    if catalog != "sqlite" and not catalog.startswith(("postgresql://", "postgres://", "env:", "file:")):
        hint = "write `sqlite`, `postgresql://user@host/database` or a reference such as `env:HEADWATER_CATALOG`"
        message = " is neither `sqlite` nor a PostgreSQL address"
        errors.append(part.wrong(("context", "catalog"), message, hint=hint))
    drop = spec.project.drop
    if "://" in drop or drop.startswith("~"):
        message, hint = f" is `{drop}`, which is no folder", "write the path of a folder"
        errors.append(part.wrong(("project", "drop"), message, hint=hint))
    elif root.resolve().is_relative_to((root / drop).resolve()):  # files that cannot be read would be moved away
        message, hint = f" is `{drop}`, where the project itself lies", "name another folder"
        errors.append(part.wrong(("project", "drop"), message, hint=hint))
    if not is_loopback(spec.serve.host) and spec.serve.token is None:
        message = f" is `{spec.serve.host}`, which others can reach, and there is no token"
        hint = 'add `token = "env:HEADWATER_TOKEN"` to `[serve]`'
        errors.append(part.wrong(("serve", "host"), message, hint=hint, code="HW-M08"))
    return spec, part


def _pipeline_parts(document: Document) -> list[Part]:
    """The pipelines of one file: `[[pipeline]]` tables, or the file itself. Raises `Unreadable`."""
    whole = Part(document, (), document.data, quoted(document.file))
    if "pipeline" in document.data:
        return _listed_pipelines(whole)
    if document.file == PROJECT_FILE:
        return []
    if not document.data:
        hint = "write a pipeline into it, or remove it"
        raise Unreadable([whole.error("HW-M02", (), f"{quoted(document.file)} is empty", hint=hint)])
    return [Part(document, (), document.data, _subject(document.data, document))]


def _listed_pipelines(whole: Part) -> list[Part]:
    document, listed = whole.document, whole.data["pipeline"]
    hint = "write each one under `[[pipeline]]`"
    if not isinstance(listed, list):
        raise Unreadable([whole.error("HW-M03", ("pipeline",), "`pipeline` must be a list of tables", hint=hint)])
    if document.file != PROJECT_FILE:
        others = [key for key in document.data if key != "pipeline"]
        if others:
            message = f"{quoted(document.file)} has keys beside `[[pipeline]]`: `{others[0]}`"
            hint = "put them under `[[pipeline]]`"
            raise Unreadable([whole.error("HW-M05", (others[0],), message, hint=hint, key=True)])
        if len(listed) != 1:
            message = f"{quoted(document.file)} holds {len(listed)} pipelines"
            hint = f"one pipeline a file; several may be in `{PROJECT_FILE}`"
            raise Unreadable([whole.error("HW-M03", ("pipeline", 1), message, hint=hint)])
    places: list[tuple[Path, JsonValue]] = [(("pipeline", index), data) for index, data in enumerate(listed)]
    wrong = [place for place, data in places if not isinstance(data, dict)]
    if wrong:
        raise Unreadable([whole.error("HW-M03", at, "a `pipeline` must be a table", hint=hint) for at in wrong])
    return [Part(document, at, data, _subject(data, document)) for at, data in places if isinstance(data, dict)]


def _subject(data: Mapping[str, object], document: Document) -> str:
    found = data.get("id")
    if isinstance(found, str):
        return f"pipeline `{found[:80]}`"
    return "the pipeline" if document.file == PROJECT_FILE else quoted(document.file)


def _in_order(errors: Iterable[HeadwaterError]) -> list[HeadwaterError]:
    """By file, `headwater.toml` first, then by line."""

    def rank(error: HeadwaterError) -> tuple[bool, str, int, int]:
        place = error.places[0]
        return place.file != PROJECT_FILE, place.file, place.line, place.column

    return sorted(errors, key=rank)
