"""`headway replay`: policies over transcripts of our own making and over a stored session."""

import gzip
import json
import tracemalloc
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from guard.policies import DEFAULT, POLICIES, STRICT
from server.errors import BadRequest, NotFound
from server.replay import Costs, Trace, replay
from server.replay_read import read_labels, read_session, read_traces, trace_files
from server.replay_text import cost_lines, trace_lines
from server.store.engine import Store
from tests.fakes.llm import call, forever, reply, serve_gateway
from tests.house import is_title, open_house, settings_for
from tests.server.test_cli import ending, environment, run, started

Line = dict[str, Any]
Step = tuple[str, dict[str, Any], str] | str
"""A tool, its arguments and its result; or what a person says."""


def transcript(trace_id: str, *steps: Step) -> list[Line]:
    """The lines of a trace: a header, the task, and a round for each step."""
    lines: list[Line] = [
        {"format": "agent-trace/1", "trace_id": trace_id, "model": "m-1"},
        {"role": "user", "content": "the task"},
    ]
    for number, step in enumerate(steps):
        if isinstance(step, str):
            lines.append({"role": "user", "content": step})
            continue
        tool, arguments, result = step
        function = {"name": tool, "arguments": json.dumps(arguments)}
        calls = [{"id": f"c{number}", "type": "function", "function": function}]
        lines.append({"role": "assistant", "content": "thought", "tool_calls": calls})
        lines.append({"role": "tool", "tool_call_id": f"c{number}", "content": result})
    return lines


def search(query: str, result: str) -> Step:
    return ("search", {"query": query}, result)


def written(file: Path, *traces: list[Line]) -> Path:
    text = "".join(json.dumps(line) + "\n" for lines in traces for line in lines)
    data = text.encode()
    file.write_bytes(gzip.compress(data) if file.suffix == ".gz" else data)
    return file


REWORDED = transcript(
    "reworded",
    *[search(f"memory update v{n}", "Error: index 'docs' is not there") for n in range(9)],
)
"""Other actions that are the same in meaning."""

RETRIED = transcript(
    "retried",
    *[("fetch", {"url": "a"}, '{"error":"timed out"}')] * 3,
    ("fetch", {"url": "a"}, "the page"),
    ("read", {"path": "b"}, "more"),
)
"""The same action, where another try is allowed and helps."""

NOISY = transcript(
    "noisy",
    *[("status", {}, f'{{"open":2,"checked":"10:00:{n:02}","took_ms":{n}}}') for n in range(9)],
)
"""Results that change, and nothing that matters does."""

FINISHED = transcript("finished", search("a", "A"), *[search("b", "the answer")] * 9)
"""The task is done, and the model goes on."""

WORKING = transcript(
    "working",
    *[("edit", {"patch": n}, "updated successfully") for n in range(14)],
    "go on",
    *[("test", {}, f"failed at line {n}") for n in range(14)],
)

ALL = (REWORDED, RETRIED, NOISY, FINISHED, WORKING)
LABELS = [
    {"trace_id": "reworded", "label": "degenerate"},
    {"trace_id": "retried", "label": "retry"},
    {"trace_id": "noisy", "label": "degenerate"},
    {"trace_id": "finished", "label": "degenerate"},
    {"trace_id": "working", "label": "progress"},
]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    folder = tmp_path / "corpus"
    folder.mkdir()
    written(folder / "b.jsonl.gz", REWORDED, RETRIED)
    written(folder / "a.jsonl", NOISY, FINISHED, WORKING)
    (folder / "labels.json").write_text(json.dumps(LABELS))
    (folder / "README.md").write_text("not a transcript")
    return folder


def traces_in(folder: Path) -> dict[str, Trace]:
    return {trace.id: trace for file in trace_files(folder) for trace in read_traces(file)}


@pytest.mark.parametrize(
    ("trace_id", "stop"),
    [
        ("reworded", (8, "same_error", "no_progress_loop")),
        ("retried", None),
        ("noisy", (6, "interleaved_repeat", "no_progress_loop")),
        ("finished", (7, "interleaved_repeat", "no_progress_loop")),
        ("working", None),
    ],
)
def test_each_kind_of_run_has_its_stop_reason(
    corpus: Path, trace_id: str, stop: tuple[int, str, str] | None
) -> None:
    made = replay(STRICT, traces_in(corpus)[trace_id])
    found = [(number, why.rule, why.code) for number, why in made.stops]
    assert found == ([] if stop is None else [stop])
    assert not replay(DEFAULT, traces_in(corpus)[trace_id]).stops


