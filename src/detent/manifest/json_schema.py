"""The JSON Schema (2020-12) of both versions of the manifest, built from the field table.

The schema and the checker read the same shapes, so they agree on each single value.  A schema cannot express
schedules, zones, unique names, min ≤ max or defaults.  So the checker may refuse a manifest that fits the
schema, but it accepts no manifest that does not fit.
"""

from typing import Any

from detent.manifest import shapes
from detent.manifest.fields import HOOK_MAPPING, JOB, LIMITS, MANIFEST
from detent.manifest.rules import exclusive_fields

DIALECT = "https://json-schema.org/draft/2020-12/schema"
HOLDS_VARIABLE = {"type": "string", "pattern": r"\$\{"}  # only the checker sees its value

Schema = dict[str, Any]


def schema(version: int) -> Schema:
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
        # Without `defaults`, each job must be complete.
        "if": {"not": {"required": ["defaults"]}},
        "then": complete,
        "$defs": {"job": _job(version), "complete": _complete(version)},
    }


def _job(version: int) -> Schema:
    """Return the schema of a job that may be incomplete, but has no two exclusive fields."""
    job = _record(JOB[version], version)
    pairs = [
        {"required": [first, second]}
        for group in exclusive_fields(version)
        for i, first in enumerate(group)
        for second in group[i + 1 :]
    ]
    return {**job, "not": {"anyOf": pairs}} if pairs else job


def _complete(version: int) -> Schema:
    times, works = exclusive_fields(version)
    whens = [*times, "after"] if version > 1 else times
    choices = [{"anyOf": [{"required": [name]} for name in group]} for group in (whens, works)]
    inner = {
        field.name: {"required": [*field.shape.required]}
        for field in JOB[version].fields
        if isinstance(field.shape, shapes.Record) and field.shape.required
    }
    return {"allOf": choices, "properties": inner}


def _record(record: shapes.Record, version: int) -> Schema:
    properties = {}
    for field in record.fields:
        about = {"description": field.about} if field.about else {}
        default = {} if field.default is None or field.default == {} else {"default": field.default}
        properties[field.name] = {**_schema(field.shape, version), **about, **default}
    made: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    # Defaults may supply the required fields of a part of a job: `_complete` checks them.
    is_whole = record in (MANIFEST[version], JOB[version])
    top = [name for name in record.required if is_whole]
    if record is HOOK_MAPPING:
        made["oneOf"] = [{"required": ["url"]}, {"required": ["to"]}]
    return {**made, "required": top} if top else made


def _schema(shape: shapes.Shape, version: int) -> Schema:
    match shape:
        case shapes.Integer(low, high):
            return {"type": "integer", "minimum": low, "maximum": high}
        case shapes.Number(low, high):
            return {"type": "number", "minimum": low, "maximum": high}
        case shapes.Boolean():
            return {"type": "boolean"}
        case shapes.Choice(words):
            return _or_variable({"enum": [*words]}, version)
        case shapes.Text():
            return _text(shape, version)
        case shapes.Instant():
            return {"type": "string"}
        case shapes.Arguments():
            return {"type": ["array", "object"]}
        case shapes.Checked():
            return _schema(shape.shape, version)
        case shapes.Record():
            return _record(shape, version)
        case shapes.ListOf():
            item = _schema(shape.item, version)
            items = {"type": "array", "items": item, "minItems": shape.low, "maxItems": shape.high}
            return {"anyOf": [item, items]} if shape.accepts_single else items
        case shapes.MapOf():
            return {
                "type": "object",
                "additionalProperties": _schema(shape.value, version),
                "propertyNames": _text(shape.name, version),
                "maxProperties": shape.high,
            }
        case shapes.Either():
            forms = (shape.text, shape.other, shape.mapping)
            return {"anyOf": [_schema(one, version) for one in forms if one is not None]}
    raise AssertionError(f"{type(shape).__name__} has no schema")


def _text(shape: shapes.Text, version: int) -> Schema:
    made: Schema = {"type": "string", "maxLength": shape.high}
    if shape.low:
        made["minLength"] = shape.low
    if not shape.pattern:
        return made
    made["pattern"] = f"^(?:{shape.pattern})$"
    return _or_variable(made, version) if shape.expands else made


def _or_variable(made: Schema, version: int) -> Schema:
    return made if version == 1 else {"anyOf": [made, HOLDS_VARIABLE]}
