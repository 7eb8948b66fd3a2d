"""What results say of a contract: values, facts, and nothing that could hold the server up."""

import json
from collections.abc import Mapping

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from guard import NoProgressCall
from guard.rounds import NONE, Value, round_call, round_of
from guard.rules.contract import ContractState
from server.contract import ProgressContract, parse_contract
from server.extract import NOTHING, extract
from server.patterns import PATH_STEPS
from tests.server.contracts import TWO_SOURCES

CONTRACT = parse_contract(TWO_SOURCES)


def of_item(extractor: Mapping[str, str]) -> ProgressContract:
    item = {"id": "item", "text": "an item", "tool": "t", "extract": extractor}
    return parse_contract({"id": "c", "items": [item]})


def of_field(extractor: Mapping[str, str], counts: str, **more: object) -> ProgressContract:
    field = {"name": "field", "tool": "t", "extract": extractor, "counts": counts, **more}
    return parse_contract({"id": "c", "fields": [field]})


def test_only_the_authoritative_tool_is_heard() -> None:
    content = '{"facts": [{"source": "A1", "text": "F1"}], "open": [], "words": "verified=2"}'
    told = extract(CONTRACT, "open_doc", content, is_error=False)
    assert (told.values, told.facts) == ({"source-1": True}, {"source-1": "F1"})
    assert extract(CONTRACT, "evidence_status", content, False).values == {"evidence": 2}
    assert extract(CONTRACT, "search_docs", content, False).values == {"gaps": 0}
    assert extract(CONTRACT, "shell", content, False) is NOTHING
    assert extract(CONTRACT, "open_doc", content, is_error=True) is NOTHING


def test_the_four_steps_stop_at_the_second_that_brings_nothing() -> None:
    steps = [
        ("search_docs", '{"results": ["A"], "open": ["source 2"]}'),
        ("open_doc", '{"facts": [{"source": "A1", "text": "F1"}]}'),
        ("search_docs", '{"results": ["A"], "open": ["source 2"]}'),
        ("search_docs", '{"results": ["A"], "open": ["source 2"], "took_ms": 7}'),
    ]
    rule = CONTRACT.rule()
    state, asked = rule.start, []
    for tool, content in steps:
        call = round_call(NoProgressCall(tool, "{}", content))
        told = extract(CONTRACT, tool, content, is_error=False)
        state, decision = rule.advance(state, round_of([call], values=told.values))
        asked.append("none" if decision is NONE else decision.asks)
    assert asked == ["none", "none", "nudge", "stop"]


@pytest.mark.parametrize(
    ("extractor", "content", "fact"),
    [
        ({"jmespath": "a"}, '{"a": "found"}', "found"),
        ({"jmespath": "a"}, '{"a": " on\\n two  lines "}', "on two lines"),
        ({"jmespath": "a"}, '{"a": 3}', "3"),
        ({"jmespath": "a"}, '{"a": true}', "true"),
        ({"jmespath": "a"}, '{"a": {"名": [1, 2.5]}}', '{"名":[1,2.5]}'),
        ({"regex": r"state=(\w+)"}, "state=done", "done"),
        ({"regex": r"done|ready"}, "is ready", "ready"),
        ({"regex": r"passed=(\d+)"}, "passed=3 failed=0", "3"),
        ({"regex": r"结论：(.+)"}, "结论：可行\n", "可行"),
    ],
)
def test_what_is_there_closes_an_item(extractor: dict[str, str], content: str, fact: str) -> None:
    told = extract(of_item(extractor), "t", content, False)
    assert (told.values, told.facts) == ({"item": True}, {"item": fact})


@pytest.mark.parametrize(
    ("extractor", "content"),
    [
        ({"jmespath": "a"}, "{}"),
        ({"jmespath": "a"}, '{"a": null}'),
        ({"jmespath": "a"}, '{"a": false}'),
        ({"jmespath": "a"}, '{"a": 0}'),
        ({"jmespath": "a"}, '{"a": "  "}'),
        ({"jmespath": "a"}, '{"a": []}'),
        ({"regex": r"passed=(\d+)"}, "passed=0"),
        ({"regex": r"passed=(\d+)"}, "nothing of it"),
        ({"regex": r"(a)|b"}, "b"),
        ({"regex": r"x*"}, "y"),
    ],
)
def test_nothing_leaves_an_item_open_and_is_no_fault(
    extractor: dict[str, str], content: str
) -> None:
    assert extract(of_item(extractor), "t", content, False) == NOTHING


def test_a_long_fact_is_cut() -> None:
    told = extract(of_item({"jmespath": "a"}), "t", json.dumps({"a": "词" * 5000}), False)
    assert told.facts["item"] == "词" * 199 + "…"


