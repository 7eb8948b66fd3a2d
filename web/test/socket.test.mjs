import assert from "node:assert/strict";
import { test } from "node:test";

import { Socket, backoffMs } from "../../server/web/socket.mjs";

/** One end of a connection in memory; the test plays the server. */
class Line {
  readyState = 0;
  sent = [];

  send(text) {
    this.sent.push(JSON.parse(text));
  }

  close() {
    this.readyState = 3;
  }

  accept(result = { policy: {} }) {
    this.readyState = 1;
    this.onopen();
    this.answer("hello", result);
  }

  answer(id, result) {
    this.onmessage({ data: JSON.stringify({ type: "res", id, ok: true, result }) });
  }

  refuse(id, error) {
    this.onmessage({ data: JSON.stringify({ type: "res", id, ok: false, error }) });
  }

  drop(code) {
    this.readyState = 3;
    this.onclose({ code });
  }

  requests(method) {
    return this.sent.filter((frame) => frame.method === method);
  }
}

/** A socket whose connections the test takes one by one. */
function connect(t) {
  const states = [];
  const lines = [];
  const opened = [];
  let arrived = () => {};
  const socket = new Socket({
    url: "ws://test/ws",
    client: () => ({ id: "test" }),
    onOpen: () => opened.push(socket),
    onFrame: () => {},
    onState: ({ state }) => states.push(state),
    onRefused: () => states.push("refused"),
    open: () => {
      const line = new Line();
      lines.push(line);
      arrived();
      return line;
    },
  });
  t.after(() => socket.stop());
  const nextLine = () => new Promise((resolve) => (arrived = () => queueMicrotask(() => resolve(lines.at(-1)))));
  socket.start();
  return { socket, states, lines, opened, nextLine };
}

test("the wait before a new try doubles up to half a minute, with full jitter", () => {
  assert.deepEqual([0, 1, 2, 10].map((attempt) => backoffMs(attempt, () => 1)), [500, 1000, 2000, 30_000]);
  assert.equal(backoffMs(5, () => 0), 0);
});

test("requests wait for hello", (t) => {
  const { socket, lines, states, opened } = connect(t);
  void socket.request("run.start", { a: 1 }, { keep: true });
  lines[0].readyState = 1;
  lines[0].onopen();
  assert.deepEqual(lines[0].sent.map(({ method }) => method), ["hello"]);
  lines[0].answer("hello", { policy: {} });
  assert.equal(opened.length, 1);
  assert.deepEqual(lines[0].requests("run.start")[0].params, { a: 1 });
  assert.deepEqual(states, ["connecting", "open"]);
});

test("an unanswered message is sent again, unchanged, on the next connection", async (t) => {
  const { socket, lines, nextLine } = connect(t);
  lines[0].accept();
  const asked = socket.request("run.start", { clientMsgId: "m1" }, { keep: true });
  const next = nextLine();
  lines[0].drop(1006);
  const line = await next;
  line.accept();
  assert.deepEqual(line.requests("run.start"), lines[0].requests("run.start"));
  line.answer(line.requests("run.start")[0].id, { runId: "r1" });
  assert.deepEqual(await asked, { runId: "r1" });
});

test("a server that shuts down leaves the message to its next life", async (t) => {
  const { socket, lines, nextLine } = connect(t);
  lines[0].accept();
  const asked = socket.request("run.start", {}, { keep: true });
  lines[0].refuse(lines[0].requests("run.start")[0].id, { code: "shutting_down", message: "", retryable: true });
  const next = nextLine();
  lines[0].drop(1012);
  const line = await next;
  line.accept();
  line.answer(line.requests("run.start")[0].id, { runId: "r1" });
  assert.deepEqual(await asked, { runId: "r1" });
});

test("other requests fail with the connection", async (t) => {
  const { socket, lines } = connect(t);
  lines[0].accept();
  const asked = socket.request("session.subscribe", {});
  lines[0].drop(1006);
  await assert.rejects(asked, { code: "disconnected" });
  await assert.rejects(socket.request("session.subscribe", {}), { code: "disconnected" });
});

test("the outbox has a bound", async (t) => {
  const { socket } = connect(t);
  for (let sent = 0; sent < 50; sent += 1) void socket.request("run.start", {}, { keep: true });
  await assert.rejects(socket.request("run.start", {}, { keep: true }), { code: "outbox_full" });
});

for (const [code, state] of [[4401, "unauthenticated"], [4403, "forbidden"], [4426, "outdated"]]) {
  test(`after close code ${code} nobody knocks again`, (t) => {
    const { socket, lines, states } = connect(t);
    lines[0].accept();
    lines[0].drop(code);
    socket.wake();
    assert.equal(states.at(-1), state);
    assert.equal(lines.length, 1);
  });
}

test("waking up ends the wait at once", (t) => {
  const { socket, lines, states } = connect(t);
  lines[0].accept();
  lines[0].drop(1006);
  assert.equal(states.at(-1), "waiting");
  socket.wake();
  assert.equal(lines.length, 2);
});

test("waking up probes a connection that says it is open", (t) => {
  const { socket, lines } = connect(t);
  lines[0].accept();
  socket.wake();
  assert.equal(lines[0].sent.at(-1).type, "ping");
});

test("a ping of the server is answered with its own time", (t) => {
  const { lines } = connect(t);
  lines[0].accept();
  lines[0].onmessage({ data: '{"type":"ping","t":17.5}' });
  assert.deepEqual(lines[0].sent.at(-1), { type: "pong", t: 17.5 });
});

test("a handshake that was refused is told, since it may mean a lost login", (t) => {
  const { lines, states } = connect(t);
  lines[0].drop(1006);
  assert.deepEqual(states, ["connecting", "refused", "waiting"]);
});
