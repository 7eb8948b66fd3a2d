/** Writing to a session: messages, the queue, and stopping. */

import { sessionAddress } from "../address.mjs";
import { openQuestion } from "../approvals.mjs";
import { isRunning, isWaiting } from "../chat.mjs";
import { NEW_KEY, composerOf } from "../composers.mjs";
import { contentOf } from "../content.mjs";
import { reasonOf } from "../i18n.mjs";
import { newId } from "../ids.mjs";
import { chatOf } from "../state.mjs";

export class Messages {
  #requests;
  #following;
  #approvals;
  /** The one creation in progress, so that two uploads at once make one session. */
  #creating = null;

  constructor(requests, following, approvals) {
    this.#requests = requests;
    this.#following = following;
    this.#approvals = approvals;
  }

  write(key, text) {
    this.#requests.dispatch({ type: "draft", key, text });
  }

  /** Send what stands in the composer; it stays there when no session can be made for it. */
  async send(key, { steer }) {
    const { text, attachments } = composerOf(this.#requests.state, key);
    if (text.trim() === "" && attachments.length === 0) return;
    const session = await this.sessionOf(key);
    if (session === null) return;
    const chat = chatOf(this.#requests.state, session);
    const question = openQuestion(chat?.approvals ?? []);
    const isEdit = composerOf(this.#requests.state, session).editing !== null;
    if (question === undefined || isEdit) await this.#send(session, steer);
    else await this.#reply(session, question);
  }

  async #reply(session, question) {
    const text = composerOf(this.#requests.state, session).text.trim();
    if (text === "") return;
    const isTaken = await this.#approvals.answer(session, question.id, { decision: "approve", payload: text });
    if (isTaken) this.write(session, "");
  }

  async #send(session, steer) {
    const composer = composerOf(this.#requests.state, session);
    const text = composer.text.trim();
    const files = composer.attachments.filter(({ phase }) => phase === "ready").map(({ file }) => file);
    const isUploading = files.length < composer.attachments.length;
    if (isUploading || (text === "" && files.length === 0)) return;
    const change = composer.editing === null ? {} : { editOf: composer.editing };
    const message = { clientMsgId: newId(), session, text, files, steer, ...change };
    this.#requests.dispatch({ type: "sent", message });
    await this.#start(message);
  }

  async resend(clientMsgId) {
    const message = this.#requests.state.pending.find((row) => row.clientMsgId === clientMsgId);
    this.#requests.dispatch({ type: "resent", clientMsgId });
    await this.#start(message);
  }

  withdraw(clientMsgId) {
    this.#requests.dispatch({ type: "withdrawn", clientMsgId });
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
      const answer = await this.#requests.socket.request("run.start", params, { keep: true });
      this.#requests.dispatch({ type: "answered", clientMsgId, answer });
    } catch (error) {
      this.#requests.dispatch({ type: "refused", clientMsgId, error: reasonOf(error) });
    }
  }

  /** Ask again from the message that began the run. */
  async retry(session, item) {
    const whenBusy = "reject";
    await this.#requests.ask("run.start", { session, clientMsgId: newId(), whenBusy, retryOf: item.id });
  }

  edit(session, item) {
    this.#requests.dispatch({ type: "editing", key: session, item });
  }

  stopEditing(session) {
    this.#requests.dispatch({ type: "editing", key: session, item: null });
  }

  /** Stop the run, or what waits for an answer. */
  async stop(session) {
    const chat = chatOf(this.#requests.state, session);
    if (!isRunning(chat) && !isWaiting(chat)) return;
    const runId = chat.run?.id;
    this.#requests.dispatch({ type: "stopping", session });
    await this.#requests.ask("run.cancel", { session, ...(runId ? { runId } : {}) }, { keep: true });
  }

  async removeQueued(session, itemId) {
    await this.#requests.ask("queue.remove", { session, itemId });
  }

  async resumeQueue(session) {
    await this.#requests.ask("queue.resume", { session });
  }

  /** The session that a composer writes to; the first words or files of a new one make it. */
  async sessionOf(key) {
    if (key !== NEW_KEY) return key;
    this.#creating ??= this.#create();
    const session = await this.#creating;
    this.#creating = null;
    return session;
  }

  async #create() {
    const session = await this.#requests.ask("session.create", { session: newId() }, { keep: true });
    if (session === null) return null;
    this.#requests.dispatch({ type: "created", session });
    history.replaceState(null, "", sessionAddress(session.id));
    await this.#following.subscribe(session.id);
    return session.id;
  }
}
