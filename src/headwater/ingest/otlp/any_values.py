"""Values of OTLP as values of JSON. A value that was not sent is None, and is left out of a row. A time is in epoch
nanoseconds, exact; 0 means that it is not known."""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Iterable

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, InstrumentationScope, KeyValue
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
Row = dict[str, Json]


def plain(value: AnyValue) -> Json:
    """Integers stay exact, bytes are base64. JSON has no non-finite numbers: they become texts, as in protobuf's JSON
    form: `NaN`, `Infinity` and `-Infinity`."""
    match value.WhichOneof("value"):
        case "string_value" | "int_value" | "bool_value" as kind:
            found: str | int | bool = getattr(value, kind)
            return found
        case "double_value":
            return number(value.double_value)
        case "array_value":
            return [plain(each) for each in value.array_value.values]
        case "kvlist_value":
            return pairs(value.kvlist_value.values)
        case "bytes_value":
            return b64encode(value.bytes_value).decode()
        case _:  # no value, or a reference to a list that these requests do not have
            return None


def pairs(found: Iterable[KeyValue]) -> Row:
    """If a key appears twice, the last value counts, as in JSON."""
    return {pair.key: plain(pair.value) for pair in found}


def attributes(found: Iterable[KeyValue]) -> Row | None:
    return pairs(found) or None


def present(row: Row) -> Row:
    """The row without values that were not sent."""
    return {name: value for name, value in row.items() if value is not None}


def number(value: float) -> float | str:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def identifier(raw: bytes) -> str | None:
    """In lower-case hex digits. An id of zeros is none."""
    return raw.hex() if raw.strip(b"\0") else None


def word(number_: int, words: tuple[str | None, ...]) -> str | None:
    """The word for a number of an enumeration; the number itself if the list does not have it."""
    return words[number_] if 0 <= number_ < len(words) else str(number_)


def sender(resource: Resource, schema_url: str, scope: InstrumentationScope, scope_schema_url: str) -> Row:
    """The columns that all rows of a scope share."""
    known = attributes(resource.attributes)
    entities: list[Json] = [
        {
            "type": entity.type,
            "id_keys": list(entity.id_keys),
            "description_keys": list(entity.description_keys),
            "schema_url": entity.schema_url,
        }
        for entity in resource.entity_refs
    ]
    return {
        "service_name": (known or {}).get("service.name"),
        "resource_attributes": known,
        "resource_dropped_attributes_count": resource.dropped_attributes_count,
        "resource_entity_refs": entities or None,
        "resource_schema_url": schema_url or None,
        "scope_name": scope.name or None,
        "scope_version": scope.version or None,
        "scope_attributes": attributes(scope.attributes),
        "scope_dropped_attributes_count": scope.dropped_attributes_count,
        "scope_schema_url": scope_schema_url or None,
    }
