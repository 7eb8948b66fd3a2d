/** The whole page as one value, and the pure function that carries it forward. */

import * as approvals from "./approvals.mjs";
import * as chats from "./chat.mjs";
import * as composers from "./composers.mjs";
import { contentOf, readContent } from "./content.mjs";
import { STEPS as TASK_STEPS, noTasks } from "./tasks.mjs";

export function initialState({ locale }) {
  return {
    locale,
    /** unknown until the server has said who we are; then in or out */
    login: "unknown",
    user: null,
    /** How the socket stands; see `Socket` for the states. */
    connection: { state: "connecting", retryAt: null, code: null },
    /** The largest file the server takes; null while unknown. */
    maxFileBytes: null,
    sessions: [],
    sessionsLoaded: false,
    /** There are more than are shown. */
    sessionsCut: false,
    search: "",
    /** session or tasks */
    view: "session",
    /** The open session's id; null on the page of a new one. */
    openId: null,
    chat: null,
    /**
     * What stands beside the open session: one of its children, or a side question that is still
     * to be asked, whose `chat` is null and which sees the history up to message `from`.
     */
    side: null,
    /** Messages on their way: `{clientMsgId, session, text, files, phase, error, runId?}`. */
    pending: [],
    /** What is being written, by `composers.mjs`'s keys. */
    composers: {},
    tasks: noTasks(),
    toast: null,
  };
}

/** @returns the next state; the same object when nothing changed */
export function reduce(state, action) {
  const step = STEPS[action.type];
  if (step === undefined) throw new TypeError(`unknown action ${action.type}`);
  return step(state, action);
}

/** The sessions that the page shows, and therefore follows. */
export function shownChats(state) {
  return [state.chat, state.side?.chat ?? null].filter((chat) => chat !== null);
}

export function chatOf(state, session) {
  return shownChats(state).find(({ id }) => id === session);
}

const STEPS = {
  ...TASK_STEPS,
  locale: (state, { locale }) => ({ ...state, locale }),
  signedIn: (state, { user, maxFileBytes }) => ({ ...state, login: "in", user, maxFileBytes }),
  signedOut: (state) => ({ ...state, login: "out", user: null, sessionsLoaded: false }),
  connection: (state, { connection }) => ({ ...state, connection }),
  search: (state, { search }) => ({ ...state, search }),
  sessions: (state, { sessions, hasMore }) =>
    sessions.reduce(described, { ...state, sessions, sessionsLoaded: true, sessionsCut: hasMore }),
  renamed: (state, { id, title }) => inSession(state, id, { title }),
  deleted,
  navigated,
  created,
  subscribed,
  unavailable: (state, { session, code }) => withChat(state, session, (chat) => ({ ...chat, missing: code })),
  lost: (state, { session }) => withChat(state, session, (chat) => ({ ...chat, gap: true })),
  stopping: (state, { session }) => withChat(state, session, chats.stopping),
  older: (state, { session, messages, hasMore }) =>
    withChat(state, session, (chat) => chats.withOlder(chat, messages, hasMore)),
  frame: (state, { frame }) => FRAMES[frame.type]?.(state, frame) ?? state,
  answerRefused: (state, { session, id, refusal }) =>
    withChat(state, session, (chat) => ({ ...chat, approvals: approvals.refused(chat.approvals, id, refusal) })),
  sent,
  answered,
  refused: (state, { clientMsgId, error }) => onPending(state, clientMsgId, { phase: "failed", error }),
  resent: (state, { clientMsgId }) => onPending(state, clientMsgId, { phase: "sending", error: null }),
  withdrawn: (state, { clientMsgId }) => withoutPending(state, (id) => id === clientMsgId),
  asideOpened: (state, { from }) => ({ ...state, side: { from, chat: null, isAsking: false } }),
  asideAsking: (state, { isAsking }) => (isDraft(state.side) ? { ...state, side: { ...state.side, isAsking } } : state),
  asideClosed: (state) => (isDraft(state.side) ? { ...state, side: null } : state),
  asideStarted,
  draft: (state, { key, text }) => composers.withComposer(state, key, { text }),
  emptied: (state, { key }) => composers.emptied(state, key),
  attached: (state, { key, attachment }) =>
    composers.withAttachments(state, key, (rows) => [...rows, { phase: "uploading", file: null, ...attachment }]),
  uploaded: (state, { key, attachment, file }) =>
    composers.withAttachments(state, key, (rows) =>
      rows.map((row) => (row.key === attachment ? { ...row, phase: "ready", file } : row)),
    ),
  detached: (state, { key, attachment }) =>
    composers.withAttachments(state, key, (rows) => rows.filter((row) => row.key !== attachment)),
  editing: (state, { key, item }) => composers.editing(state, key, item),
  toast: (state, { toast }) => ({ ...state, toast }),
};

const FRAMES = {
  event: (state, frame) => {
    const next = withChat(state, frame.session, (chat) => chats.advanced(chat, frame));
    return next === state ? state : shown(named(next, frame.session));
  },
  "session.update": (state, frame) => {
    const next = withChat(state, frame.session, (chat) => chats.updated(chat, frame));
    return next === state ? state : mirrored(next, frame.session);
  },
};

