"""What failed and why, what is volatile, and what says that it waits."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.alike import result_class
from guard.reason import error_class, is_transport, says_it_waits, sleeps
from tests.guard.test_properties import ANY_TEXT, JSON


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"error":"bad_arguments","message":"no `path`"}', "bad_arguments: no ·"),
        ('{"error":{"type":"E","message":"no"}}', "e: no"),
        ('{"success":false,"message":"gone"}', "gone"),
        ('{"status":"failed","detail":"quota"}', "quota"),
        ('{"exit_code":2,"output":"make: *** no rule\\n"}', "make: *** no rule"),
        ('{"output":"' + "x " * 900 + '\\nError 7","exit_code":1}', "error 7"),
        ("<returncode>1</returncode>\n<output>\nKeyError: 'a'\n</output>", "exit 1: keyerror: ·"),
        ("Exit code 127\nzsh: command not found: foo", "exit 127: zsh: command not found: foo"),
        ("Invalid action!", "invalid action!"),
        ("Error in query: Table 'a.b' doesn't exist", "error in query: table · doesn't exist"),
        ("<tool_use_error>No file.</tool_use_error>", "<tool_use_error>no file.</tool_use_error>"),
        ("401 unauthorised", "401 unauthorised"),
        ("path is required", "path is required"),
        ("a.txt\ncp: x: No such file or directory\nb.txt", "cp: x: no such file or directory"),
        ("10:00:01 up\ncp: x: Permission denied", "cp: x: permission denied"),
        ("Error: attempt 3 after 12.5 seconds at 0x7f00", "error: attempt · after · seconds at ·"),
        ("Error: job 7f3a10b2c4 is gone", "error: job · is gone"),
        ("Element not found", "element not found"),
        ("Incorrect. Try again.", "incorrect. try again."),
        ("Wrong!", "wrong!"),
        ("Not quite, have another go", "not quite, have another go"),
        ("*** Unknown syntax: foo", "*** unknown syntax: foo"),
        ("❌ Failed to save", "❌ failed to save"),
        ("Can't open the door", "can't open the door"),
        ("Missing `path`", "missing ·"),
        ("params must have `path`", "params must have ·"),
        ("No replacement was made", "no replacement was made"),
        ("Your last edit has not been saved", "your last edit has not been saved"),
        ("[The patch could not be applied]", "[the patch could not be applied]"),
        ("File src/a/b.py does not exist", "file src/a/b.py does not exist"),
        (json.dumps({"exit_code": 2, "stderr": "bash: -c: line 9: `def f(a):'"}),
         "bash: -c: line ·: ·"),
        ("/bin/sh: line 90: foo: command not found", "/bin/sh: line ·: foo: command not found"),
        ("open: '/srv/" + "a" * 120 + "': No such file or directory",
         "open: ·: no such file or directory"),
        ('Traceback (most recent call last):\n  File "a.py", line 3\nKeyError: 7\n', "keyerror: 7"),
        ("Traceback (most recent call last):\n  oddly", "oddly"),
    ],
)  # fmt: skip
def test_a_failure_has_its_reason(text: str, reason: str) -> None:
    assert error_class(text) == reason


@pytest.mark.parametrize(
    ("arguments", "text", "reason"),
    [
        ('{"path":"/a/1.txt"}', "Error: /a/1.txt does not exist", "error: · does not exist"),
        ('{"command":"cat 1.txt"}', "cat: 1.txt: Permission denied", "·: ·: permission denied"),
        ('{"id":4711}', '{"error":"order 4711 is closed"}', "order · is closed"),
        ('{"id":7}', '{"error":"7 items are left"}', "7 items are left"),
        ("not json at all {", "Error: not json", "error: not ·"),
        ("print('this and that')", "Error: fix this and retry", "error: fix this and retry"),
        ("x/8wx $sp", "Error: nothing at 0x7ffd10", "error: nothing at ·"),
    ],
)  # fmt: skip
def test_what_was_asked_for_is_no_part_of_the_reason(
    arguments: str, text: str, reason: str
) -> None:
    assert error_class(text, arguments) == reason


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0 matches",
        "No matches found",
        "No more results.",
        "Could be anything",
        "updated successfully",
        "[]",
        '[{"error":"a log line"}]',
        '{"error":null,"ok":true}',
        '{"errors":[],"rows":[1]}',
        '{"error":""}',
        '{"exit_code":0,"output":"Error: printed by a program"}',
        '{"exit_code":1,"output":""}',
        "<returncode>0</returncode>\n<output>Error</output>",
        "<returncode>1</returncode>\n<output></output>",
        "def test():\n    raise Error",
        '{"status":"pending","exit_code":0}',
        "usage: tool [-h] [--all]",
        "Notable changes since 1.2",
        "Your edits are saved",
        "The input looks right",
    ],
)
def test_an_answer_is_no_failure(text: str) -> None:
    assert error_class(text) is None


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("refreshed 9 seconds ago", "refreshed 13 seconds ago"),
        ("object at 0x7f3a10", "object at 0x55ffee"),
        ('{"rows":[1],"execution_time_ms":12.5}', '{"rows":[1],"execution_time_ms":7}'),
        ("done at 2026-01-02T10:11:12Z", "done at 2027-03-04T01:02:03Z"),
        ("a\nb\nc", "c\na\nb"),
        ('{"ok":false,"executionTimeMs":12}', '{"ok":false,"executionTimeMs":7}'),
        ('{"rows":[],"start_time":"9:01"}', '{"rows":[],"start_time":"9:02"}'),
        ("wrote /tmp/tmpab12/out", "wrote /tmp/tmpcd34/out"),
        ("bash: line 12: foo: not here", "bash: line 27: foo: not here"),
        ("rows: 9/9 [12.1it/s]", "rows: 9/9 [7it/s]"),
        ("Receiving: 9 of 9, 1.2 MiB/s", "Receiving: 9 of 9, 940 KiB/s"),
        (
            "100  9043  100  9010  100    33   7673    282  0:00:01  0:00:01 --:--:--  7956\n:(",
            "  0     0    0     0    0     0      0      0 --:--:-- --:--:-- --:--:--     0"
            "100  9043  100  9010  100    33   8100    290  0:00:02  0:00:02 --:--:--  2033\n:(",
        ),
        ("request id: ab12cd34ef refused", "request id: 99aa88bb77 refused"),
        (
            "order 6f1c2a3b-0001-4a4a-8b8b-0123456789ab was made",
            "order 6f1c2a3b-0002-4a4a-8b8b-0123456789ab was made",
        ),
        ("warning: attempt 3, slow", "warning: attempt 4, slow"),
        ("one more line\n" * 500 + "in 3 ms", "one more line\n" * 500 + "in 99 ms"),
        (
            '{"session_id":"s1","output":"at 0x12","exit_code":1,"output_file":"s1.out"}',
            '{"session_id":"s2","output":"at 0x34","exit_code":1,"output_file":"s2.out"}',
        ),
    ],
)
def test_volatile_parts_and_order_do_not_set_results_apart(left: str, right: str) -> None:
    assert result_class(left, "1") == result_class(right, "2")


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ("line 7: x = f(x);", "line 8: x = f(x);"),
        ('{"done":1,"total":40}', '{"done":2,"total":40}'),
        ('{"month":3}', '{"month":4}'),
        ("2026-05-01T10:10:01Z", "2026-05-01T10:10:02Z"),
        ("page 1\nfoo", "page 2\nfoo"),
        ("x" * 2000 + "a" + "x" * 2000 + "1 ms", "x" * 2000 + "b" + "x" * 2000 + "2 ms"),
        ("0.03\n", "0.40\n"),
        ('{"commit":"3f2a1bc4d5"}', '{"commit":"9e8d7c6b5a"}'),
        ('{"times":3}', '{"times":4}'),
        ("0x00401136 in main ()", "0x0040113a in main ()"),
        ('{"stdout":"0x1136 in f"}', '{"stdout":"0x113a in f"}'),
        ("sent to 0x" + "ab" * 20, "sent to 0x" + "cd" * 20),
        ("line 7 of file", "line 8 of file"),
    ],
)
def test_what_changes_in_substance_is_another_result(left: str, right: str) -> None:
    assert result_class(left, "1") != result_class(right, "2")


@pytest.mark.parametrize(
    ("text", "waits"),
    [
        ('{"status":"running"}', True),
        ("<retrieval_status>timeout</retrieval_status>", True),
        ("<status>running</status>", True),
        ("Status: running", True),
        ('{"status":"completed"}', False),
        ('{"order":"1","status":"pending"}', False),
        ("the server is running", False),
        ("(no new output)\n\nProcess still running.", True),
        ("Command still running (session a-b, pid 7)", True),
        ("the lights are still running", False),
        ("x" * 1000 + '{"status":"running"}', False),
    ],
)
def test_a_wait_says_so_at_its_beginning(text: str, waits: bool) -> None:
    assert says_it_waits(text) is waits


@pytest.mark.parametrize(
    ("arguments", "waits"),
    [
        ('{"command":"sleep 30; tail build.log"}', True),
        ('{"command":"sleep 5 && gh run view"}', True),
        ('{"command":"sleep 1; ls"}', False),
        ('{"command":"sleep 0.5"}', False),
        ('{"command":"grep -rn asleep 30"}', False),
        ('{"query":"how long do cats sleep"}', False),
    ],
)
def test_a_command_that_sleeps_before_it_looks_is_a_wait(arguments: str, waits: bool) -> None:
    assert sleeps(arguments) is waits


@pytest.mark.parametrize(
    ("reason", "helps"),
    [("request timed out", True), ("429 too many requests", True), ("table 4290 is gone", False)],
)
def test_another_try_helps_against_an_outage_only(reason: str, helps: bool) -> None:
    assert is_transport(reason) is helps


@given(
    ANY_TEXT | JSON.map(json.dumps), st.sampled_from(["", "Error: ", '{"error":', "<returncode>1"])
)
def test_any_text_has_a_class_and_maybe_a_reason(text: str, before: str) -> None:
    reason = error_class(before + text)
    assert reason is None or 0 < len(reason) <= 160
    assert result_class(text, "digest")
    assert result_class(text, "digest") == result_class(text, "digest")
    says_it_waits(text)


@pytest.mark.parametrize(
    "part",
    [
        "9",
        "1:",
        "0x",
        "[{",
        "a: b\n",
        "'",
        "12 ms ",
        "1.",
        "ttempt 1",
        "1 2 ",
        "file a ",
        "`'",
        "/s 9",
    ],
)
def test_a_hostile_text_costs_no_more_than_its_looked_at_part(part: str) -> None:
    text = part * 200_000
    for tried in (text, "Error: " + text, "{" + text, '{"error":"' + text, text + " --:--"):
        error_class(tried)
        result_class(tried, "digest")
