/** Who we are. */

import * as api from "../api.mjs";
import { reasonOf, t } from "../i18n.mjs";

export class Account {
  #requests;

  constructor(requests) {
    this.#requests = requests;
  }

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
    if (await this.checkLogin()) this.#requests.socket.start();
  }

  /** @returns {Promise<boolean>} false when the server says that we are nobody */
  async checkLogin() {
    try {
      this.#requests.dispatch({ type: "signedIn", ...(await api.me()) });
    } catch (error) {
      if (this.#requests.leaveIfSignedOut(error)) return false;
      const { user, maxFileBytes } = this.#requests.state;
      this.#requests.dispatch({ type: "signedIn", user, maxFileBytes });
    }
    return true;
  }

  async logout() {
    await this.#requests.attempt(() => api.logout());
    this.#requests.signedOut();
  }
}
