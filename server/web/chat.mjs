/**
 * One session as a fold over what the server sends: the snapshot, the frames of its event log, and
 * the updates of its state. Pure: each function gives a new value and touches nothing else.
 */

import * as approvals from "./approvals.mjs";
import { readContent } from "./content.mjs";
import { newCall, toItems, withResult } from "./history.mjs";
import { readUsage } from "./usage.mjs";

export function emptyChat(id) {
  return {
    id,
    loaded: false,
    /** Which life of the server's log `cursor` counts in. */
    instance: null,
    /** Seq of the last frame that was applied. */
    cursor: 0,
    /** Frames are missing; only a fresh subscription mends it. */
    gap: false,
    rev: 0,
    title: null,
    /** What it is, and under which session it stands; null while unknown. */
    kind: null,
    parent: null,
    status: "IDLE",
    error: null,
    /** That the chat which began the last run could not be told of its end. */
    undelivered: null,
    /** `{id, cancelling, startedAt, round}` of the run in progress. */
    run: null,
    /** The run whose beginning the log told last. */
    toldRunId: null,
    queue: [],
    approvals: [],
    /** Side questions and subagents: `{id, kind, title, status, updatedAt}`. */
    children: [],
    usage: null,
    runUsage: null,
    items: [],
    orphans: [],
    oldest: null,
    hasMore: false,
    /** Our own edits on their way: message id of the new text -> the message it stands in for. */
    replaces: {},
  };
}

export function isRunning(chat) {
  return chat.status === "RUNNING";
}

export function isWaiting(chat) {
  return chat.status === "WAITING";
}

/** The stop button was pressed; the terminal event follows within a second. */
export function stopping(chat) {
  return chat.run === null ? chat : { ...chat, run: { ...chat.run, cancelling: true } };
}

/** The answer to `session.subscribe`; frames follow it. */
export function subscribed(chat, answer) {
  const { instance, kind = "main", parent = null } = answer;
  // What the answer leaves out is not so.
  const blank = { loaded: true, gap: false, instance, rev: 0, title: null, error: null, undelivered: null, run: null };
  const next = { ...chat, ...blank, kind, parent, ...facts(chat, answer) };
  if (answer.mode === "replay") return next;
  const messages = answer.messages ?? [];
  const oldest = messages[0]?.seq ?? null;
  const { items, orphans } = toItems(messages);
  return {
    ...next,
    items: next.approvals.length > 0 ? withWaitingCalls(items) : items,
    orphans,
    cursor: answer.replayFrom - 1,
    oldest,
    hasMore: answer.hasMore === true,
    runUsage: null,
  };
}

/** A round waits as a whole: no call of the last reply has run when one of them needs a word. */
function withWaitingCalls(items) {
  const begin = items.findLastIndex(({ kind, phase }) => kind !== "tool" || phase !== "stopped") + 1;
  return items.map((item, at) => (at < begin ? item : { ...item, phase: "waiting" }));
}

/** A page of older messages, put before what is shown. */
export function withOlder(chat, messages, hasMore) {
  const { items, orphans } = toItems([...messages, ...chat.orphans]);
  const oldest = messages[0]?.seq ?? chat.oldest;
  return { ...chat, items: [...items, ...chat.items], orphans, oldest, hasMore };
}

/** A `session.update`: state, not log; the highest `rev` wins. */
export function updated(chat, { rev, patch }) {
  return rev <= chat.rev ? chat : { ...chat, rev, ...facts(chat, patch) };
}

function facts(chat, patch) {
  const found = {};
  for (const key of ["title", "status"]) if (key in patch) found[key] = patch[key];
  if ("executionError" in patch) found.error = patch.executionError ?? null;
  if ("undelivered" in patch) found.undelivered = patch.undelivered ?? null;
  if ("queue" in patch) found.queue = patch.queue ?? [];
  if ("approvals" in patch) found.approvals = approvals.listed(chat.approvals, patch.approvals ?? []);
  if ("children" in patch) found.children = patch.children ?? [];
  if ("usage" in patch) found.usage = readUsage(patch.usage);
  if ("run" in patch) found.run = patch.run ? sameRun(chat.run, patch.run) : null;
  return found;
}

function sameRun(known, run) {
  const base = known?.id === run.id ? known : { startedAt: null, round: run.rounds ?? 0 };
  return { ...base, ...run };
}

