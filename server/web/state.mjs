/** The whole page as one value, and the pure function that carries it forward. */

import * as chats from "./chat.mjs";
import { contentOf, isPicture, readContent } from "./content.mjs";

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
    search: "",
    /** The open session's id; null on the page of a new one. */
    openId: null,
    chat: null,
    /** Messages on their way: `{clientMsgId, session, text, files, phase, error, runId?}`. */
    pending: [],
    /** What stands in the composer, by session id ("" for a new one). */
    drafts: {},
    /** Files that will go with the next message: `{key, name, previewUrl, phase, file}`. */
    attachments: [],
    /** The id of the own message that the composer is changing. */
    editing: null,
    toast: null,
  };
}

/** @returns the next state; the same object when nothing changed */
export function reduce(state, action) {
  const step = STEPS[action.type];
  if (step === undefined) throw new TypeError(`unknown action ${action.type}`);
  return step(state, action);
}

const STEPS = {
  locale: (state, { locale }) => ({ ...state, locale }),
  signedIn: (state, { user, maxFileBytes }) => ({ ...state, login: "in", user, maxFileBytes }),
  signedOut: (state) => ({ ...state, login: "out", user: null, sessionsLoaded: false }),
  connection: (state, { connection }) => ({ ...state, connection }),
  search: (state, { search }) => ({ ...state, search }),
  sessions: (state, { sessions }) => ({ ...state, sessions, sessionsLoaded: true }),
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
  sent,
  answered,
  refused: (state, { clientMsgId, error }) => onPending(state, clientMsgId, { phase: "failed", error }),
  resent: (state, { clientMsgId }) => onPending(state, clientMsgId, { phase: "sending", error: null }),
  withdrawn: (state, { clientMsgId }) => withoutPending(state, (id) => id === clientMsgId),
  draft: (state, { text }) => ({ ...state, drafts: { ...state.drafts, [state.openId ?? ""]: text } }),
  attached: (state, { attachment }) => ({
    ...state,
    attachments: [...state.attachments, { phase: "uploading", file: null, ...attachment }],
  }),
  uploaded: (state, { key, file }) => ({
    ...state,
    attachments: state.attachments.map((row) => (row.key === key ? { ...row, phase: "ready", file } : row)),
  }),
  detached: (state, { key }) => ({
    ...state,
    attachments: state.attachments.filter((row) => row.key !== key),
  }),
  editing,
  toast: (state, { toast }) => ({ ...state, toast }),
};

const FRAMES = {
  event: (state, frame) => {
    const next = withChat(state, frame.session, (chat) => chats.advanced(chat, frame));
    return next === state ? state : shown(named(next));
  },
  "session.update": (state, frame) => {
    const next = withChat(state, frame.session, (chat) => chats.updated(chat, frame));
    return next === state ? state : mirrored(next);
  },
};

function withChat(state, session, change) {
  if (state.chat?.id !== session) return state;
  const chat = change(state.chat);
  return chat === state.chat ? state : { ...state, chat };
}

/** The list shows at once what the open session says of itself. */
function mirrored(state) {
  const { id, title, status } = state.chat;
  return inSession(state, id, title === null ? { status } : { title, status });
}

function inSession(state, id, change) {
  const sessions = state.sessions.map((row) => (row.id === id ? { ...row, ...change } : row));
  const chat = state.chat?.id === id ? { ...state.chat, ...change } : state.chat;
  return { ...state, sessions, chat };
}

/** The log tells only the ids of a message's files; of our own we know more. */
function named(state) {
  if (state.pending.every(({ files }) => files.length === 0)) return state;
  return withChat(state, state.chat.id, (chat) => {
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
  if (state.pending.length === 0 || state.chat === null) return state;
  const { items, toldRunId } = state.chat;
  const users = new Set(items.filter((item) => item.kind === "user").map((item) => item.id));
  const hasBegun = (row) => row.runId !== undefined && row.runId === toldRunId;
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

function navigated(state, { id }) {
  if (id === state.openId && (id === null || state.chat !== null)) return state;
  const chat = id === null ? null : chats.emptyChat(id);
  return { ...state, openId: id, chat, editing: null, attachments: [] };
}

/** A new session takes over what was begun on the page of a new one. */
function created(state, { session }) {
  const { "": begun = "", ...drafts } = state.drafts;
  const sessions = [session, ...state.sessions.filter((row) => row.id !== session.id)];
  return {
    ...state,
    sessions,
    openId: session.id,
    chat: chats.emptyChat(session.id),
    drafts: { ...drafts, [session.id]: begun },
  };
}

function deleted(state, { id }) {
  const next = { ...state, sessions: state.sessions.filter((row) => row.id !== id) };
  return state.openId === id ? { ...next, openId: null, chat: null, editing: null } : next;
}

function subscribed(state, { session, answer }) {
  const next = withChat(state, session, (chat) => chats.subscribed(chat, answer));
  return next === state ? state : shown(mirrored(next));
}

/** The composer takes an own message to change it, or null to be empty again. */
function editing(state, { item }) {
  const files = item?.files.filter(({ id }) => id !== null) ?? [];
  const attachments = files.map((file) => ({
    key: file.id,
    name: file.name,
    previewUrl: isPicture(file) ? file.url : null,
    phase: "ready",
    file,
  }));
  const drafts = { ...state.drafts, [state.openId]: item?.text ?? "" };
  return { ...state, editing: item?.id ?? null, drafts, attachments };
}

function sent(state, { message }) {
  const { clientMsgId, session, editOf } = message;
  const next = {
    ...state,
    pending: [...state.pending, { phase: "sending", error: null, ...message }],
    drafts: { ...state.drafts, [session]: "" },
    attachments: [],
    editing: null,
  };
  if (editOf === undefined) return next;
  return withChat(next, session, (chat) => ({
    ...chat,
    replaces: { ...chat.replaces, [clientMsgId]: editOf },
  }));
}

/** The server owns the message now: it runs, or the queue shows it. */
function answered(state, { clientMsgId, answer }) {
  if (answer.runId === undefined) return withoutPending(state, (id) => id === clientMsgId);
  return shown(onPending(state, clientMsgId, { runId: answer.runId }));
}
