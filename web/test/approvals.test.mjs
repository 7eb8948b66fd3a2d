import assert from "node:assert/strict";
import { test } from "node:test";

import { approvalOf, openQuestion, strayApprovals } from "../../server/web/approvals.mjs";
import { reduce } from "../../server/web/state.mjs";
import { SESSION, call, finished, receive, result, runStarted, subscribe, subscribedState, tell, update } from "./frames.mjs";

const prompt = { id: "u1", content: "send it" };
const ask = (id, toolCallId, rest = {}) => ({
  id, toolCallId, reason: "tool_call", message: "May it run?", metadata: { toolName: "send_message", options: [] }, ...rest,
});
const listed = (id, toolCallId, rest = {}) => ({
  id, runId: "r1", toolCallId, toolName: "send_message", reason: "tool_call", message: "May it run?", status: "OPEN",
  arguments: '{"text":"hi"}', createdAt: "2026-01-01T00:00:00Z", ...rest,
});
const waiting = (...interrupts) => [runStarted("r1", prompt), ...call("c1", "send_message", '{"text":"hi"}'), finished("r1", "interrupt", { interrupts })];
const phases = (state) => state.chat.items.filter(({ kind }) => kind === "tool").map(({ phase }) => phase);
const words = (state) => state.chat.approvals.map(({ id, status, answeredBy }) => [id, status, answeredBy]);

test("a run that asks leaves its calls waiting, each beside its question", () => {
  const state = tell(subscribedState(), ...waiting(ask("i1", "c1")));
  assert.equal(state.chat.status, "WAITING");
  assert.deepEqual(phases(state), ["waiting"]);
  const approval = approvalOf(state.chat.approvals, "c1");
  assert.deepEqual([approval.status, approval.toolName, approval.runId], ["OPEN", "send_message", "r1"]);
});

test("the server's list and the log's interrupt are one question, whichever comes first", () => {
  const patch = update({ approvals: [listed("i1", "c1", { options: ["a"] })] });
  const [begun, asked] = [waiting().slice(0, -1), waiting(ask("i1", "c1")).at(-1)];
  const before = tell(receive(tell(subscribedState(), ...begun), patch), asked);
  const after = receive(tell(subscribedState(), ...begun, asked), { ...patch, rev: patch.rev + 100 });
  for (const state of [before, after]) {
    assert.equal(state.chat.approvals.length, 1);
    assert.deepEqual([state.chat.approvals[0].options, state.chat.approvals[0].arguments], [["a"], '{"text":"hi"}']);
  }
});

test("a reload shows the question at its call, and the calls of its round waiting", () => {
  const messages = [
    { id: "u1", seq: 1, role: "user", content: "send it", runId: "r1" },
    {
      id: "a1", seq: 2, role: "assistant", content: "", runId: "r1",
      toolCalls: ["c1", "c2"].map((id) => ({ id, type: "function", function: { name: "send_message", arguments: "{}" } })),
    },
  ];
  const state = subscribedState({ status: "WAITING", approvals: [listed("i1", "c1")], messages });
  assert.deepEqual(phases(state), ["waiting", "waiting"]);
  assert.equal(approvalOf(state.chat.approvals, "c1").id, "i1");
  assert.equal(approvalOf(state.chat.approvals, "c2"), undefined);
});

test("everybody sees who answered, and still does when the server's list has forgotten it", () => {
  const asked = tell(subscribedState(), ...waiting(ask("i1", "c1")));
  const answeredBy = { status: "APPROVED", answeredBy: "bob", answeredAt: "2026-01-01T00:01:00Z" };
  const told = receive(asked, update({ approvals: [listed("i1", "c1", answeredBy)] }));
  assert.deepEqual(words(told), [["i1", "APPROVED", "bob"]]);
  const over = receive(tell(told, runStarted("r2"), result("c1", "{}", {}), finished("r2")), update({ approvals: [] }));
  assert.deepEqual(words(over), [["i1", "APPROVED", "bob"]]);
  assert.deepEqual(phases(over), ["done"]);
});

test("a call goes on when its run does", () => {
  const state = tell(subscribedState(), ...waiting(ask("i1", "c1")), runStarted("r2"));
  assert.deepEqual(phases(state), ["running"]);
  assert.equal(state.chat.status, "RUNNING");
});

test("no question stays open in a run that goes on, even if nobody told how it was answered", () => {
  const state = tell(subscribedState(), ...waiting(ask("i1", "c1")), runStarted("r2"), finished("r2", "cancelled"));
  assert.deepEqual(words(state), []);
  assert.deepEqual(phases(state), ["stopped"]);
});

test("who was too late reads the winner's name, and goes on reading it", () => {
  const asked = tell(subscribedState(), ...waiting(ask("i1", "c1")));
  const refusal = { code: "approval_already_resolved", by: "bob", at: "2026-01-01T00:01:00Z" };
  const late = reduce(asked, { type: "answerRefused", session: SESSION, id: "i1", refusal });
  assert.deepEqual(late.chat.approvals[0].refusal, refusal);
  const told = receive(late, update({ approvals: [listed("i1", "c1", { status: "DENIED", answeredBy: "bob" })] }));
  assert.deepEqual([told.chat.approvals[0].status, told.chat.approvals[0].refusal], ["DENIED", refusal]);
});

test("what is written answers the question, and never a call that waits for a yes", () => {
  const question = ask("i2", "c2", { reason: "input_required", message: "Which one?" });
  const state = tell(subscribedState(), ...waiting(ask("i1", "c1"), question));
  assert.equal(openQuestion(state.chat.approvals).id, "i2");
  const answered = receive(state, update({ approvals: [listed("i1", "c1"), listed("i2", "c2", { reason: "input_required", status: "ANSWERED" })] }));
  assert.equal(openQuestion(answered.chat.approvals), undefined);
});

test("a question whose call stands on an older page is shown by itself", () => {
  const state = subscribedState({ status: "WAITING", approvals: [listed("i1", "c1")] });
  assert.deepEqual(strayApprovals(state.chat.approvals, state.chat.items).map(({ id }) => id), ["i1"]);
  const whole = tell(subscribedState(), ...waiting(ask("i1", "c1")));
  assert.deepEqual(strayApprovals(whole.chat.approvals, whole.chat.items), []);
});

test("a subscription after a broken line keeps what was answered and takes the rest from the server", () => {
  const asked = tell(subscribedState(), ...waiting(ask("i1", "c1")));
  const again = subscribe(asked, { mode: "replay", replayFrom: 99, status: "RUNNING", approvals: [listed("i1", "c1", { status: "APPROVED", answeredBy: "ann" })] });
  assert.deepEqual(words(again), [["i1", "APPROVED", "ann"]]);
});
