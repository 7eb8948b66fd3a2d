/** Which sessions stand under which: side questions and subagents under the one that began them. */

/** The session below which others are listed: the open one, or the one that it stands under. */
export const familyOf = (chat) => chat?.parent ?? chat?.id ?? null;

/** What is listed below it: all of the open session's children, or the open child alone. */
export function relativesOf(chat) {
  if (chat === null) return [];
  if (chat.parent === null) return chat.children;
  const { id, kind, title, status } = chat;
  return [{ id, kind, title, status }];
}
