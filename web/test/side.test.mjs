import assert from "node:assert/strict";
import { test } from "node:test";

import { NEW_SESSION, NEW_TASK, TASKS, readAddress, sessionAddress, taskAddress, taskFormAddress } from "../../server/web/address.mjs";
import { asideKey, composerOf } from "../../server/web/composers.mjs";
import { familyOf, relativesOf } from "../../server/web/family.mjs";
import { reduce } from "../../server/web/state.mjs";
import { SESSION, call, finished, open, receive, result, runStarted, subscribe, subscribedState, tell, tellOf, text, update } from "./frames.mjs";

const CHILD = "k1";
const beside = () => subscribe(open(subscribedState(), SESSION, CHILD), { session: CHILD });
const said = (chat) => chat.items.filter(({ text }) => text).map((item) => item.text);

test("an address names the session, the one beside it, or the tasks", () => {
  const ids = ({ view, id, sideId, taskId, isForm }) => [view, id, sideId, taskId, isForm];
  const read = (address) => ids(readAddress(address));
  assert.deepEqual(read(NEW_SESSION), ["session", null, null, null, false]);
  assert.deepEqual(read(sessionAddress("a/b")), ["session", "a/b", null, null, false]);
  assert.deepEqual(read(sessionAddress("a", "b c")), ["session", "a", "b c", null, false]);
  assert.deepEqual(read("#/s/a/side/a"), ["session", "a", null, null, false]);
  assert.deepEqual(read("#/s/%E0%A4%A"), ["session", "%E0%A4%A", null, null, false]);
  assert.deepEqual(read(TASKS), ["tasks", null, null, null, false]);
  assert.deepEqual(read(NEW_TASK), ["tasks", null, null, null, true]);
  assert.deepEqual(read(taskAddress("t/1")), ["tasks", null, null, "t/1", false]);
  assert.deepEqual(read(taskFormAddress("t1")), ["tasks", null, null, "t1", true]);
});

test("two sessions on the page grow side by side, each from its own log", () => {
  const both = tell(beside(), runStarted("r1", { id: "u1", content: "main" }), ...text("t1", "one").slice(0, 2));
  const aside = tellOf(both, both.side.chat, runStarted("r9", { id: "u9", content: "aside" }), ...text("t9", "nine"), finished("r9"));
  const on = tell(aside, { type: "TEXT_MESSAGE_CONTENT", messageId: "t1", delta: " two" });
  assert.deepEqual(said(on.chat), ["main", "one two"]);
  assert.deepEqual(said(on.side.chat), ["aside", "nine"]);
  assert.deepEqual([on.chat.status, on.side.chat.status], ["RUNNING", "COMPLETED"]);
});

test("a side question takes its words out of its own composer and is pending until its log has it", () => {
  const opened = reduce(subscribedState(), { type: "asideOpened", from: "m4" });
  const written = reduce(opened, { type: "draft", key: asideKey(SESSION), text: "by the way" });
  assert.deepEqual([written.side.from, written.side.chat, composerOf(written, SESSION).text], ["m4", null, ""]);
  const message = { clientMsgId: "u9", session: CHILD, text: "by the way", files: [], runId: "r9" };
  const started = reduce(written, { type: "asideStarted", parent: SESSION, message });
  assert.equal(composerOf(started, asideKey(SESSION)).text, "");
  assert.deepEqual([started.side.chat.id, started.side.chat.parent, started.pending.length], [CHILD, SESSION, 1]);
  const told = subscribe(started, { session: CHILD });
  assert.equal(tellOf(told, told.side.chat, runStarted("r9", { id: "u9", content: "by the way" })).pending.length, 0);
});

test("an answer to a side question that comes when one has gone elsewhere opens nothing", () => {
  const written = reduce(reduce(subscribedState(), { type: "asideOpened", from: null }), { type: "draft", key: asideKey(SESSION), text: "?" });
  const message = { clientMsgId: "u9", session: CHILD, text: "?", files: [] };
  const gone = reduce(open(written, "other"), { type: "asideStarted", parent: SESSION, message });
  assert.deepEqual([gone.side, gone.pending, composerOf(gone, asideKey(SESSION)).text], [null, [], ""]);
});

test("going elsewhere closes what stood beside; opening a child by itself keeps what was loaded", () => {
  const state = beside();
  assert.equal(open(state, "other").side, null);
  const alone = open(state, CHILD);
  assert.deepEqual([alone.chat, alone.side], [state.side.chat, null]);
});

test("each session keeps what is written to it", () => {
  const main = reduce(beside(), { type: "draft", key: SESSION, text: "to the main one" });
  const both = reduce(main, { type: "draft", key: CHILD, text: "to the side" });
  const back = open(open(both, "other"), SESSION);
  assert.deepEqual([composerOf(back, SESSION).text, composerOf(back, CHILD).text], ["to the main one", "to the side"]);
});

test("children are listed with their state, and a child on the page mirrors its own at once", () => {
  const row = { id: CHILD, kind: "sideline", title: null, status: "QUEUED", updatedAt: "2026-01-01T00:00:00Z" };
  const told = receive(beside(), update({ children: [row] }));
  assert.deepEqual(relativesOf(told.chat), [row]);
  const named = receive(told, update({ title: "Aside", status: "RUNNING" }, CHILD));
  assert.deepEqual(relativesOf(named.chat).map(({ title, status }) => [title, status]), [["Aside", "RUNNING"]]);
});

test("a child that is open by itself is listed under its parent", () => {
  const state = subscribe(open(subscribedState(), CHILD), { session: CHILD, kind: "subagent", parent: SESSION });
  assert.equal(familyOf(state.chat), SESSION);
  assert.deepEqual(relativesOf(state.chat).map(({ id, kind }) => [id, kind]), [[CHILD, "subagent"]]);
});

test("a subagent in the run is shown at its call, from its start to its end", () => {
  const start = { type: "SUBAGENT_STARTED", subagentRunId: "k", name: "look", parentToolCallId: "c1", metadata: { sessionId: CHILD } };
  const begun = tell(subscribedState(), runStarted("r1", { id: "u1", content: "go" }), ...call("c1", "spawn_subagent", "{}"), start);
  const card = (state) => state.chat.items.at(-1);
  assert.deepEqual([card(begun).childId, card(begun).subagent.status], [CHILD, "RUNNING"]);
  const done = tell(begun, { type: "SUBAGENT_FINISHED", subagentRunId: "k" });
  assert.equal(card(done).subagent.status, "COMPLETED");
  const failed = tell(begun, { type: "SUBAGENT_ERROR", subagentRunId: "k", message: "It broke.", code: "internal" });
  assert.deepEqual([card(failed).subagent.status, card(failed).subagent.reason], ["FAILED", "It broke."]);
});

test("after a reload the child is found in the result of the call that began it", () => {
  const told = result("c1", JSON.stringify({ child_session_id: CHILD, task_id: "x", status: "RUNNING" }), {});
  const state = tell(subscribedState(), runStarted("r1"), ...call("c1", "spawn_subagent", "{}"), told);
  assert.equal(state.chat.items.at(-1).childId, CHILD);
  const other = tell(subscribedState(), runStarted("r1"), ...call("c1", "shell", "{}"), told);
  assert.equal(other.chat.items.at(-1).childId, null);
});

test("deleting what stands beside closes it", () => {
  const state = reduce(beside(), { type: "deleted", id: CHILD });
  assert.deepEqual([state.side, state.openId], [null, SESSION]);
});
