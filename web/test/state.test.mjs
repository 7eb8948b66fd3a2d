import assert from "node:assert/strict";
import { test } from "node:test";

import { NEW_KEY, composerOf } from "../../server/web/composers.mjs";
import { initialState, reduce } from "../../server/web/state.mjs";
import {
  SESSION, call, finished, numbered, receive, result, runStarted, seen, subscribe, subscribedState, tell, text, update,
} from "./frames.mjs";

const prompt = { id: "u1", content: "hello" };

test("a run grows text from deltas and ends completed", () => {
  const state = tell(subscribedState(), runStarted("r1", prompt), ...text("t1", "Hel", "lo"), finished("r1"));
  assert.deepEqual(seen(state), ["user:hello", "text:Hello"]);
  assert.equal(state.chat.status, "COMPLETED");
  assert.equal(state.chat.run, null);
});

test("a frame that came before is not applied again", () => {
  const once = tell(subscribedState(), runStarted("r1", prompt), ...text("t1", "one").slice(0, 2));
  const twice = receive(once, numbered(3, { type: "TEXT_MESSAGE_CONTENT", messageId: "t1", delta: "one" }));
  assert.equal(twice, once);
});

test("a merged frame stands for all its numbers", () => {
  const begun = tell(subscribedState(), runStarted("r1", prompt), text("t1")[0]);
  const delta = { type: "TEXT_MESSAGE_CONTENT", messageId: "t1", delta: "all of it" };
  const merged = receive(begun, numbered(9, delta, 3));
  assert.equal(merged.chat.cursor, 9);
  assert.equal(merged.chat.gap, false);
  const next = receive(merged, numbered(10, { ...delta, delta: "!" }));
  assert.deepEqual(seen(next), ["user:hello", "text:all of it!"]);
});

test("a missing frame asks for a new subscription instead of showing a hole", () => {
  const begun = tell(subscribedState(), runStarted("r1", prompt));
  const late = receive(begun, numbered(5, { type: "TEXT_MESSAGE_CONTENT", messageId: "t1", delta: "x" }));
  assert.equal(late.chat.gap, true);
  assert.deepEqual(seen(late), ["user:hello"]);
  assert.equal(subscribe(late).chat.gap, false);
});

test("a merged frame that begins before the cursor and ends after it counts as a gap", () => {
  const begun = tell(subscribedState(), runStarted("r1", prompt), ...text("t1", "ab").slice(0, 2));
  const delta = { type: "TEXT_MESSAGE_CONTENT", messageId: "t1", delta: "abcd" };
  const state = receive(begun, numbered(5, delta, 2));
  assert.equal(state.chat.gap, true);
  assert.deepEqual(seen(state), ["user:hello", "text:ab"]);
});

test("a snapshot in mid-run shows the history, then the run from its beginning", () => {
  const messages = [
    { id: "u0", seq: 1, role: "user", content: "before", runId: "r0" },
    { id: "a0", seq: 2, role: "assistant", content: "done", runId: "r0" },
  ];
  const answer = { status: "RUNNING", run: { id: "r1", cancelling: false, rounds: 2 }, replayFrom: 41, messages };
  const state = tell(subscribedState(answer), runStarted("r1", prompt), ...text("t1", "live").slice(0, 2));
  assert.deepEqual(seen(state), ["user:before", "text:done", "user:hello", "text:live"]);
  assert.equal(state.chat.cursor, 43);
  assert.equal(state.chat.run.round, 2);
});

test("a replay goes on from the cursor and keeps what is shown", () => {
  const before = tell(subscribedState(), runStarted("r1", prompt), ...text("t1", "one").slice(0, 2));
  const again = subscribe(before, { mode: "replay", replayFrom: 4, status: "RUNNING", run: { id: "r1", cancelling: false } });
  const after = tell(again, { type: "TEXT_MESSAGE_CONTENT", messageId: "t1", delta: " two" });
  assert.deepEqual(seen(after), ["user:hello", "text:one two"]);
  assert.equal(after.chat.run.startedAt, 1000);
});

test("a failed run shows its reason, and the answer of a later subscription shows the same", () => {
  const error = { type: "RUN_ERROR", message: "It went in circles.", code: "no_progress_loop", metadata: { retryable: true, runId: "r1" } };
  const live = tell(subscribedState(), runStarted("r1", prompt), ...call("c1", "grep_search", "{}"), error);
  assert.equal(live.chat.status, "FAILED");
  assert.equal(live.chat.error.message, "It went in circles.");
  assert.equal(live.chat.items[1].phase, "stopped");
  const executionError = { code: "no_progress_loop", message: "It went in circles.", retryable: true, runId: "r1", at: "2026-01-01T00:00:00Z" };
  const loaded = subscribedState({ status: "FAILED", executionError });
  assert.deepEqual([loaded.chat.status, loaded.chat.error], ["FAILED", executionError]);
});

