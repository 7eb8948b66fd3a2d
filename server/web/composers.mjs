/** What is being written: one composer for each session, for a new one, and for a side question. */

import { isPicture } from "./content.mjs";

const EMPTY = {
  text: "",
  /** Files that will go with the message: `{key, name, previewUrl, phase, file}`. */
  attachments: [],
  /** The id of the own message that is being changed. */
  editing: null,
};

/** Of the page of a new session. */
export const NEW_KEY = "";

/** Of a side question that is still to be asked of a session. */
export const asideKey = (session) => `aside:${session}`;

export const composerOf = (state, key) => state.composers[key] ?? EMPTY;

export function withComposer(state, key, change) {
  const composer = { ...composerOf(state, key), ...change };
  return { ...state, composers: { ...state.composers, [key]: composer } };
}

export function emptied(state, key) {
  const { [key]: _, ...composers } = state.composers;
  return { ...state, composers };
}

/** What was begun in one goes on in another. */
export function moved(state, from, to) {
  return emptied(withComposer(state, to, composerOf(state, from)), from);
}

export function withAttachments(state, key, change) {
  return withComposer(state, key, { attachments: change(composerOf(state, key).attachments) });
}

/** Take an own message to change it, or null to be empty again. */
export function editing(state, key, item) {
  if (item === null) return emptied(state, key);
  const attachments = item.files
    .filter(({ id }) => id !== null)
    .map((file) => ({
      key: file.id,
      name: file.name,
      previewUrl: isPicture(file) ? file.url : null,
      phase: "ready",
      file,
    }));
  return withComposer(state, key, { text: item.text, attachments, editing: item.id });
}
