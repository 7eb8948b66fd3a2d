/** The list of sessions. */

import { NEW_SESSION, sessionAddress } from "../address.mjs";
import * as api from "../api.mjs";
import { soon } from "./burst.mjs";
import { Order } from "./order.mjs";

const LIST_SIZE = 200;

export class Sessions {
  #requests;
  #order = new Order();

  constructor(requests) {
    this.#requests = requests;
  }

  refresh = soon(() => this.#read());

  search(text) {
    this.#requests.dispatch({ type: "search", search: text });
    this.refresh();
  }

  async rename(id, title) {
    const answer = await this.#requests.attempt(() => api.rename(id, title));
    this.#order.changed();
    if (answer) this.#requests.dispatch({ type: "renamed", id, title });
  }

  async remove(id) {
    const { openId, side } = this.#requests.state;
    const answer = await this.#requests.attempt(() => api.remove(id));
    this.#order.changed();
    if (!answer) return;
    this.#requests.dispatch({ type: "deleted", id });
    if (openId === id) location.hash = NEW_SESSION;
    else if (side?.chat?.id === id) location.hash = sessionAddress(openId);
  }

  async #read() {
    const { search } = this.#requests.state;
    const place = this.#order.asking();
    const answer = await this.#requests.attempt(() => api.sessions({ search, limit: LIST_SIZE }));
    if (!answer || search !== this.#requests.state.search) return;
    if (this.#order.isNews(place)) this.#requests.dispatch({ type: "sessions", ...answer });
    else this.refresh();
  }
}
