/** JSON for reading: laid out from its own text, so that no number is rounded on the way. */

/** @returns {string} *text* indented, or as it is when it is not JSON */
export function prettyJson(text) {
  return isJson(text) ? layOut(text) : text;
}

function isJson(text) {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

const TOKEN = /"(?:[^"\\]|\\.)*"|[{}[\],:]|[^\s{}[\],:"]+/g;

const isBegin = (token) => token === "{" || token === "[";
const isEnd = (token) => token === "}" || token === "]";

function layOut(text) {
  const tokens = text.match(TOKEN) ?? [];
  let out = "";
  let depth = 0;
  const line = () => `\n${"  ".repeat(depth)}`;
  tokens.forEach((token, at) => {
    if (isBegin(token)) {
      depth += 1;
      out += isEnd(tokens[at + 1]) ? token : token + line();
    } else if (isEnd(token)) {
      depth -= 1;
      out += isBegin(tokens[at - 1]) ? token : line() + token;
    } else if (token === ",") out += token + line();
    else out += token === ":" ? ": " : token;
  });
  return out;
}

/** Numbers that would be rounded stay as they were written, where the browser knows how. */
function exact(key, value, context) {
  const isRounded = typeof value === "number" && context?.source !== undefined && String(value) !== context.source;
  return isRounded && JSON.rawJSON ? JSON.rawJSON(context.source) : value;
}

/**
 * A JSON object that a person wrote.
 *
 * @returns {{value: object} | {fault: {key: string, line?: string, column?: string}}} `key` is the
 *   text that says what is wrong
 */
export function parseObject(text) {
  let value;
  try {
    value = JSON.parse(text, exact);
  } catch (error) {
    const [, line, column] = /line (\d+) column (\d+)/.exec(error.message) ?? [];
    return { fault: line === undefined ? { key: "notJson" } : { key: "notJsonAt", line, column } };
  }
  const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
  return isObject ? { value } : { fault: { key: "notAnObject" } };
}

/** Arguments that say best what a call is about, in order. */
const TELLING = ["command", "pattern", "path", "task", "query", "url", "text"];

/** One line for a call's card; empty while its arguments are not whole. */
export function callSummary(args) {
  try {
    const values = JSON.parse(args) ?? {};
    const key = TELLING.find((name) => typeof values[name] === "string" && values[name] !== "");
    const value = key === undefined ? Object.values(values).find((v) => typeof v === "string") : values[key];
    return (value ?? "").replace(/\s+/g, " ").slice(0, 200);
  } catch {
    return "";
  }
}
