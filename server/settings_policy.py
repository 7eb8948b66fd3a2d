"""The section `[policy]`: which policy judges which sessions, and the operator's own policies."""

import re
from collections.abc import Mapping
from typing import Any, Final, Self

from pydantic import Field, PrivateAttr, model_validator

from guard.policies import DEFAULT, POLICIES, Policy, define_policy
from guard.rules.budget import Budget
from server.settings_values import Part

KINDS = ("main", "sideline", "subagent", "scheduled", "chat")
"""Kinds of sessions, each with a policy of its own."""


class PriceSettings(Part):
    """Of a million tokens, in the currency of the cost budgets."""

    prompt: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    cached: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """Of prompt tokens that the provider had cached; without it they cost what others do."""
    completion: float = Field(default=0.0, ge=0, allow_inf_nan=False)


class PolicySettings(Part):
    """By kind of session the name of its policy: one that ships, or one defined here."""

    main: str = DEFAULT.name
    sideline: str = DEFAULT.name
    subagent: str = DEFAULT.name
    scheduled: str = DEFAULT.name
    chat: str = DEFAULT.name
    shadow: tuple[str, ...] = ()
    """Policies that see every round too, and only record what they would have said."""
    last_turn: bool = False
    """Whether the model may answer once more, without tools, before a policy ends the run."""
    prices: PriceSettings = PriceSettings()
    define: Mapping[str, Mapping[str, Any]] = Field(default_factory=dict)
    """By name and version: `base`, and by rule a table of its mode and numbers."""
    _policies: dict[str, Policy] = PrivateAttr(default_factory=dict)

    @property
    def policies(self) -> Mapping[str, Policy]:
        """By name, those that ship and those defined here."""
        return self._policies

    @model_validator(mode="after")
    def _names_exist(self) -> Self:
        policies = dict(POLICIES)
        for name, tables in self.define.items():
            policies[name] = _defined(name, tables, policies)
        self._policies.update(policies)
        named = {kind: getattr(self, kind) for kind in KINDS}
        named |= {f"shadow {number}": name for number, name in enumerate(self.shadow, 1)}
        for place, name in named.items():
            if name not in policies:
                raise ValueError(f"{place}: must be one of {', '.join(policies)}")
            if _limits_cost(policies[name]) and self.prices == PriceSettings():
                raise ValueError(f"prices: must be given, since {name} limits the cost")
        if len(set(self.shadow)) < len(self.shadow):
            raise ValueError("shadow: must name each policy once")
        return self


_NAME: Final = re.compile(r"[0-9A-Za-z._-]{1,64}@[0-9A-Za-z._-]{1,16}")


def _defined(name: str, tables: Mapping[str, Any], known: Mapping[str, Policy]) -> Policy:
    if _NAME.fullmatch(name) is None:
        raise ValueError(f"define {name!r}: must be a name with a version, such as ours@1")
    if name in known:
        raise ValueError(f"define {name}: there is a policy of that name; give it another version")
    rules = dict(tables)
    base = rules.pop("base", DEFAULT.name)
    if not isinstance(base, str) or base not in known:
        raise ValueError(f"define {name} base: must be one of {', '.join(known)}")
    try:
        return define_policy(name, known[base], rules)
    except ValueError as error:
        raise ValueError(f"define {name} {error}") from None


def _limits_cost(policy: Policy) -> bool:
    return any(
        isinstance(use.rule, Budget) and use.rule.limits.cost_micros is not None
        for use in policy.uses
    )
