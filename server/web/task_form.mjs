/** A scheduled task as its form holds it, and as the server takes it. */

import { localZone, wallClock } from "./zones.mjs";

/** Seconds of the units that a length of time is written in, the longest first. */
export const UNITS = { days: 86_400, hours: 3600, minutes: 60, seconds: 1 };

const BLANK = {
  title: "",
  prompt: "",
  kind: "once",
  at: "",
  interval: { amount: "1", unit: "hours" },
  /** What an interval counts from; null is the time of saving. */
  anchor: null,
  expression: "",
  timezone: "",
  /** Empty is what is usual for the kind of schedule. */
  missedPolicy: "",
  within: { amount: "1", unit: "hours" },
  quiet: false,
  failureLimit: "3",
  /** Empty for nowhere, `session:<id>`, or `chat` for the chat that it has. */
  deliver: "",
};

export const blankForm = () => ({ ...BLANK, timezone: localZone() });

/** The form of a task that is there. */
export function formOf(task) {
  const { title, prompt, timezone, missedPolicy, quiet, failureLimit, missedWithinSeconds } = task;
  const form = { ...BLANK, title, prompt, timezone, missedPolicy, quiet, failureLimit: String(failureLimit) };
  const within = missedWithinSeconds === null ? BLANK.within : lengthOf(missedWithinSeconds);
  return { ...form, within, ...scheduled(task), deliver: delivered(task.delivery) };
}

function scheduled({ schedule, timezone }) {
  switch (schedule?.kind) {
    case "once":
      return { kind: "once", at: wallClock(schedule.at, timezone) };
    case "interval":
      return { kind: "interval", interval: lengthOf(schedule.seconds), anchor: schedule.anchor ?? null };
    case "cron":
      return { kind: "cron", expression: schedule.expression };
    default:
      return {};
  }
}

function delivered(delivery) {
  if (delivery?.chat) return "chat";
  return delivery?.session ? `session:${delivery.session}` : "";
}

/** @returns {{amount: string, unit: string}} in the longest unit that it is a whole number of */
export function lengthOf(seconds) {
  const [unit, size] = Object.entries(UNITS).find(([, size]) => seconds % size === 0);
  return { amount: String(seconds / size), unit };
}

const secondsOf = ({ amount, unit }) => Math.round((Number(amount) || 0) * UNITS[unit]);

/** What is asked of the server for a new task. */
export function newTaskBody(form) {
  const { title, missedPolicy, ...body } = bodyOf(form, null);
  return {
    ...body,
    ...(title.trim() === "" ? {} : { title }),
    ...(missedPolicy === "" ? {} : { missedPolicy }),
  };
}

/** What of *task* is to be different; a clock time in another zone is another time. */
export function changesOf(form, task) {
  const [before, after] = [bodyOf(formOf(task), task), bodyOf(form, task)];
  const isOther = (key) => JSON.stringify(before[key]) !== JSON.stringify(after[key]);
  const hasMoved = isOther("timezone") && task.schedule !== null;
  const keys = Object.keys(after).filter((key) => isOther(key) || (key === "schedule" && hasMoved));
  return Object.fromEntries(keys.map((key) => [key, after[key]]));
}

function bodyOf(form, task) {
  const { title, prompt, timezone, missedPolicy, quiet, within } = form;
  return {
    title,
    prompt,
    schedule: scheduleOf(form),
    timezone: timezone.trim(),
    missedPolicy,
    missedWithinSeconds: missedPolicy === "run_if_within" ? secondsOf(within) : null,
    quiet,
    failureLimit: Math.round(Number(form.failureLimit) || 0),
    delivery: form.deliver === "chat" ? task.delivery : targetOf(form.deliver),
  };
}

function targetOf(deliver) {
  return deliver === "" ? null : { session: deliver.slice("session:".length) };
}

function scheduleOf({ kind, at, interval, anchor, expression }) {
  if (kind === "once") return { kind, at };
  if (kind === "cron") return { kind, expression: expression.trim() };
  return { kind, seconds: secondsOf(interval), ...(anchor === null ? {} : { anchor }) };
}