def test_a_stopped_run_goes_on_when_a_person_speaks(tmp_path: Path) -> None:
    loop = [search("a", "A")] * 8
    file = written(tmp_path / "t.jsonl", transcript("t", *loop, "again", *loop))
    [trace] = read_traces(file)
    made = replay(STRICT, trace)
    assert [number for number, _ in made.stops] == [6, 14]
    assert [n for n, ruling in enumerate(made.rulings, 1) if ruling is None] == [7, 8, 15, 16]
    assert made.saved_rounds == 4


def test_tokens_are_those_of_the_rounds_not_played(tmp_path: Path) -> None:
    lines = transcript("t", *[search("a", "A")] * 8)
    for number, line in enumerate(line for line in lines if line.get("role") == "assistant"):
        line["usage"] = {"prompt_tokens": 100 * number, "completion_tokens": 7}
    [told] = read_traces(written(tmp_path / "told.jsonl", lines))
    assert not told.is_estimated
    assert replay(STRICT, told).saved_tokens == 600 + 700 + 14
    [guessed] = read_traces(
        written(tmp_path / "guessed.jsonl", transcript("t", *[search("a", "A" * 400)] * 8))
    )
    assert guessed.is_estimated
    assert replay(STRICT, guessed).saved_tokens > 2 * 600


def test_a_synthetic_message_and_an_unfinished_round_change_nothing(tmp_path: Path) -> None:
    lines = transcript("t", *[search("a", "A")] * 15)
    lines.insert(10, {"role": "user", "content": "a note", "synthetic": True})
    cut = {"id": "cut", "function": {"name": "search", "arguments": "{}"}}
    lines.append({"role": "assistant", "content": "", "tool_calls": [cut]})
    [trace] = read_traces(written(tmp_path / "t.jsonl", lines))
    assert (len(trace.rounds), trace.unfinished) == (15, 1)
    made = replay(DEFAULT, trace)
    assert [number for number, _ in made.stops] == [15]
    shown = list(trace_lines(trace, [made], None, by_round=False))
    assert shown[0] == "t: 15 rounds, 1 more lack a result, m-1"


def test_a_call_without_a_result_in_the_middle_takes_its_round_out(tmp_path: Path) -> None:
    lines = transcript("t", *[search("a", "A")] * 6)
    assert lines.pop(7)["role"] == "tool"
    [trace] = read_traces(written(tmp_path / "t.jsonl", lines))
    assert (len(trace.rounds), trace.unfinished) == (5, 1)
    assert replay(DEFAULT, trace).nudges[0][0] == 5


def test_a_transcript_has_no_contract_and_a_name_of_ours_in_it_means_nothing(
    tmp_path: Path,
) -> None:
    steps: Sequence[Step] = [("hand_off", {"reason": "x"}, "ok"), search("a", "A")]
    lines = transcript("t", *steps)
    lines[0]["contract"] = {"id": "facts"}
    lines[3]["values"] = {"f1": True}
    [trace] = read_traces(written(tmp_path / "t.jsonl", lines))
    assert not replay(STRICT, trace).has_spoken
    assert trace.runs == ()


def test_what_a_transcript_says_of_itself_is_fit_for_a_terminal(tmp_path: Path) -> None:
    lines = transcript("t\x1b[31m\ud800", search("a", "A"))
    lines[0]["model"] = "m\n\x1b]0;x"
    [trace] = read_traces(written(tmp_path / "t.jsonl", lines))
    shown = list(trace_lines(trace, [replay(DEFAULT, trace)], None, by_round=True))
    assert shown[0] == "t?[31m?: 1 rounds, m??]0;x"


def test_a_mark_before_the_first_line_is_no_part_of_it(tmp_path: Path) -> None:
    file = written(tmp_path / "t.jsonl", RETRIED)
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    assert [trace.id for trace in read_traces(file)] == ["retried"]


