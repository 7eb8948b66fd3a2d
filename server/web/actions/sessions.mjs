/** The list of sessions. */

import { NEW_SESSION, sessionAddress } from "../address.mjs";
import * as api from "../api.mjs";

const LIST_SIZE = 200;
/** A burst of `sessions.changed` costs one request. */
const REFRESH_DELAY_MS = 200;

export class Sessions {
  #requests;
  #refresh = null;

  constructor(requests) {
    this.#requests = requests;
  }

  refresh() {
    this.#refresh ??= setTimeout(async () => {
      this.#refresh = null;
      const { search } = this.#requests.state;
      const answer = await this.#requests.attempt(() => api.sessions({ search, limit: LIST_SIZE }));
      const isCurrent = search === this.#requests.state.search;
      if (answer && isCurrent) this.#requests.dispatch({ type: "sessions", sessions: answer.sessions });
    }, REFRESH_DELAY_MS);
  }

  search(text) {
    this.#requests.dispatch({ type: "search", search: text });
    this.refresh();
  }

  async rename(id, title) {
    const answer = await this.#requests.attempt(() => api.rename(id, title));
    if (answer) this.#requests.dispatch({ type: "renamed", id, title });
  }

  async remove(id) {
    const { openId, side } = this.#requests.state;
    const answer = await this.#requests.attempt(() => api.remove(id));
    if (!answer) return;
    this.#requests.dispatch({ type: "deleted", id });
    if (openId === id) location.hash = NEW_SESSION;
    else if (side?.chat?.id === id) location.hash = sessionAddress(openId);
  }
}