@pytest.mark.parametrize(
    ("extractor", "counts", "target", "content", "value"),
    [
        ({"jmespath": "n"}, "grows", None, '{"n": 12345678901234567890}', 12345678901234567890),
        ({"jmespath": "n"}, "grows", None, '{"n": [1, 2, 3]}', 3),
        ({"jmespath": "n"}, "shrinks", None, '{"n": {"a": 1}}', 1),
        ({"jmespath": "n"}, "grows", None, '{"n": "7"}', 7),
        ({"regex": r"n=(\S+)"}, "grows", None, "n=-2.5e3", -2500.0),
        ({"regex": r"n=(\S+)"}, "reaches", 3, "n=3", 3),
        ({"regex": r"n=(\S+)"}, "reaches", 3, "n=three", "three"),
        ({"regex": r"v=(\S+)"}, "reaches", "1.10", "v=1.10", "1.10"),
        ({"regex": r"v=(\S+)"}, "changes", None, "v=1.10", "1.10"),
        ({"regex": r"ok=(\S+)"}, "reaches", True, "ok=True", True),
        ({"jmespath": "s"}, "reaches", "verified", '{"s": "verified"}', "verified"),
        ({"jmespath": "s"}, "changes", None, '{"s": false}', False),
        ({"jmespath": "s"}, "changes", None, '{"s": 0}', 0),
    ],
)
def test_a_field_is_read_as_it_is_compared(
    extractor: dict[str, str], counts: str, target: Value | None, content: str, value: Value
) -> None:
    contract = of_field(extractor, counts, target=target)
    found = extract(contract, "t", content, False).values["field"]
    assert found == value
    assert type(found) is type(value)


def test_a_list_that_changes_is_told_by_its_digest() -> None:
    contract = of_field({"jmespath": "s"}, "changes")

    def value(content: str) -> Value:
        return extract(contract, "t", content, False).values["field"]

    assert value('{"s": {"a": 1, "b": [2]}}') == value('{"s": {"b": [2.0], "a": 1}}')
    assert value('{"s": {"a": 1, "b": [2]}}') != value('{"s": {"a": 1, "b": [3]}}')
    long = json.dumps({"s": "x" * 2001})
    assert value(long) != value(json.dumps({"s": "x" * 2002}))
    assert len(str(value(long))) == 16


@pytest.mark.parametrize(
    ("extractor", "content", "fault"),
    [
        ({"jmespath": "n"}, "plain words", "not_json"),
        ({"jmespath": "n"}, '{"n": NaN}', "not_json"),
        ({"jmespath": "n"}, '{"n": 1e999}', "not_json"),
        ({"jmespath": "n"}, '{"n": 1} and more', "not_json"),
        ({"jmespath": "n"}, "[" * 5000 + "]" * 5000, "not_json"),
        ({"jmespath": "n"}, '{"n": "some"}', "no_number"),
        ({"jmespath": "n"}, '{"n": true}', "no_number"),
        ({"jmespath": "to_number(n)"}, '{"n": "inf"}', "no_number"),
        ({"jmespath": "to_number(n)"}, '{"n": "nan"}', "no_number"),
        ({"regex": r"n=(\S+)"}, "n=1e999", "no_number"),
        ({"jmespath": "length(n)"}, '{"n": 5}', "mismatch"),
        ({"jmespath": "avg(n)"}, '{"n": [1' + "0" * 400 + "]}", "mismatch"),
        ({"jmespath": "n"}, json.dumps({"n": "x" * 1_000_000}), "too_long"),
        ({"regex": "n"}, "x" * 1_000_001, "too_long"),
    ],
)
def test_what_cannot_be_read_is_missing_and_told_by_a_word(
    extractor: dict[str, str], content: str, fault: str
) -> None:
    told = extract(of_field(extractor, "grows"), "t", content, False)
    assert (told.values, told.faults) == ({}, (fault,))


def test_one_fault_takes_no_other_value_along() -> None:
    parts = [
        {"name": name, "tool": "t", "extract": extractor, "counts": "grows"}
        for name, extractor in (("a", {"jmespath": "a"}), ("b", {"regex": r"b=(\d)"}))
    ]
    contract = parse_contract({"id": "c", "fields": parts})
    told = extract(contract, "t", "b=4", False)
    assert (told.values, told.faults) == ({"b": 4}, ("not_json",))


LARGE = json.dumps({"l": [{"a": 1, "b": [1, 2, 3]} for _ in range(30_000)]})


@pytest.mark.parametrize(
    ("extractor", "content"),
    [
        ({"jmespath": "l[?" + "||".join(["a==`2`"] * 50) + "]"}, LARGE),
        ({"jmespath": "l" + "[]" * 240}, LARGE),
        ({"jmespath": "reverse(" * 50 + "l" + ")" * 50}, LARGE),
        ({"jmespath": "l[].b[]|" + "|".join(["[@,@][]"] * 4)}, LARGE),
        ({"regex": "(x{0,25}){0,30}y"}, "x" * 900_000),
    ],
)
def test_an_expression_that_would_take_long_is_given_up(
    extractor: dict[str, str], content: str
) -> None:
    assert extract(of_item(extractor), "t", content, False).faults == ("too_much",)


