"""Which policy judges a run, by the kind of its session and the contract that it has."""

from collections.abc import Mapping
from dataclasses import dataclass

from guard.policies import Policy, Use, with_contract, with_rules
from guard.rules.hand_off import HandOff
from server.agent.judge import NO_PRICES, Prices, RunPolicy
from server.contract import ProgressContract
from server.settings_policy import KINDS, PolicySettings, PriceSettings


@dataclass(frozen=True, slots=True)
class Policies:
    """The policies that the settings name."""

    by_kind: Mapping[str, Policy]
    """By kind of session."""
    shadows: tuple[Policy, ...] = ()
    has_last_turn: bool = False
    prices: Prices = NO_PRICES

    def of(self, kind: str, contract: ProgressContract | None) -> RunPolicy:
        """How a run of a session of this *kind* is judged."""
        return RunPolicy(
            active=in_force(self.by_kind[kind], contract),
            shadows=self.shadows,
            has_last_turn=self.has_last_turn,
            prices=self.prices,
            contract=contract.key if contract is not None else "",
        )


def in_force(policy: Policy, contract: ProgressContract | None) -> Policy:
    """*policy* as it judges a run: with what ends every run, and the run's contract in front."""
    active = with_rules(policy, Use(HandOff()))
    return active if contract is None else with_contract(active, contract.rule())


def prices_of(settings: PriceSettings) -> Prices:
    """The prices as the settings name them."""
    cached = settings.prompt if settings.cached is None else settings.cached
    return Prices(settings.prompt, cached, settings.completion)


def policies_of(settings: PolicySettings) -> Policies:
    """The policies as the settings name them."""
    return Policies(
        by_kind={kind: settings.policies[getattr(settings, kind)] for kind in KINDS},
        shadows=tuple(settings.policies[name] for name in settings.shadow),
        has_last_turn=settings.last_turn,
        prices=prices_of(settings.prices),
    )
