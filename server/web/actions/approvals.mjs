/** Answering what a waiting run asked. */

/** Somebody was faster, or nobody came in time; the card tells it, and stays. */
const LATE = new Set(["approval_already_resolved", "approval_expired"]);

export class Approvals {
  #requests;

  constructor(requests) {
    this.#requests = requests;
  }

  /**
   * @param {{decision: string, editedArgs?: object, payload?: string, note?: string}} word
   * @returns {Promise<boolean>} whether the answer counts
   */
  async answer(session, interruptId, word) {
    try {
      await this.#requests.socket.request("approval.respond", { session, interruptId, ...word });
      return true;
    } catch (error) {
      if (LATE.has(error.code)) this.#late(session, interruptId, error);
      else this.#requests.tell(error);
      return false;
    }
  }

  #late(session, id, { code, details }) {
    const { by = "", at = null } = details;
    this.#requests.dispatch({ type: "answerRefused", session, id, refusal: { code, by, at } });
  }
}