/** A side question that is still to be asked. */
const isDraft = (side) => side !== null && side.chat === null;

function withChat(state, session, change) {
  const known = chatOf(state, session);
  const chat = known === undefined ? undefined : change(known);
  if (chat === known) return state;
  if (state.chat?.id === session) return { ...state, chat };
  return { ...state, side: { ...state.side, chat } };
}

/** The list shows at once what a session on the page says of itself. */
function mirrored(state, session) {
  const { title, status } = chatOf(state, session);
  return inSession(state, session, title === null ? { status } : { title, status });
}

/** What the list knows of a session, before its own subscription tells it. */
function described(state, { id, kind, parent }) {
  return withChat(state, id, (chat) =>
    chat.kind === kind && chat.parent === parent ? chat : { ...chat, kind, parent },
  );
}

function inSession(state, id, change) {
  const changed = (rows) => rows.map((row) => (row.id === id ? { ...row, ...change } : row));
  const next = withChat(state, id, (chat) => ({ ...chat, ...change }));
  const isChild = next.chat?.children.some((row) => row.id === id);
  const chat = isChild ? { ...next.chat, children: changed(next.chat.children) } : next.chat;
  return { ...next, chat, sessions: changed(state.sessions) };
}

/** The log tells only the ids of a message's files; of our own we know more. */
function named(state, session) {
  if (state.pending.every(({ files }) => files.length === 0)) return state;
  return withChat(state, session, (chat) => {
    const files = new Map(state.pending.map((row) => [row.clientMsgId, row.files]));
    const isOurs = (item) => item.kind === "user" && files.has(item.id);
    const items = chat.items.map((item) =>
      isOurs(item) ? { ...item, ...readContent(contentOf(item.text, files.get(item.id))) } : item,
    );
    return { ...chat, items };
  });
}

/** A message that the log holds is no longer on its way; nor is a command, once its run began. */
function shown(state) {
  if (state.pending.length === 0) return state;
  const told = shownChats(state);
  const users = new Set(told.flatMap(({ items }) => items.filter(({ kind }) => kind === "user").map(({ id }) => id)));
  const hasBegun = ({ runId }) => runId !== undefined && told.some(({ toldRunId }) => toldRunId === runId);
  return withoutPending(state, (id, row) => users.has(id) || hasBegun(row));
}

function withoutPending(state, isGone) {
  const pending = state.pending.filter((row) => !isGone(row.clientMsgId, row));
  return pending.length === state.pending.length ? state : { ...state, pending };
}

function onPending(state, clientMsgId, change) {
  const pending = state.pending.map((row) =>
    row.clientMsgId === clientMsgId ? { ...row, ...change } : row,
  );
  return { ...state, pending };
}

/** Whatever is on the page already goes on where it will stand now. */
function navigated(state, { address }) {
  const { view, id, sideId, taskId, isForm } = address;
  const at = (session) => chatOf(state, session) ?? chats.emptyChat(session);
  const staysBeside = isDraft(state.side) && id === state.openId && sideId === null;
  const side = sideId === null ? null : { from: null, chat: at(sideId), isAsking: false };
  return {
    ...state,
    view,
    openId: id,
    chat: id === null ? null : at(id),
    side: staysBeside ? state.side : side,
    tasks: { ...state.tasks, openId: taskId, isForm },
  };
}

/** A new session takes over what was begun on the page of a new one. */
function created(state, { session }) {
  const sessions = [session, ...state.sessions.filter((row) => row.id !== session.id)];
  const next = { ...state, sessions, openId: session.id, chat: chats.emptyChat(session.id) };
  return composers.moved(described(next, session), composers.NEW_KEY, session.id);
}

function deleted(state, { id }) {
  const next = { ...state, sessions: state.sessions.filter((row) => row.id !== id) };
  if (state.openId === id) return { ...next, openId: null, chat: null, side: null };
  return state.side?.chat?.id === id ? { ...next, side: null } : next;
}

function subscribed(state, { session, answer }) {
  const next = withChat(state, session, (chat) => chats.subscribed(chat, answer));
  return next === state ? state : shown(mirrored(next, session));
}

function sent(state, { message, key = message.session }) {
  const { clientMsgId, session, editOf } = message;
  const next = composers.emptied(withPending(state, message), key);
  if (editOf === undefined) return next;
  return withChat(next, session, (chat) => ({
    ...chat,
    replaces: { ...chat.replaces, [clientMsgId]: editOf },
  }));
}

function withPending(state, message) {
  return { ...state, pending: [...state.pending, { phase: "sending", error: null, ...message }] };
}

/** A side question has its own session now. */
function asideStarted(state, { parent, message }) {
  const next = composers.emptied(state, composers.asideKey(parent));
  if (state.openId !== parent || !isDraft(state.side)) return next;
  const chat = { ...chats.emptyChat(message.session), kind: "sideline", parent };
  return withPending({ ...next, side: { from: null, chat, isAsking: false } }, message);
}

/** The server owns the message now: it runs, or the queue shows it. */
function answered(state, { clientMsgId, answer }) {
  if (answer.runId === undefined) return withoutPending(state, (id) => id === clientMsgId);
  return shown(onPending(state, clientMsgId, { runId: answer.runId }));
}
