/** Time as the clocks of a time zone show it. */

import { locale } from "./i18n.mjs";

export const localZone = () => Intl.DateTimeFormat().resolvedOptions().timeZone;

/** Names to choose from; any other that the server knows can be written. */
export const zoneNames = () => ["UTC", ...Intl.supportedValuesOf("timeZone")];

/** @returns {string} as `<input type="datetime-local">` takes it; empty for what is no time */
export function wallClock(instant, zone) {
  const shown = parts(instant, zone, "en-u-ca-iso8601", {
    year: "numeric", month: "2-digit", day: "2-digit", hour: "2-digit", minute: "2-digit", second: "2-digit",
  });
  if (shown === null) return "";
  const { year, month, day, hour, minute, second } = shown;
  const time = `${year.padStart(4, "0")}-${month}-${day}T${hour}:${minute}`;
  return second === "00" ? time : `${time}:${second}`;
}

/** Day and time for reading, in the zone; the year where it is not this one. */
export function formatInZone(instant, zone) {
  const when = new Date(instant);
  const isThisYear = when.getFullYear() === new Date().getFullYear();
  const form = { month: "short", day: "numeric", weekday: "short", hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
  const format = formatter(zone, locale(), isThisYear ? form : { ...form, year: "numeric" });
  return Number.isNaN(when.getTime()) ? "" : format.format(when);
}

function parts(instant, zone, language, form) {
  const when = new Date(instant);
  if (Number.isNaN(when.getTime())) return null;
  const found = formatter(zone, language, { ...form, hourCycle: "h23" }).formatToParts(when);
  return Object.fromEntries(found.map(({ type, value }) => [type, value]));
}

/** A zone that the browser does not know is read as UTC. */
function formatter(zone, language, form) {
  try {
    return new Intl.DateTimeFormat(language, { ...form, timeZone: zone });
  } catch {
    return new Intl.DateTimeFormat(language, { ...form, timeZone: "UTC" });
  }
}
