"""Settings of the project from the environment: `HEADWATER_SPARK__MASTER` is `[spark] master`.

Only names with `__` are settings; names such as `HEADWATER_CRASH_AT` are not. A text setting is taken as it is, any
other one is written as JSON: `HEADWATER_SPARK__PACKAGES=["a:b:1"]`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from copy import deepcopy

from pydantic import JsonValue

from headwater.base.errors import HeadwaterError, Position, nearest
from headwater.manifest.positions import Path
from headwater.manifest.spec import ProjectSpec
from headwater.manifest.violations import fields_at

PREFIX = "HEADWATER_"
_JSON_SETTINGS = {
    ("spark", "conf"): '{"spark.ui.enabled": "true"}',
    ("spark", "packages"): '["a:b:1"]',
    ("serve", "port"): "8372",
    ("serve", "hosts"): '["data.example.com"]',
    ("serve", "otlp"): '{"grpc_port": 4317, "http_port": 4318}',
    ("serve", "threads"): "4",
    ("serve", "max_jobs"): "8",
    ("serve", "max_jobs_per_pipeline"): "2",
}
"""The settings that are not text, each with an example."""


def apply_environment(
    data: dict[str, JsonValue], environ: Mapping[str, str]
) -> tuple[dict[str, JsonValue], dict[Path, str], list[HeadwaterError]]:
    """The project's data with the environment's settings on top, the paths that they set, and their errors."""
    known = {
        f"{PREFIX}{section}__{key}".upper(): (section, key)
        for section in ProjectSpec.model_fields
        for key in fields_at(ProjectSpec, (section,))
    }
    taken: dict[Path, str] = {}
    errors: list[HeadwaterError] = []
    for variable in sorted(name for name in environ if name.startswith(PREFIX) and "__" in name):
        path = known.get(variable)
        if path is None:
            meant = nearest(variable, [name.lower() for name in known])
            hint = f"did you mean `{meant.upper()}`?" if meant else "unset it"
            errors.append(_error("HW-M05", variable, "names no setting of a project", hint))
            continue
        value: JsonValue = environ[variable]
        if path in _JSON_SETTINGS:
            try:
                value = json.loads(environ[variable])
            except ValueError:
                errors.append(_error("HW-M03", variable, "is not JSON", f"for example `{_JSON_SETTINGS[path]}`"))
                continue
        if not taken:
            data = deepcopy(data)
        section = data.setdefault(path[0], {})
        if isinstance(section, dict):
            section[path[1]] = value
            taken[path] = variable
    return data, taken, errors


def _error(code: str, variable: str, message: str, hint: str) -> HeadwaterError:
    place = Position(f"environment variable {variable}")
    return HeadwaterError(code, f"`{variable}` {message}", hint=hint, places=(place,))
