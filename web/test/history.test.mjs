import assert from "node:assert/strict";
import { test } from "node:test";

import { emptyChat, subscribed, withOlder } from "../../server/web/chat.mjs";
import { toItems } from "../../server/web/history.mjs";

const asks = (id, seq, callId) => ({
  id, seq, role: "assistant", content: "", toolCalls: [{ id: callId, type: "function", function: { name: "shell", arguments: "{}" } }],
});
const answers = (id, seq, toolCallId) => ({ id, seq, role: "tool", toolCallId, content: "ok", durationMs: 7 });

test("an assistant message becomes thoughts, text and calls, in this order", () => {
  const message = { ...asks("a1", 1, "c1"), content: "I look.", reasoning: "hm" };
  const { items } = toItems([message]);
  assert.deepEqual(items.map(({ kind }) => kind), ["reasoning", "text", "tool"]);
});

test("a result goes into its call's card", () => {
  const { items } = toItems([asks("a1", 1, "c1"), answers("m2", 2, "c1")]);
  assert.equal(items.length, 1);
  assert.deepEqual([items[0].phase, items[0].result.text, items[0].result.durationMs], ["done", "ok", 7]);
});

test("a call without a result is shown as not finished", () => {
  assert.equal(toItems([asks("a1", 1, "c1")]).items[0].phase, "stopped");
});

test("a stored picture is shown with its result", () => {
  const picture = { fileId: "f1", mediaType: "image/png", url: "/api/files/f1" };
  const { items } = toItems([asks("a1", 1, "c1"), { ...answers("m2", 2, "c1"), picture }]);
  assert.deepEqual(items[0].result.files.map(({ url, mediaType }) => [url, mediaType]), [["/api/files/f1", "image/png"]]);
});

test("what no person wrote is a note, not a message of the user", () => {
  const { items } = toItems([{ id: "s1", seq: 1, role: "user", content: "summary", synthetic: true }]);
  assert.equal(items[0].kind, "note");
});

test("a result whose call stands on an older page finds it when that page comes", () => {
  const answer = { instance: "i", mode: "snapshot", replayFrom: 1, status: "IDLE", hasMore: true, messages: [answers("m2", 2, "c1")] };
  const chat = subscribed(emptyChat("s"), answer);
  assert.deepEqual([chat.items.length, chat.hasMore], [0, true]);
  const whole = withOlder(chat, [asks("a1", 1, "c1")], false);
  assert.equal(whole.items[0].phase, "done");
  assert.deepEqual([whole.orphans.length, whole.hasMore], [0, false]);
});

test("an answered question is read as a question and its answer", () => {
  const question = { id: "c1", type: "function", function: { name: "ask_user", arguments: '{"question":"Which one?","options":[]}' } };
  const asked = { id: "a1", seq: 1, role: "assistant", content: "", toolCalls: [question] };
  const said = (content, isError) => toItems([asked, { id: "m2", seq: 2, role: "tool", toolCallId: "c1", content, isError }]).items[0].asked;
  assert.deepEqual(said('{"answer":"The first."}'), { question: "Which one?", answer: "The first." });
  assert.equal(said('{"error":"denied"}', true), null);
  assert.equal(said("[cut]"), null);
});
