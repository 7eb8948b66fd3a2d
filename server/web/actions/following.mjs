/** Following the sessions that stand on the page, each without a gap or a doubled event. */

import * as api from "../api.mjs";
import { chatOf, shownChats } from "../state.mjs";

const PAGE_SIZE = 50;

export class Following {
  #requests;
  /** Ids of the sessions that are just being subscribed to. */
  #subscribing = new Set();
  /** Of those the ones that left the page meanwhile: should they be back, all begins anew. */
  #left = new Set();

  constructor(requests) {
    this.#requests = requests;
  }

  /** Show what the address names; what leaves the page is followed no more. */
  async open(address) {
    const before = shownChats(this.#requests.state).map(({ id }) => id);
    this.#requests.dispatch({ type: "navigated", address });
    const shown = shownChats(this.#requests.state);
    for (const id of before) if (!shown.some((chat) => chat.id === id)) this.#unsubscribe(id);
    await Promise.all(shown.filter(({ loaded }) => !loaded).map(({ id }) => this.subscribe(id)));
  }

  /** The connection is new: go on with everything that is shown. */
  async resume() {
    await Promise.all(shownChats(this.#requests.state).map(({ id }) => this.subscribe(id)));
  }

  /** Frames are missing; ask for them. */
  mend() {
    for (const { id, gap } of shownChats(this.#requests.state)) if (gap) void this.subscribe(id);
  }

  /** From where we stand, or anew when the log no longer reaches back to there. */
  async subscribe(id) {
    const chat = chatOf(this.#requests.state, id);
    const { state } = this.#requests.state.connection;
    if (chat === undefined || state !== "open" || this.#subscribing.has(id)) return;
    this.#subscribing.add(id);
    try {
      await this.#subscribe(chat);
    } finally {
      this.#subscribing.delete(id);
    }
    const hasLeft = this.#left.delete(id);
    if (hasLeft || chatOf(this.#requests.state, id)?.gap) await this.subscribe(id);
  }

  async loadOlder(id) {
    const { oldest } = chatOf(this.#requests.state, id);
    const answer = await this.#requests.attempt(() => api.messages(id, { before: oldest, limit: PAGE_SIZE }));
    if (answer) this.#requests.dispatch({ type: "older", session: id, ...answer });
  }

  async #subscribe(chat) {
    const isKnown = chat.instance !== null && !chat.gap;
    const cursor = isKnown ? { after: chat.cursor, instance: chat.instance } : {};
    try {
      const params = { session: chat.id, ...cursor };
      const answer = await this.#requests.socket.request("session.subscribe", params);
      this.#requests.dispatch({ type: "subscribed", session: chat.id, answer });
    } catch (error) {
      this.#notSubscribed(chat, isKnown, error);
    }
  }

  #notSubscribed(chat, isKnown, error) {
    if (error.code === "disconnected") return;
    if (error.code === "resync_required" && isKnown) {
      this.#requests.dispatch({ type: "lost", session: chat.id });
    } else this.#requests.dispatch({ type: "unavailable", session: chat.id, code: error.code });
  }

  #unsubscribe(id) {
    if (this.#subscribing.has(id)) this.#left.add(id);
    this.#requests.socket.request("session.unsubscribe", { session: id }).catch(() => {
      // Without a connection there is no subscription either.
    });
  }
}
