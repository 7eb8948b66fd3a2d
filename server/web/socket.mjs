/**
 * The connection to `/ws`: hello, requests with answers, back-off, and an outbox.
 *
 * States: `connecting`, `open`, `waiting` (until `retryAt`), and for good `unauthenticated` (4401),
 * `forbidden` (4403), `outdated` (4426).
 */

const SUBPROTOCOL = "agent.v1";
const PROTOCOL = 1;
const BACKOFF_FIRST_MS = 500;
const BACKOFF_LAST_MS = 30_000;
/** An answer to a probe on a healthy connection takes one round trip. */
const PROBE_MS = 4_000;
/** Requests that survive a broken connection; more than that nobody typed meanwhile. */
const OUTBOX_SIZE = 50;
const FINAL_CODES = { 4401: "unauthenticated", 4403: "forbidden", 4426: "outdated" };

export class RequestError extends Error {
  constructor({ code, message = code, retryable = false, details = {} }) {
    super(message);
    this.code = code;
    this.retryable = retryable;
    this.details = details;
  }
}

/** Full jitter: anywhere below a bound that doubles, so that clients do not come back together. */
export function backoffMs(attempt, random = Math.random) {
  return random() * Math.min(BACKOFF_LAST_MS, BACKOFF_FIRST_MS * 2 ** attempt);
}

export class Socket {
  #options;
  #socket = null;
  #isReady = false;
  #hasStopped = false;
  #attempt = 0;
  #count = 0;
  #waiting = new Map();
  #retry = null;
  #retryAfterMs = null;
  #pulse = null;
  #probe = null;
  #heardAt = 0;
  #policy = { pingSec: 20, deadSec: 50 };

  /**
   * @param {object} options
   * @param {string} options.url
   * @param {() => object} options.client what hello says of this page
   * @param {(hello: object) => void} options.onOpen hello was answered; subscriptions go first
   * @param {(frame: object) => void} options.onFrame anything but answers and heartbeats
   * @param {(connection: object) => void} options.onState
   * @param {() => void} options.onRefused a connection ended before it was open
   * @param {(url: string, protocol: string) => WebSocket} [options.open]
   */
  constructor(options) {
    this.#options = { open: (url, protocol) => new WebSocket(url, protocol), ...options };
  }

  start() {
    this.#hasStopped = false;
    this.#attempt = 0;
    this.#connect();
  }

  stop() {
    this.#hasStopped = true;
    this.#release();
  }

