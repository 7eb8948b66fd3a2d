import assert from "node:assert/strict";
import { test } from "node:test";

import { Following } from "../../server/web/actions/following.mjs";
import { readAddress, sessionAddress } from "../../server/web/address.mjs";
import { initialState, reduce } from "../../server/web/state.mjs";

/** What `Following` asks of, with a line whose other end is the test. */
function connected() {
  const asked = [];
  const requests = {
    state: reduce(initialState({ locale: "en" }), { type: "connection", connection: { state: "open", retryAt: null } }),
    dispatch(action) {
      this.state = reduce(this.state, action);
    },
    socket: {
      request: (method, params) =>
        new Promise((resolve, reject) => asked.push({ method, session: params.session, params, resolve, reject })),
    },
  };
  return { following: new Following(requests), requests, asked };
}

const at = (id, sideId) => readAddress(sessionAddress(id, sideId));
const answer = { instance: "i1", head: 4, replayFrom: 5, mode: "snapshot", status: "IDLE", queue: [], approvals: [], children: [], messages: [] };
const settled = () => new Promise((resolve) => setImmediate(resolve));
const told = (asked) => asked.map(({ method, session }) => `${method.slice("session.".length)} ${session}`);

test("what stands on the page is followed, what leaves it is not", async () => {
  const { following, requests, asked } = connected();
  const opened = following.open(at("a", "b"));
  for (const request of asked) request.resolve(answer);
  await opened;
  void following.open(at("a"));
  void following.open(at("c"));
  assert.deepEqual(told(asked), ["subscribe a", "subscribe b", "unsubscribe b", "unsubscribe a", "subscribe c"]);
});

test("a session that left and came back while it was subscribed to is subscribed to again", async () => {
  const { following, requests, asked } = connected();
  const first = following.open(at("a"));
  void following.open(at("b"));
  void following.open(at("a"));
  asked[0].resolve(answer);
  await settled();
  assert.deepEqual(told(asked), ["subscribe a", "unsubscribe a", "subscribe b", "unsubscribe b", "subscribe a"]);
  assert.deepEqual(asked.at(-1).params, { session: "a", after: 4, instance: "i1" });
  asked.at(-1).resolve({ ...answer, mode: "replay" });
  await first;
});

test("a hole in the log is mended once, by a subscription without a cursor", async () => {
  const { following, requests, asked } = connected();
  const opened = following.open(at("a"));
  asked[0].resolve(answer);
  await opened;
  const frame = { type: "event", session: "a", seq: 9, event: { type: "RUN_STARTED", runId: "r" } };
  requests.dispatch({ type: "frame", frame });
  following.mend();
  following.mend();
  assert.deepEqual(asked.slice(1).map(({ params }) => params), [{ session: "a" }]);
});

test("a cursor that the server no longer knows is given up", async () => {
  const { following, requests, asked } = connected();
  const opened = following.open(at("a"));
  asked[0].resolve(answer);
  await opened;
  void following.resume();
  asked[1].reject(Object.assign(new Error(), { code: "resync_required" }));
  await settled();
  assert.deepEqual(asked.at(-1).params, { session: "a" });
});

test("a session that is not there says so", async () => {
  const { following, requests, asked } = connected();
  const opened = following.open(at("a"));
  asked[0].reject(Object.assign(new Error(), { code: "not_found" }));
  await opened;
  assert.equal(requests.state.chat.missing, "not_found");
});

test("what a session is and where it stands is told by its subscription, and nothing else is asked", async () => {
  const { following, requests, asked } = connected();
  const opened = following.open(at("a", "b"));
  const [main, aside] = asked;
  main.resolve({ ...answer, kind: "chat" });
  aside.resolve({ ...answer, kind: "sideline", parent: "a", hasMore: true });
  await opened;
  const { chat, side } = requests.state;
  assert.deepEqual([chat.kind, chat.parent], ["chat", null]);
  assert.deepEqual([side.chat.kind, side.chat.parent, side.chat.hasMore], ["sideline", "a", true]);
  assert.deepEqual(told(asked), ["subscribe a", "subscribe b"]);
});
