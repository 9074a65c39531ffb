"""The manifest's JSON Schema (draft 2020-12), made from the model, for editors and for programs that write manifests.

What it refuses is wrong; a check that needs more than one value may still refuse what it accepts.
"""

from __future__ import annotations

from typing import Any

from pydantic.json_schema import GenerateJsonSchema

from headwater.manifest.spec import PipelineSpec, ProjectSpec, Spec

DIALECT = "https://json-schema.org/draft/2020-12/schema"
PIPELINE_SCHEMA_ID = "https://headwater.dev/schemas/v1/pipeline.json"
PROJECT_SCHEMA_ID = "https://headwater.dev/schemas/v1/project.json"
_ONE_KIND_OF_SOURCE = {"oneOf": [{"required": ["source"]}, {"required": ["sources"]}]}


def pipeline_schema() -> dict[str, object]:
    """The schema of `pipelines/*.json` and of a `pipelines/*.toml` without `[[pipeline]]`."""
    schema = _schema_of(PipelineSpec)
    schema["properties"] = {
        "$schema": {"type": "string", "description": "The address of this schema, for editors."},
        **schema["properties"],
    }
    return {
        "$schema": DIALECT,
        "$id": PIPELINE_SCHEMA_ID,
        **schema,
        **_ONE_KIND_OF_SOURCE,
        "title": "Headwater pipeline",
    }


def project_schema() -> dict[str, object]:
    """The schema of `headwater.toml`, inline pipelines included."""
    schema, pipeline = _schema_of(ProjectSpec), _schema_of(PipelineSpec)
    definitions = {**schema.pop("$defs"), **pipeline.pop("$defs")}
    definitions["PipelineSpec"] = {**pipeline, **_ONE_KIND_OF_SOURCE}
    schema["properties"]["pipeline"] = {"type": "array", "items": {"$ref": "#/$defs/PipelineSpec"}}
    return {
        "$schema": DIALECT,
        "$id": PROJECT_SCHEMA_ID,
        **schema,
        "title": "Headwater project",
        "$defs": dict(sorted(definitions.items())),
    }


def _schema_of(model: type[Spec]) -> dict[str, Any]:
    found = _tidied(model.model_json_schema(by_alias=True, mode="validation", schema_generator=_Generator))
    assert isinstance(found, dict)
    return found


class _Generator(GenerateJsonSchema):
    """Leaves out titles, which only repeat the names."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


def _tidied(value: Any) -> Any:
    """The schema without `null`, which a manifest never holds: a key without a value is left out."""
    if isinstance(value, list):
        return [_tidied(item) for item in value]
    if not isinstance(value, dict):
        return value
    found = {key: _tidied(inner) for key, inner in value.items() if not (key == "default" and inner is None)}
    choices = found.get("anyOf")
    if isinstance(choices, list) and {"type": "null"} in choices:
        kept = [choice for choice in choices if choice != {"type": "null"}]
        del found["anyOf"]
        found = {**kept[0], **found} if len(kept) == 1 else {"anyOf": kept, **found}
    return found