test("the next run clears the error", () => {
  const failed = subscribedState({ status: "FAILED", executionError: { code: "internal", message: "no" } });
  const state = tell(failed, runStarted("r2", prompt));
  assert.equal(state.chat.error, null);
});

test("a subscription that names no error has none", () => {
  const failed = subscribedState({ status: "FAILED", executionError: { code: "internal", message: "no" } });
  assert.equal(subscribe(failed, { status: "COMPLETED" }).chat.error, null);
});

test("a stopped run keeps its partial text", () => {
  const state = tell(subscribedState(), runStarted("r1", prompt), ...text("t1", "half"), finished("r1", "cancelled"));
  assert.equal(state.chat.status, "CANCELLED");
  assert.deepEqual(seen(state), ["user:hello", "text:half"]);
});

test("a discarded attempt leaves the page", () => {
  const discard = { type: "CUSTOM", name: "headway.discarded", value: { messageIds: ["t1"], toolCallIds: ["c1"] } };
  const attempt = [runStarted("r1", prompt), ...text("t1", "wrong"), ...call("c1", "shell", "{}"), discard];
  const state = tell(subscribedState(), ...attempt, ...text("t2", "right"));
  assert.deepEqual(seen(state), ["user:hello", "text:right"]);
});

test("a steered message joins where the model sees it", () => {
  const joined = [
    { type: "TEXT_MESSAGE_START", messageId: "u2", role: "user" },
    { type: "TEXT_MESSAGE_CONTENT", messageId: "u2", delta: "and this" },
    { type: "TEXT_MESSAGE_END", messageId: "u2" },
  ];
  const state = tell(subscribedState(), runStarted("r1", prompt), ...text("t1", "one"), ...joined, ...text("t2", "two"));
  assert.deepEqual(seen(state), ["user:hello", "text:one", "user:and this", "text:two"]);
});

test("a call has its arguments, result, time and failure", () => {
  const failure = result("c1", '{"error":"x"}', { isError: true, durationMs: 40, exitCode: 2 });
  const state = tell(subscribedState(), runStarted("r1", prompt), ...call("c1", "shell", '{"command":"ls"}'), failure);
  const card = state.chat.items[1];
  assert.equal(card.args, '{"command":"ls"}');
  assert.equal(card.phase, "failed");
  assert.deepEqual([card.result.durationMs, card.result.exitCode, card.result.text], [40, 2, '{"error":"x"}']);
});

test("a picture in a result comes by its address", () => {
  const source = { type: "url", value: "/api/files/f1", mimeType: "image/png" };
  const parts = [{ type: "text", text: "{}" }, { type: "image", source }];
  const state = tell(subscribedState(), runStarted("r1", prompt), ...call("c1", "view_image", "{}"), result("c1", parts, {}));
  assert.equal(state.chat.items[1].result.text, "{}");
  assert.equal(state.chat.items[1].result.files[0].url, "/api/files/f1");
});

test("an unknown event and a subagent's text change nothing but the cursor", () => {
  const begun = tell(subscribedState(), runStarted("r1", prompt));
  const tagged = { type: "TEXT_MESSAGE_START", messageId: "x", role: "assistant", subagentRunId: "k" };
  const state = tell(begun, { type: "SOMETHING_NEW" }, tagged);
  assert.equal(state.chat.items, begun.chat.items);
  assert.equal(state.chat.cursor, begun.chat.cursor + 2);
});

test("a retry drops what followed its message", () => {
  const first = tell(subscribedState(), runStarted("r1", prompt), ...text("t1", "bad"), finished("r1"));
  const state = tell(first, runStarted("r2", prompt), ...text("t2", "good"));
  assert.deepEqual(seen(state), ["user:hello", "text:good"]);
});

test("a run that goes on after a restart keeps the rounds that are stored", () => {
  const messages = [
    { id: "u1", seq: 1, role: "user", content: "hello", runId: "r1" },
    { id: "a1", seq: 2, role: "assistant", content: "round one", runId: "r1" },
  ];
  const state = tell(subscribedState({ messages, instance: "i2" }), runStarted("r1", prompt), ...text("t2", "round two"));
  assert.deepEqual(seen(state), ["user:hello", "text:round one", "text:round two"]);
});

test("an edit replaces its message and all after it: this tab knows it, others are told", () => {
  const first = tell(subscribedState(), runStarted("r1", prompt), ...text("t1", "old"), finished("r1"));
  const message = { clientMsgId: "u9", session: SESSION, text: "better", files: [], editOf: "u1" };
  const edited = reduce(first, { type: "sent", message });
  const begin = runStarted("r2", { id: "u9", content: "better" });
  assert.deepEqual(seen(tell(edited, begin)), ["user:better"]);
  const discard = { type: "CUSTOM", name: "headway.discarded", value: { messageIds: ["u1", "t1"], toolCallIds: [] } };
  assert.deepEqual(seen(tell(first, begin, discard)), ["user:better"]);
});