def test_a_large_file_is_read_one_trace_at_a_time(tmp_path: Path) -> None:
    result = "x" * 100_000
    file = tmp_path / "large.jsonl"
    with file.open("w") as out:
        for number in range(200):
            steps = [search(f"{number} {step}", result) for step in range(5)]
            out.writelines(json.dumps(line) + "\n" for line in transcript(f"t{number}", *steps))
    tracemalloc.start()
    try:
        for trace in read_traces(file):
            replay(STRICT, trace)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert file.stat().st_size > 100_000_000
    assert most < 20_000_000


def test_the_two_costs_are_told_apart(corpus: Path) -> None:
    costs = Costs([DEFAULT, STRICT], read_labels(corpus / "labels.json"))
    for trace in traces_in(corpus).values():
        costs.add(trace, [replay(policy, trace) for policy in (DEFAULT, STRICT)])
    (_, loose, idle), (_, loops, healthy) = costs.labelled()
    assert (loops.traces, loops.stopped, loops.saved_rounds) == (3, 3, 1 + 3 + 3)
    assert (healthy.traces, healthy.stopped, healthy.saved_tokens) == (2, 0, 0)
    assert (loose.stopped, loose.reminded_only, idle.reminded) == (0, 1, 0)
    lines = list(cost_lines(costs, has_labels=True))
    assert lines[0].split() == (
        "source policy traces reminded stopped rounds rounds saved tokens saved".split()
    )
    assert [line.split()[:5] for line in lines[1:7]] == [
        ["a", "default@1", "3", "1", "0"],
        ["a", "strict@1", "3", "3", "2"],
        ["b", "default@1", "2", "0", "0"],
        ["b", "strict@1", "2", "1", "1"],
        ["all", "default@1", "5", "1", "0"],
        ["all", "strict@1", "5", "4", "3"],
    ]
    assert [line.split()[:5] for line in lines[-2:]] == [
        ["default@1", "3", "0", "1", "2"],
        ["strict@1", "3", "3", "0", "0"],
    ]


def test_policies_that_end_it_elsewhere_are_named(corpus: Path) -> None:
    trace = traces_in(corpus)["finished"]
    made = [replay(policy, trace) for policy in POLICIES.values()]
    lines = list(trace_lines(trace, made, "degenerate", by_round=False))
    assert lines[0] == "finished: 10 rounds, m-1, degenerate"
    assert lines[1] == "  default@1     reminds after 6 (no_progress 5)"
    assert lines[5] == (
        "  differ: default@1, research@1 go on; strict@1, unattended@1 stop after 7"
    )


WRONG: Sequence[tuple[str, Callable[[Path], Path], str]] = [
    ("text", lambda file: written_text(file, "hello\n"), "t.jsonl, line 1"),
    ("a list", lambda file: written_text(file, "[]\n"), "t.jsonl, line 1"),
    ("no header", lambda file: written(file, REWORDED[1:]), "t.jsonl, line 1"),
    ("another format", lambda file: written(file, REWORDED, [{"trace_id": "x"}]), "line 21"),
    ("empty", lambda file: written_text(file, ""), "t.jsonl: is empty; a transcript is one JSON"),
    ("blank lines", lambda file: written_text(file, "\n \n"), "t.jsonl: is empty"),
    (
        "a message with an id before any header",
        lambda file: written(file, [{"role": "user", "trace_id": "x"}], REWORDED),
        "t.jsonl, line 1: not agent-trace/1",
    ),
    ("deep", lambda file: written_text(file, '{"a":' + "[" * 100_000), "t.jsonl, line 1"),
    ("not packed", lambda file: written_text(packed(file), "x"), "no whole gzip file; get it anew"),
    ("cut", lambda file: damaged(file, lambda data: data[:-20]), "no whole gzip file"),
    ("damaged", lambda file: damaged(file, scratched), "no whole gzip file"),
    ("a wrong sum", lambda file: damaged(file, lambda d: d[:-8] + bytes(8)), "no whole gzip file"),
    ("packed, not named so", lambda file: unnamed(file), "is not UTF-8 text; add .gz to its name"),
    ("not there", lambda file: file, r"t.jsonl: cannot be read \(No such file or directory\)"),
    ("a folder", lambda file: a_folder(file), r"cannot be read \(Is a directory\)"),
]


def a_folder(path: Path) -> Path:
    path.mkdir()
    return path


def packed(file: Path) -> Path:
    return file.with_suffix(".jsonl.gz")


