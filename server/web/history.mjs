/** Stored messages as the items the page draws. */

import { readContent } from "./content.mjs";

/** The tool whose result names a session, and the one whose result is a person's answer. */
const SPAWN = "spawn_subagent";
const ASK = "ask_user";

/**
 * @param {Array<object>} messages ascending by `seq`
 * @returns {{items: Array<object>, orphans: Array<object>}} `orphans` are tool messages whose call
 *   stands on an older page; give them again, after that page's messages, once it is loaded
 */
export function toItems(messages) {
  const items = [];
  const orphans = [];
  const callAt = new Map();
  for (const message of messages) {
    if (message.role === "user") items.push(userItem(message));
    else if (message.role === "assistant") addAssistant(items, callAt, message);
    else if (callAt.has(message.toolCallId)) {
      const at = callAt.get(message.toolCallId);
      items[at] = withResult(items[at], storedResult(message));
    } else if (message.role === "tool") orphans.push(message);
  }
  return { items, orphans };
}

function userItem(message) {
  const { text, files } = readContent(message.content);
  const { id, runId } = message;
  if (message.synthetic) return { kind: "note", id, name: "COMPACTION", state: "finished", text, runId };
  return { kind: "user", id, text, files, runId };
}

function addAssistant(items, callAt, message) {
  const { id, runId } = message;
  const { text } = readContent(message.content);
  if (message.reasoning) items.push({ kind: "reasoning", id, text: message.reasoning, runId });
  if (text) items.push({ kind: "text", id, text, runId });
  for (const call of message.toolCalls ?? []) {
    callAt.set(call.id, items.length);
    const { name, arguments: args } = call.function;
    items.push({ ...newCall(call.id, name, runId), args, phase: "stopped" });
  }
}

/**
 * A call as it begins; `phase` is calling, running, waiting (for a person's word), done, failed or
 * stopped (no result came). `subagent` is the child run that it waits for: `{runId, name, status,
 * reason}`; `childId` the session that it began; `asked` the question that it
 * put and the answer to it: `{question, answer}`.
 */
export function newCall(id, name, runId) {
  const begun = { args: "", phase: "calling", result: null, progress: "", subagent: null };
  return { kind: "tool", id, name, runId, ...begun, childId: null, asked: null };
}

function storedResult(message) {
  const { text, files } = readContent(message.content);
  const picture = message.picture ? readContent([message.picture]).files : [];
  return {
    text,
    files: [...files, ...picture],
    isError: Boolean(message.isError),
    durationMs: message.durationMs ?? null,
  };
}

/** @param {{text, files, isError, durationMs}} result */
export function withResult(call, result) {
  const phase = result.isError ? "failed" : "done";
  return { ...call, ...saidBy(call, result.text), result, phase, progress: "" };
}

function saidBy({ name, args, childId }, text) {
  if (name === SPAWN) return { childId: childId ?? fieldOf(text, "child_session_id") };
  if (name !== ASK) return {};
  const answer = fieldOf(text, "answer");
  return { asked: answer === null ? null : { question: fieldOf(args, "question"), answer } };
}

/** A text in an object of JSON; null where there is none, as in a result that was cut. */
function fieldOf(json, key) {
  try {
    const value = JSON.parse(json)?.[key];
    return typeof value === "string" ? value : null;
  } catch {
    return null;
  }
}
