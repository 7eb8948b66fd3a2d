/** Ids that the page makes. */

/** 128 random bits; `crypto.randomUUID` is missing on plain http to another machine. */
export function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}
