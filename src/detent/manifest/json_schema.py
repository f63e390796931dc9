"""The JSON Schema (2020-12) of both versions of the manifest, made from the field table.

What concerns one value alone is here and in the checker alike, as both read the same shapes.  What a
schema cannot say (schedules, zones, unique names, min ≤ max, defaults that complete a job) only the
checker knows: a manifest that fits the schema may still be refused, never the other way round.
"""

from typing import Any

from detent.manifest.fields import JOB, LIMITS, MANIFEST, WEBHOOK
from detent.manifest.rules import exclusive_fields
from detent.manifest.shapes import (
    Arguments,
    Boolean,
    Checked,
    Choice,
    Either,
    Instant,
    Integer,
    ListOf,
    MapOf,
    Number,
    Record,
    Shape,
    Text,
)

DIALECT = "https://json-schema.org/draft/2020-12/schema"
HOLDS_VARIABLE = {"type": "string", "pattern": r"\$\{"}  # what it will be, only the checker sees

Schema = dict[str, Any]


def schema(version: int) -> Schema:
    """The schema of one version of the manifest."""
    made = _record(MANIFEST[version], version)
    high, job = LIMITS[version].jobs, {"$ref": "#/$defs/job"}
    jobs = {"type": "array", "minItems": 1, "maxItems": high, "items": job}
    made["properties"]["version"] = {"const": version}
    made["properties"]["jobs"] = jobs
    complete = {"properties": {"jobs": {"items": {"$ref": "#/$defs/complete"}}}}
    return {
        "$schema": DIALECT,
        "title": f"detent manifest, version {version}",
        **made,
        # A job is complete by itself, unless `defaults` may complete it.
        "if": {"not": {"required": ["defaults"]}},
        "then": complete,
        "$defs": {"job": _job(version), "complete": _complete(version)},
    }


def _job(version: int) -> Schema:
    """A job, which defaults may complete: never two of a kind."""
    job = _record(JOB[version], version)
    twos = [
        {"required": [first, second]}
        for group in exclusive_fields(version)
        for i, first in enumerate(group)
        for second in group[i + 1 :]
    ]
    return {**job, "not": {"anyOf": twos}} if twos else job


def _complete(version: int) -> Schema:
    times, works = exclusive_fields(version)
    whens = [*times, "after"] if version > 1 else times
    choices = [{"anyOf": [{"required": [name]} for name in group]} for group in (whens, works)]
    inner = {
        field.name: {"required": [*field.shape.required]}
        for field in JOB[version].fields
        if isinstance(field.shape, Record) and field.shape.required
    }
    return {"allOf": choices, "properties": inner}


def _record(record: Record, version: int) -> Schema:
    properties = {}
    for field in record.fields:
        about = {"description": field.about} if field.about else {}
        default = {} if field.default is None or field.default == {} else {"default": field.default}
        properties[field.name] = {**_schema(field.shape, version), **about, **default}
    made: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    # What a part of a job requires, its defaults may give: `_complete` asks for it.
    is_whole = record in (MANIFEST[version], JOB[version], WEBHOOK)
    top = [name for name in record.required if is_whole]
    return {**made, "required": top} if top else made


def _schema(shape: Shape, version: int) -> Schema:
    match shape:
        case Integer(low, high):
            return {"type": "integer", "minimum": low, "maximum": high}
        case Number(low, high):
            return {"type": "number", "minimum": low, "maximum": high}
        case Boolean():
            return {"type": "boolean"}
        case Choice(words):
            return _or_variable({"enum": [*words]}, version)
        case Text():
            return _text(shape, version)
        case Instant():
            return {"type": "string"}
        case Arguments():
            return {"type": ["array", "object"]}
        case Checked():
            return _schema(shape.shape, version)
        case Record():
            return _record(shape, version)
    return _composed(shape, version)


def _composed(shape: Shape, version: int) -> Schema:
    match shape:
        case ListOf():
            item = _schema(shape.item, version)
            items = {"type": "array", "items": item, "minItems": shape.low, "maxItems": shape.high}
            return {"anyOf": [item, items]} if shape.accepts_single else items
        case MapOf():
            return {
                "type": "object",
                "additionalProperties": _schema(shape.value, version),
                "propertyNames": _text(shape.name, version),
                "maxProperties": shape.high,
            }
        case Either():
            shapes = (shape.text, shape.other, shape.mapping)
            return {"anyOf": [_schema(one, version) for one in shapes if one is not None]}
    raise AssertionError(f"{type(shape).__name__} has no schema")


def _text(shape: Text, version: int) -> Schema:
    made: Schema = {"type": "string", "maxLength": shape.high}
    if shape.low:
        made["minLength"] = shape.low
    if not shape.pattern:
        return made
    made["pattern"] = f"^(?:{shape.pattern})$"
    return _or_variable(made, version) if shape.expands else made


def _or_variable(made: Schema, version: int) -> Schema:
    return made if version == 1 else {"anyOf": [made, HOLDS_VARIABLE]}
