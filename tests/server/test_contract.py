"""Progress contracts: what is taken, what is refused and where it says so, and the guard's rule."""

import json
from copy import deepcopy
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator  # type: ignore[import-untyped]  # has no stubs

from guard.rules.contract import Contract, Field
from server.contract import (
    LABEL_CHARACTERS,
    Extractor,
    Item,
    ProgressContract,
    StateField,
    contract_json,
    given_contract,
    parse_contract,
    read_contract,
    run_contract,
    stored_contract,
)
from server.errors import BadRequest, ContractUnreadable
from tests.server.contracts import TWO_SOURCES

ids = st.from_regex(r"\A[0-9A-Za-z._-]{1,64}\Z")
names = ids | st.sampled_from(["证据", "缺口", "état"])
texts = st.text(min_size=1, max_size=50)
numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
extractors = st.builds(
    lambda pair: Extractor(**{pair[0]: pair[1]}),
    st.sampled_from(
        [
            ("jmespath", "facts[?source=='A1'].text | [0]"),
            ("jmespath", "{a: length(open), b: [x, y]}"),
            ("regex", r"verified=(\d+)"),
            ("regex", r"(?i)状态[:：]\s*(\pL+)"),
        ]
    ),
)
fields = st.one_of(
    st.builds(
        lambda name, tool, extract, counts, initial: StateField(
            name, tool, extract, counts, initial=initial
        ),
        names,
        texts,
        extractors,
        st.sampled_from(["grows", "shrinks"]),
        st.none() | numbers,
    ),
    st.builds(
        lambda name, tool, extract, initial, target: StateField(
            name, tool, extract, "reaches", initial=initial, target=target
        ),
        names,
        texts,
        extractors,
        st.none() | numbers | st.text(max_size=20) | st.booleans(),
        numbers | st.text(max_size=20) | st.booleans(),
    ),
)
items = st.builds(Item, names, texts, texts, extractors)


@st.composite
def contracts(draw: st.DrawFn) -> ProgressContract:
    parts = draw(
        st.lists(items | fields, min_size=1, max_size=8, unique_by=lambda part: _name(part))
    )
    stop_after = draw(st.integers(2, 100))
    return ProgressContract(
        id=draw(ids),
        version=draw(st.integers(1, 1_000_000)),
        goal=draw(st.text(max_size=20)),
        items=tuple(part for part in parts if isinstance(part, Item)),
        fields=tuple(part for part in parts if isinstance(part, StateField)),
        stop_after=stop_after,
        nudge_after=draw(st.none() | st.integers(1, stop_after - 1)),
        on_no_progress=draw(st.sampled_from(["no_progress", "handoff"])),
    )


def _name(part: Item | StateField) -> str:
    return part.id if isinstance(part, Item) else part.name


@settings(deadline=None)
@given(contracts())
def test_what_is_shown_is_read_as_the_same(contract: ProgressContract) -> None:
    shown = json.loads(json.dumps(contract_json(contract)))
    assert parse_contract(shown) == contract
    stored = stored_contract(contract)
    assert read_contract(stored) == contract
    assert stored_contract(read_contract(stored)) == stored  # a truth value is no number there
    assert given_contract(stored) == shown


@settings(deadline=None)
@given(contracts())
def test_what_is_shown_fits_the_published_schema(contract: ProgressContract) -> None:
    schema = msgspec.json.schema(ProgressContract)
    shown = json.loads(msgspec.json.encode(contract))
    assert list(Draft202012Validator(schema).iter_errors(shown)) == []


def test_an_item_becomes_a_field_that_has_to_become_true() -> None:
    contract = parse_contract(
        {
            "id": "order",
            "items": [{"id": "buyer", "text": "买家", "tool": "t", "extract": {"regex": "b"}}],
            "fields": [
                {
                    "name": "state",
                    "tool": "t",
                    "extract": {"jmespath": "status"},
                    "counts": "reaches",
                    "target": "verified",
                }
            ],
            "stop_after": 3,
            "nudge_after": 2,
            "on_no_progress": "handoff",
        }
    )
    assert contract.key == "order@1"
    assert contract.rule() == Contract(
        (
            Field("buyer", "reaches", target=True, initial=False, label="买家"),
            Field("state", "reaches", target="verified"),
        ),
        stop_after=3,
        nudge_after=2,
        stop_code="handoff",
    )


def test_numbers_that_were_left_out_are_shown() -> None:
    contract = parse_contract(
        {"id": "c", "items": [{"id": "a", "text": "a", "tool": "t", "extract": {"regex": "a"}}]}
    )
    shown = contract_json(contract)
    assert (shown["version"], shown["stop_after"]) == (1, 2)
    assert shown["on_no_progress"] == "no_progress"


WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"id": "with blank"}, "contract.id", "matching regex"),
    ({"id": "证据"}, "contract.id", "matching regex"),
    ({"id": "ends\n"}, "contract.id", "matching regex"),
    ({"version": 0}, "contract.version", ">= 1"),
    ({"stop_after": 101}, "contract.stop_after", "<= 100"),
    ({"nudge_after": 2}, "contract", "`nudge_after` that is smaller than `stop_after`"),
    ({"on_no_progress": "give_up"}, "contract.on_no_progress", "Invalid enum value"),
    ({"stopAfter": 3}, "contract", "unknown field `stopAfter`"),
    ({"goal": "x" * 2001}, "contract.goal", "length <= 2000"),
    ({"items": [], "fields": []}, "contract", "there is nothing to verify"),
    ({"items": TWO_SOURCES["items"] * 17}, "contract.items", "length <= 32"),
    ({"items": TWO_SOURCES["items"] * 2}, "contract", "different names"),
    ({"items.1.id": "evidence"}, "contract", "different names in `items` and `fields`: evidence"),
    ({"items.1.id": "a/b"}, "contract.items[1].id", "matching regex"),
    ({"items.1.id": "ends\n"}, "contract.items[1].id", "matching regex"),
    ({"items.1.id": "x" * 65}, "contract.items[1].id", "matching regex"),
    ({"items.0.text": ""}, "contract.items[0].text", "length >= 1"),
    ({"items.0.extract": {}}, "contract.items[0].extract", "either `jmespath` or `regex`"),
    (
        {"items.0.extract": {"jmespath": "a", "regex": "a"}},
        "contract.items[0].extract",
        "either `jmespath` or `regex`",
    ),
    (
        {"items.1.extract": {"jmespath": "facts["}},
        "contract.items[1].extract",
        "jmespath is not valid: Incomplete expression",
    ),
    (
        {"items.1.extract": {"jmespath": "a b"}},
        "contract.items[1].extract",
        "jmespath is not valid: Unexpected token: b",
    ),
    (
        {"items.1.extract": {"jmespath": "join(',', a)"}},
        "contract.items[1].extract",
        "jmespath may not use join",
    ),
    (
        {"items.1.extract": {"jmespath": "[@,@]|[@,@]|[@,@]|[@,@]|[@,@]"}},
        "contract.items[1].extract",
        "more than 16 values side by side",
    ),
    (
        {"fields.0.extract": {"regex": "verified=("}},
        "contract.fields[0].extract",
        "regex is not valid: missing )",
    ),
    (
        {"fields.0.extract": {"regex": "(?=a)"}},
        "contract.fields[0].extract",
        "regex is not valid: invalid perl operator",
    ),
    (
        {"fields.0.extract": {"regex": r"\pL\pL"}},
        "contract.fields[0].extract",
        "regex is too large",
    ),
    ({"fields.0.extract": {"regex": "x" * 501}}, "contract.fields[0].extract.regex", "<= 500"),
    ({"fields.0.counts": "moves"}, "contract.fields[0].counts", "Invalid enum value"),
    ({"fields.0.counts": "reaches"}, "contract.fields[0]", "`target` with `reaches`"),
    ({"fields.0.target": 3}, "contract.fields[0]", "`target` with `reaches`"),
    ({"fields.0.initial": "none"}, "contract.fields[0]", "number as `initial`"),
    ({"fields.0.initial": True}, "contract.fields[0]", "number as `initial`"),
    ({"fields.0.initial": float("inf")}, "contract.fields[0]", "finite"),
    ({"fields.0.initial": [0]}, "contract.fields[0].initial", "got `array`"),
]


@pytest.mark.parametrize(("changes", "path", "words"), WRONG)
def test_a_wrong_contract_is_refused_with_its_place(
    changes: dict[str, Any], path: str, words: str
) -> None:
    given: Any = deepcopy(dict(TWO_SOURCES))
    for place, value in changes.items():
        *way, last = place.split(".")
        part = given
        for step in way:
            part = part[int(step)] if step.isdecimal() else part[step]
        part[last] = value
    with pytest.raises(BadRequest, match=r".") as refused:
        parse_contract(given)
    assert refused.value.path == path
    assert words in str(refused.value)


@settings(deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
)
def test_whatever_is_given_instead_of_a_contract_is_refused(given: object) -> None:
    with pytest.raises(BadRequest) as refused:
        parse_contract(given, "forwardedProps.contract")
    assert (refused.value.path or "").startswith("forwardedProps.contract")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"id": "c"}', "[" * 100_000])
def test_a_column_that_cannot_be_read_shows_none_and_fails_the_run(text: str) -> None:
    assert read_contract(text) is None
    with pytest.raises(ContractUnreadable):
        run_contract(given_contract(text))


def test_without_a_contract_a_run_has_none() -> None:
    assert read_contract(None) is None
    assert run_contract(given_contract(None)) is None


def test_texts_name_an_item_by_its_own_text() -> None:
    words = "第一项\n" + "很长的说明" * 20
    [item] = parse_contract({**TWO_SOURCES, "fields": []}).items[:1]
    rule = ProgressContract("c", items=(msgspec.structs.replace(item, text=words),)).rule()
    assert rule.fields[0].name == "source-1"
    assert rule.fields[0].label.startswith("第一项 很长")
    assert len(rule.fields[0].label) == LABEL_CHARACTERS
    assert rule.fields[0].label.endswith("…")