def damaged(file: Path, spoil: Callable[[bytes], bytes]) -> Path:
    made = written(packed(file), REWORDED, RETRIED)
    made.write_bytes(spoil(made.read_bytes()))
    return made


def scratched(data: bytes) -> bytes:
    """*data* with bytes inside of it that no packing has."""
    return data[:40] + b"\xff" * 20 + data[60:]


def unnamed(file: Path) -> Path:
    return written(packed(file), REWORDED).rename(file)


def written_text(file: Path, text: str) -> Path:
    file.write_text(text)
    return file


@pytest.mark.parametrize(("make", "words"), [each[1:] for each in WRONG], ids=[w[0] for w in WRONG])
def test_what_is_no_transcript_is_refused_with_its_line(
    tmp_path: Path, make: Callable[[Path], Path], words: str
) -> None:
    with pytest.raises(BadRequest, match=words):
        list(read_traces(make(tmp_path / "t.jsonl")))


@pytest.mark.parametrize(
    "text",
    ["", "{}", '[{"trace_id":"a"}]', '[{"trace_id":"a","label":"good"}]', "[1]", "[" * 100_000],
)
def test_what_are_no_labels_is_refused(tmp_path: Path, text: str) -> None:
    if text == "{}":
        assert read_labels(written_text(tmp_path / "labels.json", text)) == {}
        return
    with pytest.raises(BadRequest, match="labels.json"):
        read_labels(written_text(tmp_path / "labels.json", text))


async def test_a_stored_session_is_judged_as_it_was_lived(
    tmp_path: Path, database_url: str
) -> None:
    looping = reply(calls=[call("list_dir", {"path": "."})])
    async with (
        serve_gateway(forever(looping), title=is_title) as gateway,
        open_house(settings_for(tmp_path, database_url, gateway.url)) as house,
    ):
        session = await house.create()
        await house.ask(session, "go")
        [lived] = await house.runs(session)
        decisions = await house.decisions(lived.id)
        trace = await read_session(house.state["store"], session.id)
    made = replay(DEFAULT, trace)
    asked = [*((n, "nudge") for n, _ in made.nudges), *((n, "abort") for n, _ in made.stops)]
    assert asked == [(d.round, d.verdict) for d in decisions if d.verdict != "none"]
    assert [call_.result_digest for round_ in trace.rounds for call_ in round_.calls] == [
        decision.result_digest for decision in decisions
    ]
    assert not trace.is_estimated
    assert replay(STRICT, trace).saved_rounds == 9


async def test_a_session_that_is_not_there_is_not_found(store: Store) -> None:
    with pytest.raises(NotFound):
        await read_session(store, "no-such-session")


async def printed_twice(environ: Mapping[str, str], *arguments: str, folder: Path) -> list[str]:
    """What a command prints under two hash seeds, which a forked one would not take."""
    outputs = []
    for seed in ("1", "2"):
        async with started(
            {**environ, "PYTHONHASHSEED": seed}, *arguments, folder=folder
        ) as process:
            code, out, err = await ending(process)
        assert (code, err) == (0, "")
        outputs.append(out)
    return outputs


async def test_the_command_prints_the_same_bytes_each_time_and_no_words(
    corpus: Path, tmp_path: Path
) -> None:
    arguments = ("replay", str(corpus), "--rounds")
    outputs = await printed_twice(environment(tmp_path / "data"), *arguments, folder=tmp_path)
    assert outputs[0] == outputs[1]
    for words in ("memory update", "the answer", "successfully", "thought", "the task"):
        assert words not in outputs[0]
    for words in ("strict@1", "not played", "search:", "[failed]", "differ:", "healthy"):
        assert words in outputs[0]
    assert not (tmp_path / "data").exists()


async def test_the_command_takes_some_policies_and_only_the_tables(
    corpus: Path, tmp_path: Path
) -> None:
    arguments = ("replay", str(corpus / "a.jsonl"), "--policy", "strict@1", "--summary")
    code, out, _ = await run(environment(tmp_path / "data"), *arguments, folder=tmp_path)
    assert code == 0
    assert [line.split()[:3] for line in out.splitlines()[1:3]] == [
        ["a", "strict@1", "3"],
        ["all", "strict@1", "3"],
    ]
    assert "default@1" not in out


