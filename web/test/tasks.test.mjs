import assert from "node:assert/strict";
import { test } from "node:test";

import { setLocale } from "../../server/web/i18n.mjs";
import { initialState, reduce } from "../../server/web/state.mjs";
import { blankForm, changesOf, formOf, lengthOf, newTaskBody } from "../../server/web/task_form.mjs";
import { formatInZone, wallClock } from "../../server/web/zones.mjs";

const task = (rest = {}) => ({
  id: "t1", title: "Report", prompt: "Sum it up", timezone: "Asia/Shanghai",
  schedule: { kind: "cron", expression: "0 9 * * 1-5" }, missedPolicy: "skip", missedWithinSeconds: null,
  delivery: null, quiet: false, failureLimit: 3, ...rest,
});

test("a form that nobody touched changes nothing, whatever the task", () => {
  const tasks = [
    task(),
    task({ schedule: { kind: "once", at: "2030-03-01T01:00:00+00:00" }, missedPolicy: "run_once" }),
    task({ schedule: { kind: "interval", seconds: 90, anchor: "2030-03-01T01:00:00+00:00" } }),
    task({ missedPolicy: "run_if_within", missedWithinSeconds: 5400, delivery: { session: "s1" }, quiet: true }),
    task({ delivery: { chat: { platform: "feishu", appId: "a", chatId: "c" } } }),
    task({ schedule: null }),
  ];
  for (const one of tasks) assert.deepEqual(changesOf(formOf(one), one), {});
});

test("only what was changed is sent", () => {
  const form = { ...formOf(task()), title: "Weekly", deliver: "session:s2", quiet: true };
  assert.deepEqual(changesOf(form, task()), { title: "Weekly", delivery: { session: "s2" }, quiet: true });
  const told = task({ delivery: { session: "s2" } });
  assert.deepEqual(changesOf({ ...formOf(told), deliver: "" }, told), { delivery: null });
});

test("an interval that is made longer keeps what it counts from", () => {
  const every = task({ schedule: { kind: "interval", seconds: 3600, anchor: "2030-03-01T01:00:00+00:00" } });
  const form = { ...formOf(every), interval: { amount: "2", unit: "hours" } };
  assert.deepEqual(changesOf(form, every).schedule, { kind: "interval", seconds: 7200, anchor: "2030-03-01T01:00:00+00:00" });
});

test("a clock time is meant in the zone that stands beside it, so another zone sends it anew", () => {
  const once = task({ schedule: { kind: "once", at: "2030-03-01T01:00:00+00:00" } });
  const form = formOf(once);
  assert.equal(form.at, "2030-03-01T09:00");
  assert.deepEqual(changesOf({ ...form, timezone: "Europe/Berlin" }, once), {
    timezone: "Europe/Berlin",
    schedule: { kind: "once", at: "2030-03-01T09:00" },
  });
});

test("a new task leaves to the server what was left empty", () => {
  const form = { ...blankForm(), prompt: "Go", kind: "interval", interval: { amount: "15", unit: "minutes" }, timezone: "UTC" };
  assert.deepEqual(newTaskBody(form), {
    prompt: "Go", schedule: { kind: "interval", seconds: 900 }, timezone: "UTC", missedWithinSeconds: null,
    quiet: false, failureLimit: 3, delivery: null,
  });
});

test("what is no number is left to the server to refuse", () => {
  const form = { ...blankForm(), kind: "interval", interval: { amount: "", unit: "hours" }, failureLimit: "x" };
  const body = newTaskBody(form);
  assert.deepEqual([body.schedule.seconds, body.failureLimit], [0, 0]);
});

test("a length is written in the longest unit that fits", () => {
  assert.deepEqual(
    [90, 120, 5400, 7200, 172_800].map((seconds) => Object.values(lengthOf(seconds)).join(" ")),
    ["90 seconds", "2 minutes", "90 minutes", "2 hours", "2 days"],
  );
});

test("a clock in a zone shows the day and the time there, in summer and in winter", () => {
  assert.equal(wallClock("2030-07-01T22:30:00Z", "Asia/Shanghai"), "2030-07-02T06:30");
  assert.equal(wallClock("2030-07-01T22:30:00Z", "Europe/Berlin"), "2030-07-02T00:30");
  assert.equal(wallClock("2030-01-01T23:30:00Z", "Europe/Berlin"), "2030-01-02T00:30");
  assert.equal(wallClock("2030-01-01T00:00:07Z", "UTC"), "2030-01-01T00:00:07");
  assert.equal(wallClock("no time", "UTC"), "");
  assert.equal(wallClock("2030-01-01T00:00:00Z", "No/Zone"), "2030-01-01T00:00");
});

test("a due time is shown as the clocks of its zone show it", () => {
  setLocale("en");
  assert.match(formatInZone("2030-07-01T22:30:00Z", "Asia/Shanghai"), /Jul 2, 2030.*06:30/);
  assert.equal(formatInZone("no time", "UTC"), "");
});

const at = (hour) => ({ dueAt: `2030-01-01T${String(hour).padStart(2, "0")}:00:00Z`, status: "COMPLETED" });
const hours = (state) => state.tasks.runs.rows.map(({ dueAt }) => Number(dueAt.slice(11, 13)));
const page = (type, rows, hasMore) => ({ type, taskId: "t1", runs: rows.map(at), hasMore });

test("looking again at the runs keeps the older ones that were loaded", () => {
  let state = initialState({ locale: "en" });
  state = reduce(state, page("taskRuns", [9, 8, 7], true));
  state = reduce(state, page("olderTaskRuns", [6, 5], false));
  assert.deepEqual([hours(state), state.tasks.runs.hasMore], [[9, 8, 7, 6, 5], false]);
  state = reduce(state, page("taskRuns", [10, 9, 8], true));
  assert.deepEqual([hours(state), state.tasks.runs.hasMore], [[10, 9, 8, 7, 6, 5], false]);
  const other = reduce(state, { ...page("taskRuns", [3], false), taskId: "t2" });
  assert.deepEqual(hours(other), [3]);
});

test("a saved task is in the list once, and a deleted one is not", () => {
  let state = reduce(initialState({ locale: "en" }), { type: "tasks", tasks: [task()], hasMore: false });
  state = reduce(state, { type: "taskSaved", task: task({ title: "Other" }) });
  state = reduce(state, { type: "taskSaved", task: task({ id: "t2", title: "New" }) });
  assert.deepEqual(state.tasks.rows.map(({ title }) => title), ["New", "Other"]);
  state = reduce(state, { type: "taskDeleted", id: "t1" });
  assert.deepEqual(state.tasks.rows.map(({ id }) => id), ["t2"]);
});