test("the highest rev of the state wins", () => {
  const older = update({ title: "old" });
  const newer = update({ title: "new", status: "QUEUED" });
  const state = receive(subscribedState(), newer, older);
  assert.equal(state.chat.title, "new");
});

test("a null in a patch clears its key", () => {
  const failed = subscribedState({ status: "FAILED", executionError: { code: "internal", message: "no" } });
  const state = receive(failed, update({ executionError: null, run: null }));
  assert.equal(state.chat.error, null);
});

test("frames of another session are left alone", () => {
  const state = subscribedState();
  const frame = { ...numbered(1, runStarted("r1", prompt)), session: "other" };
  assert.equal(receive(state, frame), state);
});

test("a sent message is pending until the log has it, whichever comes first", () => {
  const message = { clientMsgId: "u1", session: SESSION, text: "hello", files: [] };
  const answer = { type: "answered", clientMsgId: "u1", answer: { runId: "r1" } };
  const sent = reduce(subscribedState(), { type: "sent", message });
  assert.equal(sent.pending.length, 1);
  const answeredFirst = reduce(sent, answer);
  assert.equal(answeredFirst.pending.length, 1);
  assert.equal(tell(answeredFirst, runStarted("r1", prompt)).pending.length, 0);
  assert.equal(reduce(tell(sent, runStarted("r1", prompt)), answer).pending.length, 0);
});

test("a command that is no message of the log does not stay pending", () => {
  const message = { clientMsgId: "u1", session: SESSION, text: "/compact", files: [] };
  const sent = reduce(subscribedState(), { type: "sent", message });
  const answered = reduce(sent, { type: "answered", clientMsgId: "u1", answer: { runId: "r1" } });
  assert.equal(tell(answered, runStarted("r1")).pending.length, 0);
});

test("a queued message leaves the pending ones, since the queue shows it", () => {
  const message = { clientMsgId: "u1", session: SESSION, text: "later", files: [] };
  const sent = reduce(subscribedState(), { type: "sent", message });
  const answer = { queued: { itemId: "q1", position: 1 } };
  assert.equal(reduce(sent, { type: "answered", clientMsgId: "u1", answer }).pending.length, 0);
});

test("our own files keep their names when the log tells only their ids", () => {
  const file = { id: "f1", name: "a.png", mediaType: "image/png" };
  const message = { clientMsgId: "u1", session: SESSION, text: "see", files: [file] };
  const sent = reduce(subscribedState(), { type: "sent", message });
  const source = { type: "url", value: "/api/files/f1" };
  const content = [{ type: "text", text: "see" }, { type: "document", source, metadata: { fileId: "f1" } }];
  const state = tell(sent, runStarted("r1", { id: "u1", content }));
  const [shown] = state.chat.items[0].files;
  assert.deepEqual([shown.name, shown.mediaType, shown.url], ["a.png", "image/png", "/api/files/f1"]);
  assert.equal(state.chat.items[0].text, "see");
});

test("the list mirrors title and status of the open session", () => {
  const listed = reduce(subscribedState(), { type: "sessions", sessions: [{ id: SESSION, title: null, status: "IDLE" }] });
  const state = receive(listed, update({ title: "Named", status: "RUNNING" }));
  assert.deepEqual(state.sessions[0], { id: SESSION, title: "Named", status: "RUNNING" });
});

test("a new session takes over the draft", () => {
  const drafted = reduce(initialState({ locale: "en" }), { type: "draft", key: NEW_KEY, text: "begun" });
  const state = reduce(drafted, { type: "created", session: { id: "n1", title: null, kind: "main", parent: null } });
  assert.equal(composerOf(state, "n1").text, "begun");
  assert.equal(composerOf(state, NEW_KEY).text, "");
  assert.equal(state.openId, "n1");
});

test("progress of a call and a compaction are shown", () => {
  const progress = { type: "ACTIVITY_SNAPSHOT", messageId: "p", activityType: "TOOL_PROGRESS", content: { toolCallId: "c1", text: "40 %" } };
  const compaction = (state) => ({ type: "ACTIVITY_SNAPSHOT", messageId: "k", activityType: "COMPACTION", content: { state } });
  const events = [runStarted("r1", prompt), ...call("c1", "shell", "{}"), progress, compaction("started"), compaction("finished")];
  const state = tell(subscribedState(), ...events);
  assert.equal(state.chat.items[1].progress, "40 %");
  assert.deepEqual(state.chat.items.slice(2).map((item) => item.state), ["finished"]);
});
