/** The REST side: lists, history and bytes, which do not belong on the socket. */

export class ApiError extends Error {
  constructor(status, { code = "internal", message = "" } = {}) {
    super(message || `HTTP ${status}`);
    this.status = status;
    this.code = code;
  }
}

async function call(method, path, { json, body } = {}) {
  const response = await reach(path, {
    method,
    body: json === undefined ? body : JSON.stringify(json),
    headers: json === undefined ? {} : { "Content-Type": "application/json" },
    credentials: "same-origin",
    cache: "no-store",
  });
  const text = await response.text();
  const answer = parse(text);
  if (!response.ok) throw new ApiError(response.status, answer.error ?? answer);
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

const session = (id) => `/api/sessions/${encodeURIComponent(id)}`;

export const me = () => call("GET", "/api/me");

export const login = (token) => call("POST", "/api/login", { json: { token } });

export const logout = () => call("POST", "/api/logout");

export function sessions({ search, limit }) {
  const query = new URLSearchParams({ limit, ...(search ? { search } : {}) });
  return call("GET", `/api/sessions?${query}`);
}

export const rename = (id, title) => call("PATCH", session(id), { json: { title } });

export const remove = (id) => call("DELETE", session(id));

export const messages = (id, { before, limit }) =>
  call("GET", `${session(id)}/messages?${new URLSearchParams({ before, limit })}`);

/** @returns {Promise<{id, name, mediaType, sizeBytes}>} */
export function upload(id, file) {
  const body = new FormData();
  body.append("file", file, file.name);
  return call("POST", `/api/files?session=${encodeURIComponent(id)}`, { body });
}
