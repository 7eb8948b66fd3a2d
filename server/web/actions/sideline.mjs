/** Side questions: asked beside a session, while that one goes on. */

import { readAddress, sessionAddress } from "../address.mjs";
import { asideKey, composerOf } from "../composers.mjs";
import { newId } from "../ids.mjs";

export class Sideline {
  #requests;
  #following;

  constructor(requests, following) {
    this.#requests = requests;
    this.#following = following;
  }

  /** Make room for a question; it sees the history up to message *from*, or all of it. */
  open({ from = null, text = "" } = {}) {
    const { openId, side } = this.#requests.state;
    if (side?.chat) this.#leave(openId);
    this.#requests.dispatch({ type: "asideOpened", from });
    if (text !== "") this.#requests.dispatch({ type: "draft", key: asideKey(openId), text });
  }

  close() {
    const { openId, side } = this.#requests.state;
    if (side?.chat === null) this.#requests.dispatch({ type: "asideClosed" });
    else location.hash = sessionAddress(openId);
  }

  /** Take what stands in the session's composer and ask it aside at once; nothing there makes room. */
  async askAt(session) {
    const text = composerOf(this.#requests.state, session).text.trim();
    this.open({ text });
    if (text === "") return;
    this.#requests.dispatch({ type: "draft", key: session, text: "" });
    await this.ask();
  }

  /** Ask what stands in the side question's composer; it stays there when that does not work. */
  async ask() {
    const { openId: parent, side } = this.#requests.state;
    const text = composerOf(this.#requests.state, asideKey(parent)).text.trim();
    if (text === "" || side?.chat !== null || side.isAsking) return;
    const clientMsgId = newId();
    const start = side.from === null ? {} : { fromMessage: side.from };
    const params = { session: parent, clientMsgId, content: text, ...start };
    this.#requests.dispatch({ type: "asideAsking", isAsking: true });
    const answer = await this.#requests.ask("sideline.start", params, { keep: true });
    this.#requests.dispatch({ type: "asideAsking", isAsking: false });
    if (answer !== null) await this.#started(parent, { clientMsgId, text, ...answer });
  }

  /** What stood beside the session goes; the address must not name it any longer. */
  #leave(openId) {
    const address = sessionAddress(openId);
    history.pushState(null, "", address);
    void this.#following.open(readAddress(address));
  }

  async #started(parent, { session, clientMsgId, text, runId }) {
    const message = { clientMsgId, session, text, files: [], runId };
    this.#requests.dispatch({ type: "asideStarted", parent, message });
    if (this.#requests.state.side?.chat?.id !== session) return;
    history.pushState(null, "", sessionAddress(parent, session));
    await this.#following.subscribe(session);
  }
}
