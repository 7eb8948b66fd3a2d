/** A burst of `sessions.changed` costs one request. */
const DELAY_MS = 200;

/** @returns {() => void} does *work* soon, and once for all calls until then */
export function soon(work) {
  let timer = null;
  return () => {
    timer ??= setTimeout(() => {
      timer = null;
      void work();
    }, DELAY_MS);
  };
}
