/** The REST side: lists, history and bytes, which do not belong on the socket. */

import { locale } from "./i18n.mjs";

export class ApiError extends Error {
  constructor(status, { code = "internal", message = "", details = {} } = {}, path = "") {
    super(message || `HTTP ${status}`);
    this.isAboutTasks = path.startsWith("/api/tasks");
    this.status = status;
    this.code = code;
    /** The field at fault, such as `schedule.at`. */
    this.path = details.path ?? null;
  }
}

async function call(method, path, { json, body } = {}) {
  const response = await reach(path, {
    method,
    body: json === undefined ? body : JSON.stringify(json),
    headers: { "Accept-Language": locale(), ...(json !== undefined && { "Content-Type": "application/json" }) },
    credentials: "same-origin",
    cache: "no-store",
  });
  const text = await response.text();
  const answer = parse(text);
  if (!response.ok) throw new ApiError(response.status, answer.error ?? answer, path);
  return answer;
}

async function reach(path, options) {
  try {
    return await fetch(path, options);
  } catch {
    throw new ApiError(0, { code: "network" });
  }
}

/** A proxy's error page is no JSON; the status says enough. */
function parse(text) {
  try {
    return JSON.parse(text) ?? {};
  } catch {
    return {};
  }
}

const sessionPath = (id) => `/api/sessions/${encodeURIComponent(id)}`;

export const me = () => call("GET", "/api/me");

export const login = (token) => call("POST", "/api/login", { json: { token } });

export const logout = () => call("POST", "/api/logout");

export function sessions({ search, limit }) {
  const query = new URLSearchParams({ limit, ...(search ? { search } : {}) });
  return call("GET", `/api/sessions?${query}`);
}

export const rename = (id, title) => call("PATCH", sessionPath(id), { json: { title } });

export const remove = (id) => call("DELETE", sessionPath(id));

export const messages = (id, { before, limit }) =>
  call("GET", `${sessionPath(id)}/messages?${new URLSearchParams({ before, limit })}`);

/** @returns {Promise<{id, name, mediaType, sizeBytes}>} */
export function upload(id, file) {
  const body = new FormData();
  body.append("file", file, file.name);
  return call("POST", `/api/files?session=${encodeURIComponent(id)}`, { body });
}

const taskPath = (id) => `/api/tasks/${encodeURIComponent(id)}`;

export const tasks = ({ limit }) => call("GET", `/api/tasks?${new URLSearchParams({ limit })}`);

export const task = (id) => call("GET", taskPath(id));

export const createTask = (body) => call("POST", "/api/tasks", { json: body });

export const changeTask = (id, body) => call("PATCH", taskPath(id), { json: body });

export const removeTask = (id) => call("DELETE", taskPath(id));

export const runTask = (id) => call("POST", `${taskPath(id)}/run`);

export const pauseTask = (id) => call("POST", `${taskPath(id)}/pause`);

export const resumeTask = (id) => call("POST", `${taskPath(id)}/resume`);

export const taskRuns = (id, { before, limit }) =>
  call("GET", `${taskPath(id)}/runs?${new URLSearchParams({ limit, ...(before ? { before } : {}) })}`);
