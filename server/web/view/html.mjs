/** htm bound to Preact, and what all components share. */

import { Component, Fragment, h, htm, useEffect, useState } from "../vendor/vendor.mjs";

export { Fragment, useEffect };
export { useLayoutEffect, useMemo, useRef, useState } from "../vendor/vendor.mjs";

export const html = htm.bind(h);

/** Draw again only when a prop is another value; the reducer keeps what did not change. */
export function memo(draw) {
  return class extends Component {
    shouldComponentUpdate(next) {
      const keys = Object.keys(next);
      return keys.length !== Object.keys(this.props).length || keys.some((key) => next[key] !== this.props[key]);
    }

    render(props) {
      return h(draw, props);
    }
  };
}

/** Whether the media query holds, now and whenever it changes. */
export function useMedia(query) {
  const [holds, setHolds] = useState(() => matchMedia(query).matches);
  useEffect(() => {
    const list = matchMedia(query);
    const changed = () => setHolds(list.matches);
    changed();
    list.addEventListener("change", changed);
    return () => list.removeEventListener("change", changed);
  }, [query]);
  return holds;
}

/** The time, told once a second while *isRunning*. */
export function useClock(isRunning) {
  const [now, setNow] = useState(Date.now);
  useEffect(() => {
    if (!isRunning) return undefined;
    setNow(Date.now());
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, [isRunning]);
  return now;
}
