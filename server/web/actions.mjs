/** What a person can do, carried out over the socket and REST. */

import * as api from "./api.mjs";
import { isRunning } from "./chat.mjs";
import { contentOf } from "./content.mjs";
import { formatBytes, reasonOf, t } from "./i18n.mjs";

const PAGE_SIZE = 50;
const LIST_SIZE = 200;
/** A burst of `sessions.changed` costs one request. */
const REFRESH_DELAY_MS = 200;
const TOAST_MS = 6000;

/** 128 random bits; `crypto.randomUUID` is missing on plain http to another machine. */
function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

export class Actions {
  #store;
  #socket;
  #refresh = null;
  #toast = null;
  #isSubscribing = false;
  /** The one creation in progress, so that two uploads at once make one session. */
  #creating = null;

  constructor(store, socket) {
    this.#store = store;
    this.#socket = socket;
  }

  // Sessions

  refreshSessions() {
    this.#refresh ??= setTimeout(async () => {
      this.#refresh = null;
      const { search } = this.#store.state;
      const answer = await this.#attempt(() => api.sessions({ search, limit: LIST_SIZE }));
      const isCurrent = search === this.#store.state.search;
      if (answer && isCurrent) this.#store.dispatch({ type: "sessions", sessions: answer.sessions });
    }, REFRESH_DELAY_MS);
  }

  search(text) {
    this.#store.dispatch({ type: "search", search: text });
    this.refreshSessions();
  }

  async open(id) {
    const before = this.#store.state.chat?.id;
    this.#store.dispatch({ type: "navigated", id });
    const { chat } = this.#store.state;
    if (before !== undefined && before !== id) this.#unsubscribe(before);
    if (chat !== null && !chat.loaded) await this.subscribe();
  }

  async rename(id, title) {
    const answer = await this.#attempt(() => api.rename(id, title));
    if (answer) this.#store.dispatch({ type: "renamed", id, title });
  }

  async remove(id) {
    const wasOpen = this.#store.state.openId === id;
    const answer = await this.#attempt(() => api.remove(id));
    if (!answer) return;
    this.#store.dispatch({ type: "deleted", id });
    if (wasOpen) location.hash = "";
  }

  // The open session

  /** From where we stand, or anew when the log no longer reaches back to there. */
  async subscribe() {
    const { chat, connection } = this.#store.state;
    if (chat === null || connection.state !== "open" || this.#isSubscribing) return;
    this.#isSubscribing = true;
    const isKnown = chat.instance !== null && !chat.gap;
    const cursor = isKnown ? { after: chat.cursor, instance: chat.instance } : {};
    try {
      const answer = await this.#socket.request("session.subscribe", { session: chat.id, ...cursor });
      this.#store.dispatch({ type: "subscribed", session: chat.id, answer });
    } catch (error) {
      this.#notSubscribed(chat, isKnown, error);
    } finally {
      this.#isSubscribing = false;
    }
    const now = this.#store.state.chat;
    if (now !== null && (now.id !== chat.id || now.gap)) await this.subscribe();
  }

  #notSubscribed(chat, isKnown, error) {
    if (error.code === "disconnected") return;
    if (error.code === "resync_required" && isKnown) {
      this.#store.dispatch({ type: "lost", session: chat.id });
    } else this.#store.dispatch({ type: "unavailable", session: chat.id, code: error.code });
  }

  #unsubscribe(id) {
    this.#socket.request("session.unsubscribe", { session: id }).catch(() => {
      // Without a connection there is no subscription either.
    });
  }

  async loadOlder() {
    const { chat } = this.#store.state;
    const answer = await this.#attempt(() =>
      api.messages(chat.id, { before: chat.oldest, limit: PAGE_SIZE }),
    );
    if (answer) this.#store.dispatch({ type: "older", session: chat.id, ...answer });
  }

  // Messages

  write(text) {
    this.#store.dispatch({ type: "draft", text });
  }

  /** Send what stands in the composer; it stays there when no session can be made for it. */
  async send({ steer }) {
    if (this.#isBlank()) return;
    const session = await this.#session();
    if (session === null) return;
    const { drafts, attachments, editing } = this.#store.state;
    const text = (drafts[session] ?? "").trim();
    const files = attachments.filter(({ phase }) => phase === "ready").map(({ file }) => file);
    const isUploading = files.length < attachments.length;
    if (isUploading || (text === "" && files.length === 0)) return;
    const change = editing === null ? {} : { editOf: editing };
    const message = { clientMsgId: newId(), session, text, files, steer, ...change };
    this.#store.dispatch({ type: "sent", message });
    await this.#start(message);
  }

  #isBlank() {
    const { drafts, attachments, openId } = this.#store.state;
    return (drafts[openId ?? ""] ?? "").trim() === "" && attachments.length === 0;
  }

  async resend(clientMsgId) {
    const message = this.#store.state.pending.find((row) => row.clientMsgId === clientMsgId);
    this.#store.dispatch({ type: "resent", clientMsgId });
    await this.#start(message);
  }

  withdraw(clientMsgId) {
    this.#store.dispatch({ type: "withdrawn", clientMsgId });
  }

  async #start({ clientMsgId, session, text, files, steer, editOf }) {
    const params = {
      session,
      clientMsgId,
      content: contentOf(text, files),
      whenBusy: editOf === undefined ? (steer ? "steer" : "queue") : "reject",
      ...(editOf === undefined ? {} : { editOf }),
    };
    try {
      const answer = await this.#socket.request("run.start", params, { keep: true });
      this.#store.dispatch({ type: "answered", clientMsgId, answer });
    } catch (error) {
      this.#store.dispatch({ type: "refused", clientMsgId, error: reasonOf(error) });
    }
  }

  /** Ask again from the message that began the run. */
  async retry(item) {
    const { chat } = this.#store.state;
    await this.#ask("run.start", {
      session: chat.id,
      clientMsgId: newId(),
      whenBusy: "reject",
      retryOf: item.id,
    });
  }

  edit(item) {
    this.#store.dispatch({ type: "editing", item });
  }

  stopEditing() {
    this.#store.dispatch({ type: "editing", item: null });
  }

  async stop() {
    const { chat } = this.#store.state;
    if (!isRunning(chat)) return;
    const runId = chat.run?.id;
    this.#store.dispatch({ type: "stopping", session: chat.id });
    await this.#ask("run.cancel", { session: chat.id, ...(runId ? { runId } : {}) }, { keep: true });
  }

  async removeQueued(itemId) {
    await this.#ask("queue.remove", { session: this.#store.state.openId, itemId });
  }

  async resumeQueue() {
    await this.#ask("queue.resume", { session: this.#store.state.openId });
  }

  async answer(interruptId, decision) {
    const session = this.#store.state.openId;
    await this.#ask("approval.respond", { session, interruptId, decision });
  }

  // Files

  attach(files) {
    return Promise.all([...files].map((file) => this.#upload(file)));
  }

  detach(key) {
    const gone = this.#store.state.attachments.find((row) => row.key === key);
    if (gone?.previewUrl) URL.revokeObjectURL(gone.previewUrl);
    this.#store.dispatch({ type: "detached", key });
  }

  async #upload(file) {
    const limit = this.#store.state.maxFileBytes;
    if (limit !== null && file.size > limit) {
      return this.toast(t("tooLarge", { name: file.name, limit: formatBytes(limit) }));
    }
    const key = newId();
    const previewUrl = file.type.startsWith("image/") ? URL.createObjectURL(file) : null;
    this.#store.dispatch({ type: "attached", attachment: { key, name: file.name, previewUrl } });
    try {
      const session = await this.#session();
      if (session === null) return this.detach(key);
      this.#store.dispatch({ type: "uploaded", key, file: await api.upload(session, file) });
    } catch (error) {
      this.detach(key);
      const isOut = this.#leaveIfSignedOut(error);
      if (!isOut) this.toast(t("uploadFailed", { name: file.name, reason: reasonOf(error) }));
    }
  }

  // Who we are

  /** @returns {Promise<string | null>} why it did not work */
  async login(token) {
    try {
      await api.login(token);
    } catch (error) {
      return error.status === 401 ? t("loginWrong") : t("loginFailed", { reason: reasonOf(error) });
    }
    await this.enter();
    return null;
  }

  /** Ask who we are. A server that does not answer is left to the socket, which keeps trying. */
  async enter() {
    if (await this.checkLogin()) this.#socket.start();
  }

  /** @returns {Promise<boolean>} false when the server says that we are nobody */
  async checkLogin() {
    try {
      this.#store.dispatch({ type: "signedIn", ...(await api.me()) });
    } catch (error) {
      if (this.#leaveIfSignedOut(error)) return false;
      const { user, maxFileBytes } = this.#store.state;
      this.#store.dispatch({ type: "signedIn", user, maxFileBytes });
    }
    return true;
  }

  async logout() {
    await this.#attempt(() => api.logout());
    this.signedOut();
  }

  signedOut() {
    this.#socket.stop();
    this.#store.dispatch({ type: "signedOut" });
  }

  toast(text) {
    clearTimeout(this.#toast);
    this.#store.dispatch({ type: "toast", toast: text });
    this.#toast = setTimeout(() => this.#store.dispatch({ type: "toast", toast: null }), TOAST_MS);
  }

  // How the above is carried out

  async #session() {
    const { openId } = this.#store.state;
    if (openId !== null) return openId;
    this.#creating ??= this.#create();
    const session = await this.#creating;
    this.#creating = null;
    return session;
  }

  async #create() {
    const session = await this.#ask("session.create", { session: newId() }, { keep: true });
    if (session === null) return null;
    this.#store.dispatch({ type: "created", session });
    history.replaceState(null, "", `#/s/${encodeURIComponent(session.id)}`);
    await this.subscribe();
    return session.id;
  }

  async #ask(method, params, options) {
    try {
      return await this.#socket.request(method, params, options);
    } catch (error) {
      const isLate = error.code === "approval_already_resolved";
      this.toast(isLate ? t("alreadyAnswered") : t("unknownError", { reason: reasonOf(error) }));
      return null;
    }
  }

  async #attempt(request) {
    try {
      return await request();
    } catch (error) {
      if (!this.#leaveIfSignedOut(error)) this.toast(t("unknownError", { reason: reasonOf(error) }));
      return null;
    }
  }

  #leaveIfSignedOut(error) {
    if (error.status !== 401) return false;
    this.signedOut();
    return true;
  }
}

