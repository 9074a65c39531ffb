"""Pydantic's errors in plain words, with a place and a hint. Values are named only where they cannot be secret: never
inside a connector's `config`."""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin

from headwater.base.errors import HeadwaterError, did_you_mean, word_for
from headwater.manifest.documents import Part, dotted
from headwater.manifest.positions import Path
from headwater.manifest.spec import Spec

if TYPE_CHECKING:
    from pydantic import ValidationError
    from pydantic_core import ErrorDetails

_EXPECTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "list_type": "a list",
}
_TABLE_TYPES = ("dict_type", "model_type", "model_attributes_type")
_BOUNDS = {"greater_than_equal": ("at least", "ge"), "less_than_equal": ("at most", "le")}


def explain(error: ValidationError, part: Part, model: type[Spec]) -> list[HeadwaterError]:
    """One error for every violation, in the order of the model's keys."""
    return [_explain(detail, part, model) for detail in error.errors(include_url=False, include_context=True)]


def _explain(detail: ErrorDetails, part: Part, model: type[Spec]) -> HeadwaterError:
    kind, location = detail["type"], detail["loc"]
    path = _path_in(part.data, location)
    context: Mapping[str, Any] = detail.get("ctx", {})
    if kind == "headwater":
        message, is_key = f": {context['message']}", location[-1] == "[key]"
        return part.wrong(path, message, hint=context["hint"], key=is_key, code=context["code"])
    if kind == "extra_forbidden":
        known = fields_at(model, location[:-1])
        hint = did_you_mean(str(path[-1]), known, "known keys: " + ", ".join(known) if known else "")
        return part.error("HW-M05", path, f"unknown key `{dotted(path)}` in {part.subject}", hint=hint, key=True)
    if kind in ("missing", "union_tag_not_found"):
        if kind == "union_tag_not_found":
            path = (*path, str(context["discriminator"]).strip("'"))
        message = f"`{dotted(path)}` is missing in {part.subject}"
        return part.error("HW-M03", path, message, hint=f"add the key `{path[-1]}`")
    if kind in ("literal_error", "union_tag_invalid"):
        return _not_one_of(kind, context, part, path, detail["input"])
    if kind in _BOUNDS:
        words, key = _BOUNDS[kind]
        return part.wrong(path, f" must be {words} {context[key]}")
    expected = _EXPECTED.get(kind, _table_word(part) if kind in _TABLE_TYPES else "")
    if not expected:
        return part.wrong(path, f" is not valid: {detail['msg']}")
    hint = _type_hint(kind, detail["input"], part)
    return part.wrong(path, f" must be {expected}, not {_found(detail['input'], part)}", hint=hint)


def _not_one_of(kind: str, context: Mapping[str, Any], part: Part, path: Path, value: object) -> HeadwaterError:
    if kind == "union_tag_invalid":
        path = (*path, str(context["discriminator"]).strip("'"))
        value = context["tag"]
        expected = context["expected_tags"]
    else:
        expected = context["expected"].replace(" or ", ", ")
    words = [word.strip(" '") for word in str(expected).split(",")]
    known = ", ".join(f"`{word}`" for word in words[:-1]) + f" or `{words[-1]}`" if len(words) > 1 else f"`{words[0]}`"
    if not isinstance(value, str):
        return part.wrong(path, f" must be {known}, not {_found(value, part)}")
    return part.wrong(path, f" is `{value[:80]}`, it must be {known}", hint=did_you_mean(value, words))


def _path_in(data: object, location: tuple[int | str, ...]) -> Path:
    """The part of pydantic's location that is written in the file: no tags of unions, no short forms."""
    path: list[str | int] = []
    current: object = data
    for index, step in enumerate(location):
        match current, step:
            case dict(), str() if step in current:
                current = current[step]
            case list(), int() if step < len(current):
                current = current[step]
            case dict(), str() if index == len(location) - 1 and step != "[key]" and step != current.get("kind"):
                current = None  # a key that is missing
            case _:
                continue
        path.append(step)
    return tuple(path)


def _found(value: object, part: Part) -> str:
    return _table_word(part) if isinstance(value, dict) else word_for(value)


def _table_word(part: Part) -> str:
    return "an object" if part.document.format == "json" else "a table"


def _type_hint(kind: str, value: object, part: Part) -> str:
    if kind in ("tuple_type", "list_type"):
        if isinstance(value, str):
            return "put it in brackets: `[...]`"
        if isinstance(value, dict) and part.document.format == "toml":
            return "a list of tables is written with double brackets: `[[...]]`"
    if kind == "string_type" and isinstance(value, bool | int | float):
        return "put it in quotes"
    if kind in ("int_type", "float_type", "bool_type") and isinstance(value, str):
        return "write it without quotes"
    return ""


def fields_at(model: type[Spec], location: tuple[int | str, ...]) -> list[str]:
    """The keys that are known at `location`."""
    current: Any = model
    for step in location:
        current = _step(current, step)
    current = _bare(current)
    return [field.alias or name for name, field in current.model_fields.items()] if _is_model(current) else []


def _step(annotation: Any, step: int | str) -> Any:
    annotation = _bare(annotation)
    if _is_model(annotation):
        fields = annotation.model_fields.items()
        return next((field.annotation for name, field in fields if (field.alias or name) == step), None)
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is tuple:
        return arguments[0]
    if origin is dict:
        return arguments[1]
    if origin in (Union, types.UnionType):
        for choice in arguments:
            tag = choice.model_fields.get("kind") if _is_model(choice) else None
            if tag is not None and get_origin(tag.annotation) is Literal and step in get_args(tag.annotation):
                return choice
    return None


def _bare(annotation: Any) -> Any:
    """The annotation without `Annotated` and `| None`."""
    if get_origin(annotation) is Annotated:
        return _bare(get_args(annotation)[0])
    if get_origin(annotation) in (Union, types.UnionType):
        choices = [choice for choice in get_args(annotation) if choice is not type(None)]
        if len(choices) == 1:
            return _bare(choices[0])
    return annotation


def _is_model(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Spec)
