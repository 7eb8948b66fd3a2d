"""Digests of actions and results: what counts as progress, per tool."""

import json
from dataclasses import replace
from hashlib import sha256
from types import MappingProxyType

import pytest

from guard import (
    VOLATILE_RESULT_KEYS,
    Attachment,
    NoProgressCall,
    Normaliser,
    Rules,
    ToolContract,
    action_digest,
    drop_fields,
    evidence,
    keep_fields,
    result_digest,
    round_signature,
)
from tests.guard.history import GREP

SHELL = {
    "session_id": "s1",
    "output": "ok\n",
    "exit_code": 0,
    "completed": True,
    "truncated": False,
    "current_workdir": "/w",
    "output_file": "s1.out",
    "message": "session s1",
}


def of(content: object, tool: str = "any_tool", attachment: Attachment | None = None) -> str:
    """The digest of a result; what is no text is written as JSON first."""
    text = content if isinstance(content, str) else json.dumps(content)
    return result_digest(NoProgressCall(tool, "{}", text, attachment))


@pytest.mark.parametrize(
    "change",
    [
        {"session_id": "s2"},
        {"output_file": "s2.out"},
        {"message": "waiting for s2"},
        {"session_id": "s2", "output_file": "s2.out", "message": "waiting for s2"},
    ],
)
def test_shell_results_that_differ_in_transport_only_are_equal(change: dict[str, object]) -> None:
    assert of(SHELL, "shell") == of(SHELL | change, "shell")


@pytest.mark.parametrize(
    "change",
    [
        {"output": "ok"},
        {"exit_code": 1},
        {"completed": False},
        {"truncated": True},
        {"current_workdir": "/x"},
    ],
)
def test_shell_results_that_differ_in_meaning_differ(change: dict[str, object]) -> None:
    assert of(SHELL, "shell") != of(SHELL | change, "shell")


def test_shell_results_without_any_known_field_do_not_collapse() -> None:
    errors = [{"error": "denied"}, {"error": "timeout"}, {"session_id": "s1"}, {}]
    assert len({of(error, "shell") for error in errors}) == len(errors)


def test_shell_errors_are_equal_whatever_their_session() -> None:
    first = {"error": "denied", "session_id": "s1", "output_file": "s1.out"}
    assert of(first, "shell") == of({"error": "denied", "session_id": "s2"}, "shell")


def test_shell_result_that_is_no_object_is_compared_as_text() -> None:
    assert of("declined by user\n", "shell") == of("declined by user", "shell")
    assert of("declined by user", "shell") != of("declined", "shell")
    assert of([1], "shell") != of([2], "shell")


@pytest.mark.parametrize("key", sorted(VOLATILE_RESULT_KEYS))
def test_volatile_keys_are_left_out_on_every_level(key: str) -> None:
    left = {"ok": True, key: 1, "rows": [{"n": 1, key: 2}]}
    right = {"ok": True, key: 3, "rows": [{"n": 1, key: 4}]}
    assert of(left) == of(right)
    assert of(left) != of(right | {"ok": False})


@pytest.mark.parametrize("key", ["child_session_id", "task_id", "session_id", "output_file", "id"])
def test_ids_that_can_tell_results_apart_are_kept(key: str) -> None:
    assert of({"ok": True, key: "a"}) != of({"ok": True, key: "b"})


@pytest.mark.parametrize(
    "key", ["exit_code", "output", "matches", "total_matches", "success", "error"]
)
def test_fields_with_a_meaning_are_kept(key: str) -> None:
    assert of({"ok": True, key: 1}) != of({"ok": True, key: 2})


def test_the_last_fields_of_an_object_are_never_left_out() -> None:
    assert of({"timestamp": 1}) != of({"timestamp": 2})
    assert of({"timestamp": 1, "trace_id": 1}) != of({"timestamp": 1, "trace_id": 2})
    assert of({"a": {"timestamp": 1}}) != of({"a": {"timestamp": 2}})


def test_json_results_are_compared_as_values() -> None:
    assert of('{"size":3,"mode":"rw"}') == of('{\n "mode": "rw",\n "size": 3.0\n}\n')
    assert of("[1, 2]") == of(" [1,2]\n")
    assert of('{"id":9007199254740992}') != of('{"id":9007199254740993}')


@pytest.mark.parametrize(("left", "right"), [("1", "1.0"), ('"a"', '"\\u0061"'), ("1", " 1")])
def test_bare_scalars_are_compared_as_text(left: str, right: str) -> None:
    assert of(left) != of(right)


def test_text_results_lose_trailing_white_space_only() -> None:
    assert of("no matches\n\n") == of("no matches") == of("no matches \t")
    assert of("no matches") != of("  no matches")
    assert of("no  matches") != of("no matches")
    assert of("\ud800") != of("\ud801")
    assert of("no matches") == sha256(b"no matches").hexdigest()[:16]