/** One frame of the log: `first..seq` says which entries it stands for. */
export function advanced(chat, { seq, first = seq, event }) {
  if (seq <= chat.cursor) return chat;
  if (first !== chat.cursor + 1) return { ...chat, gap: true };
  const apply = HANDLERS[event.type];
  // What a subagent does inside the run has its own log; here one sees that it is at work.
  const isOfSubagent = event.subagentRunId !== undefined && !event.type.startsWith("SUBAGENT_");
  const isOurs = apply !== undefined && !isOfSubagent;
  return { ...(isOurs ? apply(chat, event) : chat), cursor: seq };
}

const HANDLERS = {
  RUN_STARTED: runStarted,
  RUN_FINISHED: runFinished,
  RUN_ERROR: runFailed,
  STEP_STARTED: stepStarted,
  TEXT_MESSAGE_START: textStarted,
  TEXT_MESSAGE_CONTENT: textAdded,
  TEXT_MESSAGE_END: (chat, event) => closed(chat, ["text", "user"], event.messageId),
  REASONING_MESSAGE_START: (chat, event) => opened(chat, "reasoning", event.messageId),
  REASONING_MESSAGE_CONTENT: (chat, event) => appended(chat, "reasoning", event.messageId, event.delta),
  REASONING_MESSAGE_END: (chat, event) => closed(chat, ["reasoning"], event.messageId),
  TOOL_CALL_START: callStarted,
  TOOL_CALL_ARGS: (chat, event) =>
    onCall(chat, event.toolCallId, (call) => ({ ...call, args: call.args + event.delta })),
  TOOL_CALL_END: (chat, event) =>
    onCall(chat, event.toolCallId, (call) => ({ ...call, phase: "running", since: event.timestamp })),
  TOOL_CALL_RESULT: callAnswered,
  SUBAGENT_STARTED: subagentStarted,
  SUBAGENT_FINISHED: (chat, event) => subagentEnded(chat, event, { status: "COMPLETED" }),
  SUBAGENT_ERROR: (chat, event) => subagentEnded(chat, event, { status: "FAILED", reason: event.message }),
  ACTIVITY_SNAPSHOT: activity,
  CUSTOM: custom,
};

function runStarted(chat, event) {
  const prompts = (event.input?.messages ?? []).filter((message) => message.role === "user");
  const items = withoutReplaced(chat, event, prompts[0]).map(goingOn);
  for (const message of prompts) {
    if (find(items, "user", message.id) >= 0) continue;
    const { text, files } = readContent(message.content);
    items.push({ kind: "user", id: message.id, text, files, runId: event.runId });
  }
  const run = sameRun(chat.run, { id: event.runId });
  return {
    ...chat,
    items,
    status: "RUNNING",
    error: null,
    approvals: approvals.answered(chat.approvals),
    runUsage: null,
    run: { ...run, startedAt: event.timestamp ?? null },
    toldRunId: event.runId,
    replaces: {},
  };
}

/** The call that waited for a word got it. */
function goingOn(item) {
  return item.phase === "waiting" ? { ...item, phase: "running" } : item;
}

/**
 * What stays of the items when a run begins. A retry or an edit starts from an earlier message and
 * what followed leaves the page; a run that goes on after a restart keeps all it has.
 */
function withoutReplaced(chat, event, prompt) {
  const { items } = chat;
  const goesOn = items.some((item) => item.runId === event.runId);
  if (prompt === undefined || goesOn) return items;
  const known = find(items, "user", prompt.id);
  if (known >= 0) return items.slice(0, known + 1);
  const edited = find(items, "user", chat.replaces[prompt.id]);
  return edited >= 0 ? items.slice(0, edited) : items;
}

const STATUS_OF = { success: "COMPLETED", cancelled: "CANCELLED", interrupt: "WAITING" };

function runFinished(chat, event) {
  const outcome = event.outcome ?? { type: "success" };
  const status = STATUS_OF[outcome.type] ?? "COMPLETED";
  const waiting = outcome.interrupts ?? [];
  const asked = approvals.interrupted(chat.approvals, waiting, event.runId);
  const phase = waiting.length > 0 ? "waiting" : "stopped";
  return ended({ ...chat, status, approvals: asked, error: null }, event, phase);
}

