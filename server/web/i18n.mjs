/** The page's own words, in the language of whoever reads. What the server sends is shown as sent. */

import { CHINESE } from "./texts/chinese.mjs";
import { ENGLISH } from "./texts/english.mjs";

export const TEXTS = { "zh-CN": CHINESE, en: ENGLISH };

let texts = CHINESE;
let current = "zh-CN";

export function setLocale(locale) {
  current = locale in TEXTS ? locale : "zh-CN";
  texts = TEXTS[current];
}

export const locale = () => current;

/** @returns {"zh-CN" | "en"} */
export function localeFor(languages) {
  return languages.some((language) => /^zh\b/i.test(language)) || languages.length === 0 ? "zh-CN" : "en";
}

export function t(key, values = {}) {
  return texts[key].replace(/\{(\w+)\}/g, (_, name) => values[name] ?? "");
}

/** The words for a value of an open set, such as a session's kind; the value itself if unknown. */
export function named(family, value) {
  return texts[`${family}_${value}`] ?? value;
}

/** What kind of session it is, in words; a bot's chat is named by its platform. */
export function kindOf({ kind, origin }) {
  return (kind === "chat" ? texts[`kind_${origin}`] : undefined) ?? named("kind", kind);
}

/**
 * Why something did not work: our words where we have them, else what the server said. What it says
 * of a `bad_request` is for developers, unless it is about a task.
 */
export function reasonOf(error) {
  const isWorded = error.code === "bad_request" && error.isAboutTasks === true;
  return isWorded ? error.message : (texts[`error_${error.code}`] ?? error.message);
}
