"""What operators say of MCP tools, for the guard: whose calls and results mean what."""

from collections.abc import Iterator, Mapping
from typing import Any, Self

from pydantic import Field, model_validator

from guard import NoProgressCall, Thresholds, ToolContract, drop_fields, keep_fields
from guard.canonical import decode_result
from guard.policy import ExemptRule, Normaliser
from guard.tool_contract import fill_defaults, fold_case, id_set, ignore_order, squeeze_blanks
from server.settings_values import Part

Fields = bool | tuple[str, ...]
"""Every text, none, or those in the fields of these names."""


class ToolContractSettings(Part):
    """What of a tool's calls and results matters; fields are named by dotted path."""

    identity: tuple[str, ...] | None = None
    """Arguments that alone make the action; without it all do."""
    fold_case: Fields = False
    """Texts of arguments are compared without regard to upper case."""
    squeeze_blanks: Fields = False
    """Texts of arguments are compared with single blanks between words."""
    ignore_order: Fields = False
    """Lists in arguments are compared as sets."""
    defaults: Mapping[str, Any] = Field(default_factory=dict)
    """What an argument is that is missing."""
    result_fields: tuple[str, ...] = ()
    """Fields of a result that are compared; without it all are."""
    result_ignores: tuple[str, ...] = ()
    """Fields of a result that are not compared, on every level."""
    result_ids: str | None = None
    """A result is compared by the set of values at this path."""
    waits_while: Mapping[str, tuple[str | int | float | bool, ...]] = Field(default_factory=dict)
    """Fields of a result, with the values that say it is a wait."""
    nudge_at: tuple[int, ...] | None = None
    """Rounds in a row after which the model is reminded, for the default rule."""
    stop_at: int | None = None
    """Rounds in a row after which the run ends; 0 is never."""

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if sum((bool(self.result_fields), bool(self.result_ignores), bool(self.result_ids))) > 1:
            raise ValueError("takes one of result_fields, result_ignores and result_ids")
        if (self.nudge_at is None) != (self.stop_at is None):
            raise ValueError("nudge_at and stop_at go together")
        self._thresholds()
        return self

    def contract(self) -> ToolContract:
        """The same for the guard."""
        return ToolContract(
            identity=self.identity,
            arguments=tuple(self._arguments()),
            result=self._result(),
            waits=_waits_while(self.waits_while) if self.waits_while else None,
            thresholds=self._thresholds(),
        )

    def _arguments(self) -> Iterator[Normaliser]:
        if self.defaults:
            yield fill_defaults(self.defaults)
        for fields, normaliser in (
            (self.fold_case, fold_case),
            (self.squeeze_blanks, squeeze_blanks),
            (self.ignore_order, ignore_order),
        ):
            if fields:
                yield normaliser(*(fields if isinstance(fields, tuple) else ()))

    def _result(self) -> Normaliser | None:
        if self.result_ids is not None:
            return id_set(self.result_ids)
        if self.result_fields:
            return keep_fields(*self.result_fields)
        return drop_fields(*self.result_ignores) if self.result_ignores else None

    def _thresholds(self) -> Thresholds | None:
        if self.nudge_at is None:
            return None
        return Thresholds(self.nudge_at, self.stop_at or None)


def _waits_while(told: Mapping[str, tuple[str | int | float | bool, ...]]) -> ExemptRule:
    def waits(call: NoProgressCall) -> bool:
        result = decode_result(call.result_content)
        return isinstance(result, dict) and any(
            result.get(name) in values for name, values in told.items()
        )

    return waits