function runFailed(chat, event) {
  const { runId = chat.run?.id ?? null, retryable = true } = event.metadata ?? {};
  const { message, code, timestamp } = event;
  const error = { message, code, retryable, runId, at: timestamp ?? null };
  return ended({ ...chat, status: "FAILED", error }, event);
}

/** *phase* is that of the calls which have no result yet. */
function ended(chat, event, phase = "stopped") {
  const items = chat.items.map((item) => {
    if (item.phase === "calling" || item.phase === "running") return { ...item, phase };
    return item.open ? { ...item, open: false } : item;
  });
  return { ...chat, items, run: null, runUsage: readUsage(event.usage) };
}

function stepStarted(chat, event) {
  const round = Number(/^round-(\d+)$/.exec(event.stepName)?.[1]);
  return round && chat.run ? { ...chat, run: { ...chat.run, round } } : chat;
}

function textStarted(chat, event) {
  const { files } = readContent(event.metadata?.files);
  return opened(chat, event.role === "user" ? "user" : "text", event.messageId, files);
}

function textAdded(chat, event) {
  const steered = find(chat.items, "user", event.messageId) >= 0;
  return appended(chat, steered ? "user" : "text", event.messageId, event.delta);
}

function callStarted(chat, event) {
  if (find(chat.items, "tool", event.toolCallId) >= 0) return chat;
  const call = newCall(event.toolCallId, event.toolCallName, chat.run?.id);
  return { ...chat, items: [...chat.items, call] };
}

function callAnswered(chat, event) {
  const { isError = false, durationMs = null, ...rest } = event.metadata ?? {};
  const result = { ...rest, ...readContent(event.content), isError, durationMs };
  return onCall(chat, event.toolCallId, (call) => withResult(call, result));
}

function subagentStarted(chat, { subagentRunId, name, parentToolCallId, metadata }) {
  const subagent = { runId: subagentRunId, name, status: "RUNNING" };
  const childId = metadata?.sessionId ?? null;
  return onCall(chat, parentToolCallId, (call) => ({ ...call, subagent, childId }));
}

function subagentEnded(chat, { subagentRunId }, end) {
  const items = chat.items.map((item) =>
    item.subagent?.runId === subagentRunId ? { ...item, subagent: { ...item.subagent, ...end } } : item,
  );
  return { ...chat, items };
}

function activity(chat, event) {
  const { activityType: name, content, messageId: id } = event;
  if (name === "TOOL_PROGRESS") {
    const progress = content.text ?? content.message ?? "";
    return onCall(chat, content.toolCallId ?? id, (call) => ({ ...call, progress }));
  }
  if (name !== "COMPACTION") return chat;
  const note = { kind: "note", id, name, state: content.state, text: "", runId: chat.run?.id };
  const at = find(chat.items, "note", id);
  return { ...chat, items: at < 0 ? [...chat.items, note] : chat.items.with(at, note) };
}

/** What is withdrawn: an attempt of the model that broke off, or what a retry or an edit replaced. */
function custom(chat, event) {
  if (event.name !== "headway.discarded") return chat;
  const gone = new Set([...(event.value.messageIds ?? []), ...(event.value.toolCallIds ?? [])]);
  return { ...chat, items: chat.items.filter((item) => !gone.has(item.id)) };
}

/** From the end, where nearly all that is looked for stands. */
function find(items, kind, id) {
  return items.findLastIndex((item) => item.id === id && item.kind === kind);
}

function opened(chat, kind, id, files = []) {
  const at = find(chat.items, kind, id);
  if (at >= 0) return { ...chat, items: chat.items.with(at, { ...chat.items[at], open: true }) };
  const item = { kind, id, text: "", files, open: true, runId: chat.run?.id };
  return { ...chat, items: [...chat.items, item] };
}

function appended(chat, kind, id, delta) {
  const at = find(chat.items, kind, id);
  if (at < 0) return appended(opened(chat, kind, id), kind, id, delta);
  const item = chat.items[at];
  return { ...chat, items: chat.items.with(at, { ...item, text: item.text + delta }) };
}

function closed(chat, kinds, id) {
  const at = chat.items.findLastIndex((item) => item.id === id && kinds.includes(item.kind));
  if (at < 0) return chat;
  return { ...chat, items: chat.items.with(at, { ...chat.items[at], open: false }) };
}

function onCall(chat, id, change) {
  const at = find(chat.items, "tool", id);
  return at < 0 ? chat : { ...chat, items: chat.items.with(at, change(chat.items[at])) };
}
