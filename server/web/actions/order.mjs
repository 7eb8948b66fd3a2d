/**
 * In which order answers count that were asked for one after the other, and come back in any order.
 *
 * What is read shows how things were when it was asked for. So it is news only as long as nothing
 * was shown that was asked for later, and nothing was changed since.
 */
export class Order {
  #asked = 0;
  #shown = 0;

  /** Something is asked for now. @returns {number} its place */
  asking() {
    return ++this.#asked;
  }

  /** @returns {boolean} whether the answer to what has this place is news; if so, older ones are not */
  isNews(place) {
    if (place <= this.#shown) return false;
    this.#shown = place;
    return true;
  }

  /** Something was changed: whatever was asked for until now is old. */
  changed() {
    this.#shown = this.#asked;
  }
}