def test_many_expensive_expressions_cost_no_more_than_one() -> None:
    """The limit is that of a result, not of an expression."""
    path = "l[?a==`1` && a==`1`]"  # most of what one may cost
    items = [
        {"id": f"i{n}", "text": "x", "tool": "t", "extract": {"jmespath": path}} for n in range(32)
    ]
    content = json.dumps({"l": [{"a": 1}] * (PATH_STEPS // 12)})
    told = extract(parse_contract({"id": "c", "items": items}), "t", content, False)
    assert told.facts.keys() == {"i0"}
    assert told.faults == ("too_much",)


def test_a_pattern_that_other_engines_cannot_bear_is_answered() -> None:
    told = extract(of_item({"regex": r"^(a+)+$"}), "t", "a" * 500_000 + "b", False)
    assert told == NOTHING
    told = extract(of_item({"regex": r"(.*)*(\d)"}), "t", "y" * 500_000 + "5", False)
    assert told.facts == {"item": "y" * 199 + "…"}


PATHS = [
    "@",
    "*",
    "[]",
    "[0]",
    "[::-1]",
    "a.b || c",
    "!a",
    "[?a > b]",
    "[a, b]",
    "{x: a, y: [b]}",
    "length(@)",
    "sum(@)",
    "avg(a)",
    "sort(@)",
    "sort_by(@, &a)",
    "max_by(@, &a)[0]",
    "map(&a, @)",
    "merge(@, a)",
    "ceil(a)",
    "abs(a)",
    "reverse(@)",
    "keys(@)",
    "contains(@, 'a')",
    "starts_with(a, b)",
    "to_number(a)",
    "not_null(a, b)",
    "type(a)",
    "to_array(@)[1:3]",
]
REGEXES = ["", r"\d+", r"(a)?", r"(?s)(.*)", r"\pL+", r"^$", r"(?m)^(.+)$", r"[^a]*"]
CONTRACTS = [
    parse_contract(
        {
            "id": "all",
            "items": [
                {"id": f"i{n}", "text": "x", "tool": "t", "extract": one}
                for n, one in enumerate(part)
            ],
            "fields": [
                {
                    "name": f"f{n}",
                    "tool": "t",
                    "extract": one,
                    "counts": counts,
                    "target": 1 if counts == "reaches" else None,
                }
                for n, one in enumerate(part)
            ],
        }
    )
    for counts in ("grows", "changes", "reaches")
    for part in [[{"jmespath": path} for path in PATHS], [{"regex": one} for one in REGEXES[1:]]]
]
documents = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["a", "b", "1", "nan", "inf", "\ud800"]),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(st.text() | st.sampled_from(["a", "b", "c"]), inner)
        | st.lists(st.fixed_dictionaries({"a": inner}))
    ),
)


@settings(deadline=None, max_examples=60)
@given(st.text() | documents.map(json.dumps))
@example(json.dumps([10**400, -(10**400)]))
@example(json.dumps({"a": 10**4000}))
@example(json.dumps([1, "a", None, {}]))
@example('["\\ud800"]')
@example("\ud800")
@example("[" * 199 + "]" * 199)
def test_extraction_never_raises_and_says_the_same_again(content: str) -> None:
    for contract in CONTRACTS:
        told = extract(contract, "t", content, False)
        assert told == extract(contract, "t", content, False)
        assert all(value == value for value in told.values.values())
        assert all(told.values[name] is True for name in told.facts)
        fields = {field.name: field for field in contract.fields}
        for name, value in told.values.items():
            if name in fields and fields[name].counts == "grows":
                assert isinstance(value, int | float)
        json.dumps({**told.values, **told.facts}, allow_nan=False)
        assert "\ud800" not in "".join(told.facts.values())


def _state_after(contents: list[tuple[str, str]]) -> ContractState:
    rule = CONTRACT.rule()
    state = rule.start
    for tool, content in contents:
        call = round_call(NoProgressCall(tool, "{}", content))
        told = extract(CONTRACT, tool, content, False)
        state, _ = rule.advance(state, round_of([call], values=told.values))
    return state


@settings(deadline=None, max_examples=60)
@given(
    st.lists(
        st.tuples(
            st.sampled_from(["open_doc", "search_docs", "evidence_status", "shell"]),
            st.sampled_from(
                [
                    '{"facts": [{"source": "A1", "text": "F1"}], "open": [1]}',
                    '{"facts": [], "open": []}',
                    "verified=1",
                    "verified=0",
                    "words",
                ]
            ),
        )
    )
)
def test_an_item_that_was_closed_is_never_opened_again(contents: list[tuple[str, str]]) -> None:
    closed = [_state_after(contents[: n + 1]).last[0] is True for n in range(len(contents))]
    assert closed == sorted(closed)
