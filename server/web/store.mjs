/** Holds the state, and tells the view at most once per animation frame. */

/** A hidden tab gets no animation frames, but its title and its memory must not stand still. */
const HIDDEN_DELAY_MS = 250;

export function createStore(reduce, initial) {
  let state = initial;
  let isScheduled = false;
  const listeners = new Set();

  function notify() {
    isScheduled = false;
    for (const listener of listeners) listener(state);
  }

  return {
    get state() {
      return state;
    },
    dispatch(action) {
      const next = reduce(state, action);
      if (next === state) return;
      state = next;
      if (isScheduled) return;
      isScheduled = true;
      if (document.hidden) setTimeout(notify, HIDDEN_DELAY_MS);
      else requestAnimationFrame(notify);
    },
    subscribe(listener) {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
}
