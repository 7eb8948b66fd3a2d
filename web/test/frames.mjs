/** What the server would send, for tests to fold. */

import { readAddress, sessionAddress } from "../../server/web/address.mjs";
import { initialState, reduce } from "../../server/web/state.mjs";

export const SESSION = "s1";

/** The state after `session.subscribe` was answered. */
export function subscribedState(answer = {}) {
  return subscribe(open(initialState({ locale: "en" }), SESSION), answer);
}

/** The page at the address of a session, and of one beside it. */
export function open(state, id, sideId) {
  return reduce(state, { type: "navigated", address: readAddress(sessionAddress(id, sideId)) });
}

export function subscribe(state, answer = {}) {
  const usual = { session: SESSION, instance: "i1", head: 0, replayFrom: 1, mode: "snapshot" };
  const facts = { status: "IDLE", queue: [], approvals: [], children: [], messages: [] };
  const whole = { ...usual, ...facts, ...answer };
  return reduce(state, { type: "subscribed", session: whole.session, answer: whole });
}

export function receive(state, ...frames) {
  return frames.reduce((now, frame) => reduce(now, { type: "frame", frame }), state);
}

/** Fold events of the open session, numbered on from where it stands. */
export function tell(state, ...events) {
  return tellOf(state, state.chat, ...events);
}

/** The same for the session of *chat*. */
export function tellOf(state, { id, cursor }, ...events) {
  return receive(state, ...events.map((event, at) => ({ ...numbered(cursor + 1 + at, event), session: id })));
}

export function numbered(seq, event, first) {
  return { type: "event", session: SESSION, seq, ...(first === undefined ? {} : { first }), event };
}

let rev = 0;

export function update(patch, session = SESSION) {
  return { type: "session.update", session, rev: ++rev, patch };
}

export function runStarted(runId, message, rest = {}) {
  const messages = message === undefined ? [] : [{ role: "user", ...message }];
  return { type: "RUN_STARTED", threadId: SESSION, runId, input: { messages }, timestamp: 1000, ...rest };
}

export const text = (messageId, ...deltas) => [
  { type: "TEXT_MESSAGE_START", messageId, role: "assistant" },
  ...deltas.map((delta) => ({ type: "TEXT_MESSAGE_CONTENT", messageId, delta })),
  { type: "TEXT_MESSAGE_END", messageId },
];

export const call = (toolCallId, toolCallName, args) => [
  { type: "TOOL_CALL_START", toolCallId, toolCallName, parentMessageId: "m" },
  { type: "TOOL_CALL_ARGS", toolCallId, delta: args },
  { type: "TOOL_CALL_END", toolCallId, timestamp: 2000 },
];

export const result = (toolCallId, content, metadata) => ({
  type: "TOOL_CALL_RESULT",
  messageId: `r-${toolCallId}`,
  toolCallId,
  content,
  metadata,
});

export const finished = (runId, type = "success", rest = {}) => ({
  type: "RUN_FINISHED",
  threadId: SESSION,
  runId,
  outcome: { type, ...rest },
});

/** `kind:text` of each item: what a reader sees, in order. */
export function seen(state) {
  return state.chat.items.map((item) => `${item.kind}:${item.text ?? item.name}`);
}
