/** Times and sizes for reading. */

import { locale, t } from "./i18n.mjs";

export function formatDuration(ms) {
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 10_000) return `${(ms / 1000).toFixed(1)} s`;
  return formatElapsed(ms);
}

/** Of something that still goes on: no fraction that would flicker. */
export function formatElapsed(ms) {
  const seconds = Math.max(0, Math.floor(ms / 1000));
  if (seconds < 60) return `${seconds} s`;
  return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, "0")}`;
}

/** What is left of a time: seconds only near its end, so that a long wait does not flicker. */
export function formatRemaining(ms) {
  const seconds = Math.max(0, Math.ceil(ms / 1000));
  const [hours, minutes] = [Math.floor(seconds / 3600), Math.floor((seconds % 3600) / 60)];
  if (hours > 0) return t("hoursLeft", { hours, minutes });
  if (minutes >= 10) return t("minutesLeft", { minutes });
  return t("timeLeft", { time: `${minutes}:${String(seconds % 60).padStart(2, "0")}` });
}

/** @param {string} unit such as `hours` */
export function formatAmount(amount, unit) {
  const form = { style: "unit", unit: unit.replace(/s$/, ""), unitDisplay: "long" };
  return new Intl.NumberFormat(locale(), form).format(amount);
}

export function formatBytes(bytes) {
  if (bytes < 1024) return `${bytes} B`;
  if (bytes < 1024 * 1024) return `${Math.round(bytes / 1024)} KB`;
  return `${(bytes / 1024 / 1024).toFixed(1)} MB`;
}

/** Today's time, else the day. */
export function formatWhen(value) {
  const when = new Date(value);
  if (Number.isNaN(when.getTime())) return "";
  const isToday = when.toDateString() === new Date().toDateString();
  const form = isToday ? { hour: "2-digit", minute: "2-digit", hourCycle: "h23" } : { month: "numeric", day: "numeric" };
  return when.toLocaleString(locale(), form);
}
