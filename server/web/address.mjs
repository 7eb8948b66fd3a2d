/** Where on the page one is, as the fragment of its address says. */

const part = (text) => encodeURIComponent(text);

/** @returns {string} a session, and beside it another one that belongs to it */
export function sessionAddress(id, sideId = null) {
  const main = `#/s/${part(id)}`;
  return sideId === null ? main : `${main}/side/${part(sideId)}`;
}

export const NEW_SESSION = "#/";
export const TASKS = "#/tasks";
export const NEW_TASK = "#/tasks/new";
export const taskAddress = (id) => `${TASKS}/${part(id)}`;
export const taskFormAddress = (id) => `${taskAddress(id)}/edit`;

const NOWHERE = { view: "session", id: null, sideId: null, taskId: null, isForm: false };

/** @returns {{view: "session" | "tasks", id, sideId, taskId: string | null, isForm: boolean}} */
export function readAddress(hash) {
  const [view, id, more, sideId] = hash.replace(/^#\/?/, "").split("/").map(decoded);
  if (view === "tasks") return inTasks(id, more);
  if (view !== "s" || !id) return NOWHERE;
  return { ...NOWHERE, id, sideId: more === "side" && sideId && sideId !== id ? sideId : null };
}

function inTasks(id, more) {
  const tasks = { ...NOWHERE, view: "tasks" };
  if (id === "new") return { ...tasks, isForm: true };
  return id ? { ...tasks, taskId: id, isForm: more === "edit" } : tasks;
}

/** What somebody mistyped is taken as it stands. */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