def test_same_path_with_another_picture_is_progress() -> None:
    shown = {"media_type": "image", "path": "screen.png"}
    first = of(shown, "view_image", Attachment("data:image/png;base64,AA", "image/png"))
    again = of(shown, "view_image", Attachment("data:image/png;base64,AA", "image/png"))
    other = of(shown, "view_image", Attachment("data:image/png;base64,AB", "image/png"))
    assert first == again
    assert len({first, other, of(shown, "view_image")}) == 3


def test_a_result_that_calls_itself_an_image_is_one_whatever_its_attachment_says() -> None:
    shown = {"media_type": "image", "path": "screen.png"}
    assert of(shown, attachment=Attachment("data:a", "")) != of(
        shown, attachment=Attachment("data:b", "")
    )


def test_a_picture_behind_plain_text_counts_too_and_a_document_does_not() -> None:
    def png(uri: str) -> Attachment:
        return Attachment(uri, "image/png")

    assert of("shot", attachment=png("data:a")) != of("shot", attachment=png("data:b"))
    assert of("doc", attachment=Attachment("data:a", "application/pdf")) == of("doc")


def test_parts_of_an_action_never_run_into_each_other() -> None:
    left, right = NoProgressCall("a", "bc", ""), NoProgressCall("ab", "c", "")
    assert action_digest(left) != action_digest(right)


def test_round_signature_tells_order_number_and_grouping_apart() -> None:
    a, b = replace(GREP, arguments_json='{"p":"a"}'), replace(GREP, arguments_json='{"p":"b"}')
    rounds = [[a, b], [b, a], [a], [a, a], [a, b, b]]
    assert len({round_signature(calls) for calls in rounds}) == len(rounds)
    assert round_signature([a, b]) == round_signature([replace(a, result_content="0 matches\n"), b])


def test_digests_have_one_size() -> None:
    for content in ("", "x" * 20_000_000, "[" * 100_000, "\x00\ud800"):
        found = evidence(NoProgressCall("any", content, content))
        assert (len(found.action_digest), len(found.result_digest)) == (16, 16)


def test_a_tool_rule_decides_what_is_compared() -> None:
    rules = Rules(
        contracts=MappingProxyType(
            {
                "send": ToolContract(result=drop_fields("messageId", "receipt")),
                "job": ToolContract(result=keep_fields("state")),
            }
        )
    )

    def sent(message_id: str, text: str = "hi") -> str:
        content = {"text": text, "messageId": message_id, "to": [{"n": 1, "receipt": message_id}]}
        return result_digest(NoProgressCall("send", "{}", json.dumps(content)), rules)

    def job(content: dict[str, object]) -> str:
        return result_digest(NoProgressCall("job", "{}", json.dumps(content)), rules)

    assert sent("m-1") == sent("m-2")
    assert sent("m-1") != sent("m-1", "bye")
    assert job({"state": "on", "age": 1}) == job({"state": "on", "age": 2})
    assert job({"error": "a"}) != job({"error": "b"})


def test_a_tool_rule_may_compare_plain_text() -> None:
    def folded(value: object) -> object:
        return value.casefold() if isinstance(value, str) else value

    rules = Rules(contracts={"say": ToolContract(result=folded)})
    assert result_digest(NoProgressCall("say", "", "Hello"), rules) == of("hello", "say")


def raises(_: object) -> object:
    raise KeyError("secret content")


def loops(_: object) -> object:
    endless: list[object] = []
    endless.append(endless)
    return endless


@pytest.mark.parametrize("rule", [raises, loops, lambda _: {1, 2}, lambda _: float("nan")])
def test_a_tool_rule_that_fails_is_replaced_by_the_text_rule(
    rule: Normaliser,
) -> None:
    call = NoProgressCall("bad", "{}", '{"a": 1}  ')
    found = evidence(call, Rules(contracts={"bad": ToolContract(result=rule)}))
    assert found.result_digest == sha256(b'{"a": 1}').hexdigest()[:16]
    assert len(found.faults) == 1
    assert "bad" in found.faults[0]
    assert "secret" not in found.faults[0]


def test_stored_evidence_is_believed() -> None:
    stored = replace(GREP, result_digest="0123456789abcdef", exempt=True)
    found = evidence(stored)
    assert (found.result_digest, found.exempt) == ("0123456789abcdef", True)
    assert found.action_digest == evidence(GREP).action_digest


def test_arguments_and_results_are_not_in_the_representation_of_a_call() -> None:
    shown = repr(replace(GREP, attachment=Attachment("data:picture", "image/png")))
    assert not any(secret in shown for secret in ("pattern", "matches", "picture"))
