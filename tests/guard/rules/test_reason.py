"""What failed and why, what is volatile, and what says that it waits."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from guard.alike import result_class
from guard.noise import masked
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
        ("错误：找不到文件", "错误：找不到文件"),
        ("【错误】参数无效", "【错误】参数无效"),
        ("API 调用失败：余额不足", "api 调用失败：余额不足"),
        ("❌ 保存失败", "❌ 保存失败"),
        ("无法连接到数据库", "无法连接到数据库"),
        ("该用户不存在。", "该用户不存在。"),
        ("未知错误", "未知错误"),
        ("参数 path 不能为空", "参数 path 不能为空"),
        ("a.txt\ncp: x: 没有那个文件或目录\nb.txt", "cp: x: 没有那个文件或目录"),
        ("mkdir: 无法创建目录“x”: 权限不够", "mkdir: 无法创建目录·: 权限不够"),
        ("Usage: find-user <name>\n", "usage: find-user <name>"),
        ("用法：query [选项] FILE", "用法：query [选项] file"),
        ("usage: run [-h] --in IN\nrun: error: --in is needed", "run: error: --in is needed"),
        ('{"exit_code":2,"output":"Usage: run <name>\\n"}', "usage: run"),
        ('{"content":[{"type":"text","text":"no row"}],"isError":true}', "text: no row"),
        ('[{"type":"text","text":"Error: no row"}]', "error: no row"),
        ('{"content":"Error: no row"}', "error: no row"),
        ('{"message":"Not Found","documentation_url":"https://a.b"}', "not found"),
        ('{"code":40001,"msg":"invalid credential"}', "invalid credential"),
        ('{"errcode":40001,"errmsg":"invalid credential"}', "invalid credential"),
        ('{"code":1,"stdout":"","stderr":"sh: x: not here"}', "sh: x: not here"),
        ('{"status":404,"body":"no page"}', "no page"),
        ('{"state":"failed","reason":"quota"}', "quota"),
        ('{"result":{"error":"no table"}}', "no table"),
        ('{"success":false,"data":{"message":"deep"}}', "deep"),
        ("HTTP/1.1 503 Service Unavailable\n\n<html>",
         "http/1.1 503 service unavailable <html>"),
        ("Request failed with status code 404", "request failed with status code 404"),
        ("<!DOCTYPE html>\n<html><head><title>502 Bad Gateway</title>",
         "<!doctype html> <html><head><title>502 bad gateway</title>"),
        ("compiling\na.c: bad\n[The command completed with exit code 1.]", "exit 1: a.c: bad"),
        ("compiling\na.c: bad\nexit status 2", "exit 2: a.c: bad"),
        ("node:internal/modules/cjs/loader:10\n  throw err;\n  ^\n\nError: Cannot find 'x'\n"
         "    at Module._load (node:internal:1)\n", "error: cannot find ·"),
        ("/app/a.js:3\n  foo();\n  ^\n\nReferenceError: foo is not there\n    at /app/a.js:3:5",
         "referenceerror: foo is not there"),
        ("panic: index out of range\n\ngoroutine 1 [running]:\nmain.main()\nexit status 2",
         "panic: index out of range"),
        ("thread 'main' panicked at src/main.rs:2:5:\nno",
         "thread · panicked at src/main.rs:2:5: no"),
        ("src/a.ts(3,5): error TS2304: Cannot find 'x'.",
         "src/a.ts(3,5): error ts2304: cannot find ·."),
        ("\x1b[1m\x1b[31merror\x1b[0m: could not compile", "error: could not compile"),
        ("'foo' is not recognized as a command", "· is not recognized as a command"),
        ("ENOENT: no file, open 'x'", "enoent: no file, open ·"),
        ("rpc error: code = NotFound", "rpc error: code = notfound"),
        ("Message: no such element: #b", "message: no such element: #b"),
        ("thread 'main' (4711) panicked at a.rs:2:5:", "thread · (·) panicked at a.rs:2:5:"),
        ('{"detail":[{"loc":["body","name"],"msg":"field required","type":"missing"}]}',
         "missing: field required"),
        ('{"exit_code":1,"output":"F.\\nE  assert 3 == 4\\n1 failed in 0.03s"}',
         "f. e assert 3 == 4"),
        ('{"exit_code":1,"output":"a.go:9: got 4\\nFAIL\\nexit status 1\\nFAIL\\ta/b\\t0.003s"}',
         "a.go:9: got 4"),
        ('{"exit_code":1,"output":"Not equal: 3, 4\\n\\nRan 4 tests\\n\\nFAILED (failures=1)"}',
         "not equal: 3, 4"),
        ('{"exit_code":1,"stderr":" x\\n\\nTests:  1 failed\\nTime: 2.1 s\\nRan all test suites."}',
         "x"),
        ("1 failed in 0.03s\n[exit code: 1]", "exit 1: 1 failed in ·s"),
        ("remote: denied\nfatal: unable to access 'https://a'", "fatal: unable to access ·"),
        ("An error occurred (AccessDenied)", "an error occurred (accessdenied)"),
        ("用户拒绝了该操作", "用户拒绝了该操作"),
        ("请求超时（3000毫秒）", "请求超时（·毫秒）"),
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
        ('{"city":"北京"}', "未找到城市北京", "未找到城市·"),
        ('{"city":"\\u4e0a\\u6d77"}', "未找到城市上海", "未找到城市·"),
        ('{"path":"/a/1.txt"}', "找不到文件/a/1.txt，请检查", "找不到文件·，请检查"),
        ('{"name":"张三"}', '{"success":false,"msg":"用户张三不存在"}', "用户·不存在"),
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
        '{"exit_code":0,"state":"done","output":"usage: tool [-h]"}',
        '{"jobs":[{"id":1,"status":"failed"}]}',
        '{"code":500,"name":"a shoe"}',
        '{"code":1007,"message":"Mend the page","state":"open"}',
        '{"code":20000,"msg":"no more"}',
        '{"code":1,"msg":"查询成功"}',
        '{"status":404,"name":"order"}',
        '{"content":"Error: told by a log","isError":false}',
        "Usage: 45% of the disk",
        "Usage statistics for May",
        "Memory usage: 3 MB",
        "Error: printed\n[exit code: 0]",
        "nothing\nfound\n[exit code: 0]",
        "Errors: 0",
        "Error handling was added",
        "errors.py\nmain.py",
        "Terror attacks in fiction",
        "edit: done",
        "没有错误。",
        "错误：0",
        "共 3 个错误：",
        "已修复语法错误。",
        "未找到匹配项",
        "没有找到相关结果",
        "暂无数据",
        "错误日志为空",
        "失败案例分析.md",
        "超时时间设置为 30 秒",
        "无法无天.mp4",
        "Notable changes since 1.2",
        "Your edits are saved",
        "The input looks right",
    ],
)
def test_an_answer_is_no_failure(text: str) -> None:
    assert error_class(text) is None


@pytest.mark.parametrize(
    ("arguments", "is_failure"),
    [
        ('{"command":"tool --help"}', False),
        ('{"command":"tool -h"}', False),
        ('{"command":"tool help"}', False),
        ('{"command":"man tool"}', False),
        ('{"command":"tool -x"}', True),
        ("", True),
    ],
)
def test_how_a_program_is_called_is_a_failure_unless_it_was_asked_for(
    arguments: str, is_failure: bool
) -> None:
    assert (error_class("usage: tool [-h] [--all]", arguments) is not None) is is_failure


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
        ("warning #3: slow", "warning #4: slow"),
        ("try 3 of 9: slow", "try 4 of 9: slow"),
        ("done in 2m 13s", "done in 1h 1m 58s"),
        ("real\t0m0.003s\nx", "real\t0m0.013s\nx"),
        ("took 1.2e-05s for it", "took 3.4e-06s for it"),
        ("took 1,234 milliseconds", "took 987 milliseconds"),
        ("seen 3 days ago", "seen a week ago"),
        ("耗时 12 秒，无变化", "耗时 9.5 秒，无变化"),
        ("第 3 次重试，无变化", "第 4 次重试，无变化"),
        ("[1] 12345\nstart: not here", "[1] 12399\nstart: not here"),
        ("Started server process [4711]", "Started server process [4822]"),
        ("pid=123 is gone", "pid=456 is gone"),
        ("listening on port 43121", "listening on port 51011"),
        ("127.0.0.1:43122 refused", "127.0.0.1:51013 refused"),
        ("java.lang.Object@1b6d3586 is null", "java.lang.Object@4554617c is null"),
        (
            r"wrote C:\Users\me\AppData\Local\Temp\tmpab\out",
            r"wrote C:\Users\me\AppData\Local\Temp\tmpcd\out",
        ),
        ("\x1b[31mno\x1b[0m in 3 ms", "no in 4 ms"),
        ("rows: 40%|## | 4/10 [00:01<00:02, 2.7it/s]", "rows: 40%|## | 4/10 [00:03<00:05, 1it/s]"),
        ("req_011CSHoEeqs5C35K2UU refused", "req_011CSZzYyqs5C35K2UX refused"),
        ('{"rows":[],"ts":1764545657}', '{"rows":[],"ts":1764545699}'),
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
        ("port 8080 is taken", "port 8081 is taken"),
        ("row 5m", "row 6m"),
        ("chapter 3h", "chapter 4h"),
        ("due in 3 days", "due in 5 days"),
        ("process 3 of 9", "process 4 of 9"),
        ("第 3 页", "第 4 页"),
        ("共 3 条", "共 4 条"),
        ("user@abcdef12.example.com", "user@abcdef34.example.com"),
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
        ("状态：运行中", True),
        ('{"status":"排队中"}', True),
        ('{"\\u72b6\\u6001":"\\u8fd0\\u884c\\u4e2d"}', True),
        ("行动计划", False),
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
        ('{"command":"Start-Sleep -Seconds 30; Get-Job"}', True),
        ("import time; time.sleep(30)", True),
        ('{"command":"grep -rn asleep 30"}', False),
        ('{"query":"how long do cats sleep"}', False),
    ],
)
def test_a_command_that_sleeps_before_it_looks_is_a_wait(arguments: str, waits: bool) -> None:
    assert sleeps(arguments) is waits


@pytest.mark.parametrize(
    ("reason", "helps"),
    [("request timed out", True), ("429 too many requests", True), ("table 4290 is gone", False)]
    + [("connect econnrefused", True), ("系统繁忙，请稍后再试", True), ("用户不存在", False)],
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
        "错误",
        "a不",
        "9次",
        "usage: a ",
        "\x1b[",
        "1,2",
        "1m ",
        "A@0",
        "exit code 1\n",
        "Temp/",
    ],
)
def test_a_hostile_text_costs_no_more_than_its_looked_at_part(part: str) -> None:
    text = part * 200_000
    for tried in (
        text,
        "Error: " + text,
        "usage: a " + text,
        "错" + text,
        "{" + text,
        '{"error":"' + text,
        text + " --:--",
    ):
        error_class(tried)
        result_class(tried, "digest")
    masked(text[:64_000] + " 3 ms, 9 it/s, 9秒, 1m 3s")  # some rules mask a whole result