  /** The tab came to the front, or the network came back: do not trust what the socket says. */
  wake() {
    if (this.#hasStopped) return;
    if (this.#isReady) this.#ask();
    else if (this.#retry !== null) this.#connect();
  }

  /**
   * @param {{keep?: boolean}} options `keep`: wait for a connection and send again after a broken
   *   one, until it is answered; only for requests that are the same when sent twice
   * @returns {Promise<object>} rejects with `RequestError`
   */
  request(method, params, { keep = false } = {}) {
    return new Promise((resolve, reject) => {
      if (!keep && !this.#isReady) return reject(new RequestError({ code: "disconnected" }));
      if (keep && this.#kept().length >= OUTBOX_SIZE) return reject(new RequestError({ code: "outbox_full" }));
      const frame = { type: "req", id: `c${++this.#count}`, method, params };
      this.#waiting.set(frame.id, { frame, resolve, reject, keep });
      if (this.#isReady) this.#send(frame);
    });
  }

  #kept() {
    return [...this.#waiting.values()].filter(({ keep }) => keep);
  }

  #send(frame) {
    this.#socket.send(JSON.stringify(frame));
  }

  #connect() {
    this.#release();
    this.#tell("connecting");
    const socket = this.#options.open(this.#options.url, SUBPROTOCOL);
    this.#socket = socket;
    socket.onopen = () => this.#hello();
    socket.onmessage = ({ data }) => this.#receive(JSON.parse(data));
    socket.onclose = ({ code }) => this.#closed(code);
  }

  #hello() {
    const params = { minProtocol: PROTOCOL, maxProtocol: PROTOCOL, client: this.#options.client() };
    this.#send({ type: "req", id: "hello", method: "hello", params });
  }

  #receive(frame) {
    this.#heard();
    if (frame.type === "res" && frame.id === "hello") this.#greeted(frame);
    else if (frame.type === "res") this.#settle(frame);
    else if (frame.type === "ping") this.#send({ type: "pong", t: frame.t });
    else if (frame.type === "notice") this.#noticed(frame);
    else if (frame.type !== "pong") this.#options.onFrame(frame);
  }

  #greeted({ ok, result, error }) {
    if (!ok) return this.#closed(error.code === "unauthenticated" ? 4401 : 1011);
    this.#isReady = true;
    this.#attempt = 0;
    this.#retryAfterMs = null;
    this.#policy = { ...this.#policy, ...result.policy };
    this.#pulse = setInterval(() => this.#beat(), this.#policy.pingSec * 1000);
    this.#tell("open");
    this.#options.onOpen(result);
    for (const { frame } of this.#kept()) this.#send(frame);
  }

  #settle({ id, ok, result, error }) {
    const asked = this.#waiting.get(id);
    if (asked === undefined) return;
    // The next life of the server takes it; it was not carried out.
    if (!ok && asked.keep && error.code === "shutting_down") return;
    this.#waiting.delete(id);
    if (ok) asked.resolve(result ?? {});
    else asked.reject(new RequestError(error));
  }

  #noticed(frame) {
    this.#retryAfterMs = frame.retryAfterMs ?? null;
    this.#options.onFrame(frame);
  }

  #beat() {
    const silentMs = Date.now() - this.#heardAt;
    if (silentMs > this.#policy.deadSec * 1000) this.#closed(1006);
    else if (silentMs >= this.#policy.pingSec * 1000) this.#send({ type: "ping", t: Date.now() });
  }

  /** A half-open socket says OPEN: only an answer in time proves it. */
  #ask() {
    if (this.#probe !== null) return;
    this.#send({ type: "ping", t: Date.now() });
    this.#probe = setTimeout(() => this.#closed(1006), PROBE_MS);
  }

  #heard() {
    this.#heardAt = Date.now();
    clearTimeout(this.#probe);
    this.#probe = null;
  }

  /** It ended, or we give it up: a close of our own may take minutes, so none is waited for. */
  #closed(code) {
    const wasReady = this.#isReady;
    this.#release();
    this.#rejectUnkept();
    const final = FINAL_CODES[code];
    if (final !== undefined) {
      this.#hasStopped = true;
      return this.#tell(final);
    }
    if (!wasReady) this.#options.onRefused();
    if (!this.#hasStopped) this.#scheduleRetry();
  }

  #scheduleRetry() {
    const delayMs = backoffMs(this.#attempt++) + (this.#retryAfterMs ?? 0);
    this.#retryAfterMs = null;
    this.#retry = setTimeout(() => this.#connect(), delayMs);
    this.#tell("waiting", Date.now() + delayMs);
  }

  #rejectUnkept() {
    for (const [id, { keep, reject }] of this.#waiting) {
      if (keep) continue;
      this.#waiting.delete(id);
      reject(new RequestError({ code: "disconnected" }));
    }
  }

  #release() {
    this.#isReady = false;
    clearTimeout(this.#retry);
    clearInterval(this.#pulse);
    clearTimeout(this.#probe);
    this.#retry = this.#pulse = this.#probe = null;
    if (this.#socket === null) return;
    this.#socket.onopen = this.#socket.onmessage = this.#socket.onclose = null;
    if (this.#socket.readyState < 2) this.#socket.close();
    this.#socket = null;
  }

  #tell(state, retryAt = null) {
    this.#options.onState({ state, retryAt });
  }
}
