/**
 * Questions that a waiting run put to a person. The server lists those of the run that waits or
 * goes on; the page keeps the answered ones beside their calls for as long as it is open.
 */

export const isOpen = (approval) => approval.status === "OPEN";

export const isQuestion = (approval) => approval.reason === "input_required";

/** The server's list, and of what was known only that which was answered. */
export function listed(known, list) {
  const kept = known.filter((row) => !isOpen(row) && !list.some(({ id }) => id === row.id));
  return [...kept, ...list.map((row) => ({ ...known.find(({ id }) => id === row.id), ...row }))];
}

/** The log told that run *runId* ended with *interrupts*; what the server said of one stays. */
export function interrupted(known, interrupts, runId) {
  const fresh = interrupts.filter(({ id }) => known.every((row) => row.id !== id));
  return [...known, ...fresh.map((interrupt) => fromInterrupt(interrupt, runId))];
}

function fromInterrupt({ id, reason, message, toolCallId, expiresAt, metadata = {} }, runId) {
  const { toolName = "", options = [] } = metadata;
  return { id, runId, toolCallId, toolName, reason, message, status: "OPEN", options, expiresAt };
}

/** A run begins, so nothing waits any more; how it was answered the server tells. */
export const answered = (known) => known.filter((row) => !isOpen(row));

/** Our answer came too late: *refusal* is `{code, by, at}`. */
export function refused(known, id, refusal) {
  return known.map((row) => (row.id === id ? { ...row, refusal } : row));
}

/** The question that what one writes would answer. */
export function openQuestion(approvals) {
  return approvals.find((row) => isOpen(row) && isQuestion(row));
}

/** The one that belongs to a call. */
export function approvalOf(approvals, callId) {
  return approvals.findLast(({ toolCallId }) => toolCallId === callId);
}

/** Those whose call is not on the page: it stands on an older one. */
export function strayApprovals(approvals, items) {
  const calls = new Set(items.filter(({ kind }) => kind === "tool").map(({ id }) => id));
  return approvals.filter((row) => isOpen(row) && !calls.has(row.toolCallId));
}
