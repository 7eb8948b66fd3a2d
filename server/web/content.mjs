/** What a message or a tool result carries, whichever of the wire's forms it came in. */

/**
 * @param {string | Array<object> | null | undefined} content text, or parts of text and files
 * @returns {{text: string, files: Array<{id, url, name: string, mediaType: string}>}}
 */
export function readContent(content) {
  if (typeof content === "string") return { text: content, files: [] };
  const parts = Array.isArray(content) ? content : [];
  const text = parts
    .filter((part) => part.type === "text")
    .map((part) => part.text)
    .join("\n");
  return { text, files: parts.filter((part) => part.type !== "text").map(readFile) };
}

/** The content of a message to send; `files` are answers of the upload. */
export function contentOf(text, files) {
  if (files.length === 0) return text;
  const said = text === "" ? [] : [{ type: "text", text }];
  return [...said, ...files.map(({ id, ...file }) => ({ ...file, type: "file", fileId: id }))];
}

/** A file part names its url itself; AG-UI's image and document parts name a `source`. */
function readFile(part) {
  const source = part.source ?? {};
  const id = part.fileId ?? part.metadata?.fileId ?? null;
  const url = part.url ?? (source.type === "url" ? source.value : null);
  return {
    id,
    url: url ?? (id === null ? null : `/api/files/${encodeURIComponent(id)}`),
    name: part.name ?? part.metadata?.name ?? "",
    mediaType: part.mediaType ?? part.mimeType ?? source.mimeType ?? "",
  };
}

/** Only our own files are ever loaded as pictures; any other address would tell others who reads. */
export function isPicture(file) {
  const isOurs = typeof file.url === "string" && file.url.startsWith("/api/files/");
  return isOurs && file.mediaType.startsWith("image/");
}
