"""The last words of a run that was stopped: verified, missing, why."""

import pytest

from channels.markdown import plain
from server.contract import parse_contract
from server.partial import partial_result
from tests.server.contracts import TWO_SOURCES

CONTRACT = parse_contract(TWO_SOURCES)
REASON = "连续 2 轮没有新的进展，已停止。"


def test_the_four_steps_end_with_one_fact_and_one_gap() -> None:
    said = partial_result(
        CONTRACT, {"source-1": "F1"}, {"source-1": True, "evidence": 1, "gaps": 1}, REASON, None,
        "zh-CN",
    )  # fmt: skip
    assert said == (
        "目标：找到两项独立证据\n\n"
        "**已核实**\n- 第一个独立来源：F1\n- evidence：0 → 1\n- gaps：2 → 1\n\n"
        "**还缺**\n- 第二个独立来源\n\n"
        "**停止原因**\n连续 2 轮没有新的进展，已停止。"
    )


def test_it_is_told_in_english_too() -> None:
    said = partial_result(
        CONTRACT, {}, {}, "No progress for 2 rounds.", "The refund needs a right I lack.", "en"
    )
    assert said == (
        "Goal: 找到两项独立证据\n\n"
        "**Verified**\n- Nothing so far\n\n"
        "**Missing**\n- 第一个独立来源\n- 第二个独立来源\n\n"
        "**Why a person has to take over**\nThe refund needs a right I lack.\n\n"
        "**Why it stopped**\nNo progress for 2 rounds."
    )


@pytest.mark.parametrize(
    ("now", "verified", "missing"),
    [
        ({}, "- 目前没有", "- state：现在是 pending，应为 verified"),
        ({"state": "checked"}, "- 目前没有", "- state：现在是 checked，应为 verified"),
        ({"state": "verified"}, "- state：pending → verified", "- 清单上的内容都已核实"),
    ],
)
def test_a_field_is_missing_until_it_is_at_its_target(
    now: dict[str, str], verified: str, missing: str
) -> None:
    contract = parse_contract(
        {
            "id": "order",
            "fields": [
                {
                    "name": "state",
                    "tool": "get_order",
                    "extract": {"jmespath": "status"},
                    "counts": "reaches",
                    "initial": "pending",
                    "target": "verified",
                }
            ],
        }
    )
    said = partial_result(contract, {}, now, REASON, None, "zh-CN")
    assert f"**已核实**\n{verified}\n\n**还缺**\n{missing}\n\n" in said


def test_what_has_no_target_is_never_missing() -> None:
    contract = parse_contract({"id": "c", "fields": TWO_SOURCES["fields"]})
    said = partial_result(contract, {}, {"gaps": 2}, REASON, None, "zh-CN")
    assert said == f"**已核实**\n- gaps：2\n\n**停止原因**\n{REASON}"


def test_without_a_contract_it_is_short() -> None:
    said = partial_result(None, {}, {}, "已达到轮数上限。", None, "zh-CN")
    assert said.endswith("\n\n**停止原因**\n已达到轮数上限。")
    assert "没有设定要核实的清单" in said
    assert "- " not in said


def test_a_goal_that_was_reached_has_no_reason_to_stop() -> None:
    facts = {"source-1": "F1", "source-2": "F2"}
    said = partial_result(CONTRACT, facts, {}, "", None, "zh-CN")
    assert "停止原因" not in said
    assert said.endswith("**还缺**\n- 清单上的内容都已核实")


def test_nothing_from_outside_breaks_out_of_its_line() -> None:
    facts = {"source-1": "one\n\n# two\n- three"}
    said = partial_result(CONTRACT, facts, {"evidence": "a\nb" * 500}, REASON, None, "zh-CN")
    lines = said.splitlines()
    assert "- 第一个独立来源：one # two - three" in lines
    assert max(len(line) for line in lines) < 250
    assert "\x00" not in partial_result(CONTRACT, {"source-1": "\x00"}, {}, REASON, None, "en")


def test_it_reads_well_where_no_markdown_is_rendered() -> None:
    said = partial_result(CONTRACT, {"source-1": "F1"}, {}, REASON, None, "zh-CN")
    assert "已核实\n- 第一个独立来源：F1" in plain(said)