async def test_what_cannot_be_replayed_is_one_line(
    corpus: Path, tmp_path: Path, sqlite_url: str
) -> None:
    (tmp_path / "none").mkdir()
    written_text(tmp_path / "empty.jsonl", "")
    environ = environment(tmp_path / "data", DATABASE_URL=sqlite_url)
    for arguments, words in (
        ((str(corpus), "--policy", "lax@9"), "there is no policy lax@9; known are default@1"),
        ((str(corpus / "README.md"),), "README.md, line 1: not agent-trace/1, which is one JSON"),
        ((str(tmp_path / "none"),), "none: no .jsonl and no .jsonl.gz in this folder; name the"),
        (("empty.jsonl",), "empty.jsonl: is empty; a transcript is one JSON object a line"),
        (("missing.jsonl",), "there is no file or folder missing.jsonl"),
        (("some/folder",), "there is no file or folder some/folder"),
        (("s1",), "there is no file, no folder and no session s1; GET /api/sessions lists"),
        (("n" * 300,), "there is no file, no folder and no session nnn"),
        (("n\udcff",), "there is no file, no folder and no session n"),
        ((str(corpus), "--labels", "no.json"), "no.json: cannot be read (No such file"),
        ((str(corpus), "--labels", "empty.jsonl"), "empty.jsonl: no labels; a JSON list of"),
    ):
        code, out, err = await run(environ, "replay", *arguments, folder=tmp_path)
        assert (code, out) == (1, ""), err
        assert err.startswith(f"✗ {words}")
        assert len(err.splitlines()) == 1


async def test_a_name_of_nothing_is_told_as_such_where_there_is_no_database(tmp_path: Path) -> None:
    for url, reason in (
        (f"sqlite:///{tmp_path / 'no' / 'headway.db'}", "the database file cannot be opened"),
        (f"sqlite:///{tmp_path / 'new.db'}", "headway migrate"),
    ):
        environ = environment(tmp_path / "data", DATABASE_URL=url)
        code, out, err = await run(environ, "replay", "s1", folder=tmp_path)
        assert (code, out) == (2, "")
        assert err.startswith("headway: there is no file or folder s1, and sessions cannot be read")
        assert reason in err
        assert len(err.splitlines()) == 1


async def test_labels_without_a_trace_are_named(corpus: Path, tmp_path: Path) -> None:
    more = [{"trace_id": f"gone-{n}", "label": "progress"} for n in range(6)]
    (corpus / "labels.json").write_text(json.dumps([*LABELS, *more]))
    environ = environment(tmp_path / "data")
    code, out, err = await run(environ, "replay", str(corpus), "--summary", folder=tmp_path)
    assert (code, len(out.splitlines()[-1].split())) == (0, 12)
    assert err == (
        "! 6 labels name no trace that was read: gone-0, gone-1, gone-2, gone-3, gone-4, …\n"
    )
    one = str(corpus / "a.jsonl")
    _, _, err = await run(environ, "replay", one, "--summary", folder=tmp_path)
    assert err == ""  # those beside a transcript are for the whole folder


async def test_the_command_knows_the_policies_of_the_settings(corpus: Path, tmp_path: Path) -> None:
    config = tmp_path / "headway.toml"
    config.write_text('[policy.define."team@1".budget]\nrounds = 2\n', "utf-8")
    environ = environment(tmp_path / "data", CONFIG=str(config))
    code, out, err = await run(
        environ, "replay", str(corpus), "--policy", "team@1", "--rounds", folder=tmp_path
    )
    assert (code, err) == (0, "")
    assert "team@1" in out
    assert "team@1    stops after 2 (budget 2, budget_rounds): 7 rounds" in out


async def test_the_command_finds_a_session_in_the_database(tmp_path: Path, sqlite_url: str) -> None:
    looping = reply(calls=[call("list_dir", {"path": "."})])
    async with (
        serve_gateway(forever(looping), title=is_title) as gateway,
        open_house(settings_for(tmp_path, sqlite_url, gateway.url)) as house,
    ):
        session = await house.create()
        await house.ask(session, "go")
        [lived] = await house.runs(session)
    environ = environment(tmp_path / "data", DATABASE_URL=sqlite_url)
    out, again = await printed_twice(environ, "replay", session.id, "--rounds", folder=tmp_path)
    assert out == again
    assert f"{session.id}: 15 rounds, default\n  default@1     reminds after 5" in out
    assert f"  run {lived.id}: no contract, no_progress_loop\n" in out
