/** Requests of a person to the server; of one that fails he is told. */

import { reasonOf, t } from "../i18n.mjs";

const TOAST_MS = 6000;

export class Requests {
  #toast = null;

  constructor(store, socket) {
    this.store = store;
    this.socket = socket;
  }

  get state() {
    return this.store.state;
  }

  dispatch(action) {
    this.store.dispatch(action);
  }

  /** Ask over the socket. @returns {Promise<object | null>} null when it did not work */
  async ask(method, params, options) {
    try {
      return await this.socket.request(method, params, options);
    } catch (error) {
      this.tell(error);
      return null;
    }
  }

  /** Ask over REST. @returns {Promise<object | null>} null when it did not work */
  async attempt(request) {
    try {
      return await request();
    } catch (error) {
      this.failed(error);
      return null;
    }
  }

  /** A REST request did not work. */
  failed(error) {
    if (!this.leaveIfSignedOut(error)) this.tell(error);
  }

  tell(error) {
    this.toast(t("unknownError", { reason: reasonOf(error) }));
  }

  toast(text) {
    clearTimeout(this.#toast);
    this.dispatch({ type: "toast", toast: text });
    this.#toast = setTimeout(() => this.dispatch({ type: "toast", toast: null }), TOAST_MS);
  }

  /** @returns {boolean} whether the server no longer knows us */
  leaveIfSignedOut(error) {
    if (error.status !== 401) return false;
    this.signedOut();
    return true;
  }

  signedOut() {
    this.socket.stop();
    this.dispatch({ type: "signedOut" });
  }
}
