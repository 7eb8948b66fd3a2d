"""JMESPath and regular expressions that clients wrote, read within bounds that they cannot leave.

Either could be used to hold a server up, and neither can be interrupted. So what they may do is
counted instead of timed, which also makes them find the same on every machine. Regular
expressions are RE2's, whose time is bounded by the size of the pattern times that of the text.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import jmespath
import re2  # type: ignore[import-untyped] # it ships no types
from jmespath.exceptions import JMESPathError
from jmespath.visitor import TreeInterpreter

from guard.canonical import MAX_CHARACTERS, decode

PATH_STEPS: Final = 200_000
"""Of all JMESPath expressions in one text: about 0.2 s."""

SEARCH_STEPS: Final = 200_000_000
"""Of all regular expressions in one text, instructions of the pattern times bytes: 2 s for the
worst, some ms for most."""

PATTERN_BYTES: Final = 1024 * 1024
"""Memory of one compiled regular expression; RE2 keeps 128 of them."""

PATTERN_STEPS: Final = 2_000
"""Instructions of one regular expression."""

GATHERED: Final = 16
"""Values that `[a, b]` and `{a: b}` may put side by side; multiplied, where several are used."""

_FUNCTIONS: Final = frozenset(
    "abs avg ceil contains ends_with floor keys length map max max_by merge min min_by not_null "
    "reverse sort sort_by starts_with sum to_array to_number type values".split()
)
"""All but `join` and `to_string`: how large a text they make has no bound."""

_UNFIT: Final = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What an expression may raise on values that it was not written for; JMESPath's own errors are
among them."""


class PatternError(ValueError):
    """An expression cannot be used; the text tells whoever wrote it why."""


class NoValue(Exception):
    """A text cannot be read as an expression asks; `reason` is a stable word without content."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Source:
    """A text that expressions are tried on; what they may do is counted over all of them."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._search_steps = SEARCH_STEPS
        self._interpreter = _Interpreter()
        self._json: object = _UNREAD

    def path(self, expression: str) -> object:
        """What a JMESPath expression finds in the text as JSON; None for nothing.

        Raises:
            NoValue: `too_long`, `not_json`; `mismatch`, where it was written for other values;
                `too_much`, where it takes too long.
        """
        root = self._decoded()
        try:
            return self._interpreter.visit(compile_path(expression), root)
        except RecursionError:
            raise NoValue("too_much") from None
        except _UNFIT:
            raise NoValue("mismatch") from None

    def search(self, expression: str) -> str | None:
        """What a regular expression finds first: its first group, or all where it has none.

        Other threads run meanwhile.

        Raises:
            NoValue: `too_long`, or `too_much`, where it could take too long.
        """
        if len(self._text) > MAX_CHARACTERS:
            raise NoValue("too_long")
        pattern = compile_regex(expression)
        encoded = self._text.encode("utf-8", "replace")
        self._search_steps -= pattern.programsize * len(encoded)
        if self._search_steps < 0:
            raise NoValue("too_much")
        match = pattern.search(encoded)
        found: bytes | None = None if match is None else match[1 if pattern.groups else 0]
        return None if found is None else found.decode("utf-8", "replace")

    def _decoded(self) -> object:
        if len(self._text) > MAX_CHARACTERS:
            raise NoValue("too_long")
        if self._json is _UNREAD:
            try:
                self._json = decode(self._text)
            except ValueError:
                self._json = _NO_JSON
        if self._json is _NO_JSON:
            raise NoValue("not_json")
        return self._json


_MAKERS: Final = frozenset(
    "filter_projection flatten function_expression multi_select_dict multi_select_list projection "
    "slice value_projection".split()
)
"""Kinds of nodes that make a list or an object; all others point into what is there."""

_UNREAD: Final = object()
_NO_JSON: Final = object()


@lru_cache(maxsize=512)
def compile_path(expression: str) -> Mapping[str, Any]:
    """The tree of a JMESPath expression.

    Raises:
        PatternError: It is none, or could be used to hold the server up.
    """
    try:
        tree: Mapping[str, Any] = jmespath.compile(expression).parsed
        gathered = _gathered(tree)
    except RecursionError:
        raise PatternError("jmespath is nested too deeply") from None
    except JMESPathError as error:
        raise PatternError(f"jmespath is not valid: {_first_words(error)}") from None
    if gathered > GATHERED:
        raise PatternError(f"jmespath puts more than {GATHERED} values side by side")
    return tree


def compile_regex(expression: str) -> Any:
    """The compiled form of a regular expression; compiling one again costs little.

    Raises:
        PatternError: It is none, or is too large.
    """
    try:
        pattern = re2.compile(expression, _OPTIONS)
    except re2.error as error:
        raise PatternError(f"regex is not valid: {_words(error)}") from None
    except UnicodeEncodeError:
        raise PatternError("regex is not valid: it is no text") from None
    if pattern.programsize > PATTERN_STEPS:
        raise PatternError("regex is too large; count less, or take smaller classes")
    return pattern


def _options() -> Any:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = PATTERN_BYTES
    return options


_OPTIONS: Final = _options()


def _first_words(error: JMESPathError) -> str:
    """What is wrong, without the expression and the arrow below it."""
    line = str(error).splitlines()[0]
    return line.removeprefix("Invalid jmespath expression: ").removesuffix(", for expression:")


def _words(error: Exception) -> str:
    told = error.args[0] if error.args else b""
    return told.decode("utf-8", "replace") if isinstance(told, bytes) else str(told)


def _gathered(node: Mapping[str, Any]) -> int:
    """How many values the expression puts side by side at most.

    Raises:
        PatternError: It uses a function that it may not.
    """
    if node["type"] == "function_expression" and node["value"] not in _FUNCTIONS:
        known = ", ".join(sorted(_FUNCTIONS))
        raise PatternError(f"jmespath may not use {node['value']}; there are: {known}")
    gathered = 1
    for child in node["children"]:
        if isinstance(child, Mapping):  # a slice has numbers
            gathered = min(gathered * _gathered(child), GATHERED + 1)
    if node["type"] in ("multi_select_list", "multi_select_dict"):
        gathered *= len(node["children"])
    return gathered


class _Interpreter(TreeInterpreter):
    """JMESPath's own interpreter, with its steps counted."""

    def __init__(self) -> None:
        super().__init__()
        self._steps = PATH_STEPS

    def visit(self, node: Any, *args: Any, **kwargs: Any) -> Any:
        """What *node* finds; a list that it makes costs what it holds."""
        found = super().visit(node, *args, **kwargs)
        is_made = node["type"] in _MAKERS and isinstance(found, list | dict)
        self._steps -= 1 + (len(found) if is_made else 0)
        if self._steps < 0:
            raise NoValue("too_much")
        return found
