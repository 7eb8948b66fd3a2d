"""The arguments of a call: from the model's text to a checked, typed value, and the schema back."""

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from server.errors import ToolError


class Arguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of a tool's arguments; its fields are the schema, so the two cannot differ."""


A = TypeVar("A", bound=Arguments)


def schema_of(form: type[Arguments]) -> Mapping[str, object]:
    """The JSON Schema of *form*, self-contained, as the model is shown it."""
    _, components = msgspec.json.schema_components([form])
    schema = dict(components[form.__name__])
    del schema["title"]  # the class's name means nothing to a model
    return schema


def parse_arguments(text: str) -> Mapping[str, object]:
    """The object in *text*; nothing at all counts as an empty one.

    Raises:
        ToolError: `bad_arguments`, when it is not JSON or not an object.
    """
    if not text.strip():
        return {}
    try:
        return msgspec.json.decode(text, type=dict[str, object])
    except (msgspec.DecodeError, RecursionError, UnicodeEncodeError) as error:
        raise _bad(f"the arguments must be one JSON object: {error}") from None


def decode(arguments: Mapping[str, object], form: type[A]) -> A:
    """*arguments* as a *form*; a null counts as left out, since models write both.

    Raises:
        ToolError: `bad_arguments`, saying what is wrong and what is right.
    """
    given = {name: value for name, value in arguments.items() if value is not None}
    try:
        return msgspec.convert(given, form)
    except msgspec.ValidationError as error:
        raise _bad(f"{error}. Right is: {_outline(form)}") from None


def _outline(form: type[Arguments]) -> str:
    """`{path: string, offset?: integer}`: the form in one line."""
    schema = schema_of(form)
    required = schema.get("required", ())
    properties = schema["properties"]
    assert isinstance(required, list | tuple)
    assert isinstance(properties, Mapping)  # what `schema_components` makes of a Struct
    marks = {name: "" if name in required else "?" for name in properties}
    fields = (f"{name}{marks[name]}: {_type(field)}" for name, field in properties.items())
    return "{" + ", ".join(fields) + "}"


def _type(field: Mapping[str, object]) -> str:
    choices = field.get("enum")
    if isinstance(choices, list):
        return "|".join(str(choice) for choice in choices)
    return str(field.get("type", "any"))


def _bad(message: str) -> ToolError:
    return ToolError("bad_arguments", message)
