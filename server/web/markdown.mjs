/**
 * Markdown as a list of blocks, each with sanitised HTML of its own.
 *
 * A growing text keeps its earlier blocks: only the last ones are read anew, so a frame costs what
 * it adds and the page replaces one element. Nothing is ever loaded from another host: pictures
 * become links.
 */

import { DOMPurify, Marked } from "./vendor/vendor.mjs";

/** Text that is still to come may join the last two blocks (`a\n***` + `b***` is one paragraph). */
const UNSETTLED_BLOCKS = 2;

const TAGS = [
  ..."a b blockquote br code dd del details div dl dt em h1 h2 h3 h4 h5 h6 hr i ins kbd li mark".split(" "),
  ..."ol p pre s small span strong sub summary sup table tbody td th thead tr u ul".split(" "),
];
const ATTRIBUTES = ["href", "title", "class", "align", "start", "colspan", "rowspan", "open", "lang", "dir"];
const PURIFY = {
  ALLOWED_TAGS: TAGS,
  ALLOWED_ATTR: ATTRIBUTES,
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  ADD_URI_SAFE_ATTR: ATTRIBUTES.filter((name) => name !== "href"),
  ALLOWED_URI_REGEXP: /^(?:https?:|mailto:|\/api\/files\/)/i,
  RETURN_DOM_FRAGMENT: true,
};

const marked = new Marked({
  gfm: true,
  breaks: true,
  renderer: {
    image({ href, title, text }) {
      const label = text || title || href;
      return `<a href="${escape(href)}">${escape(label)}</a>`;
    },
    checkbox({ checked }) {
      return checked ? "☑ " : "☐ ";
    },
  },
});

function escape(text) {
  return text.replace(/[&<>"']/g, (sign) => `&#${sign.charCodeAt(0)};`);
}

/**
 * The blocks of *text*, taking over those of *before* (the blocks of a beginning of it).
 *
 * @param {boolean} isWhole nothing will follow, so all of it is read anew
 * @returns {Array<{raw: string, token: object}>} a block that did not change is the same object
 */
export function splitBlocks(text, before = [], isWhole = true) {
  const kept = isWhole ? [] : settled(text, before);
  const offset = kept.reduce((sum, { raw }) => sum + raw.length, 0);
  const tokens = marked.lexer(text.slice(offset));
  const fresh = tokens.map((token) => ({ raw: token.raw, token }));
  return [...kept, ...fresh].map((block, at) => (isSame(before[at], block) ? before[at] : block));
}

/** A whole text is read in one piece, so a link defined further down may change an earlier block. */
function isSame(known, block) {
  if (known === block) return true;
  return known?.raw === block.raw && JSON.stringify(known.token) === JSON.stringify(block.token);
}

function settled(text, before) {
  const spoken = before.filter(({ token }) => token.type !== "space");
  const first = spoken.at(-UNSETTLED_BLOCKS);
  const kept = first === undefined ? [] : before.slice(0, before.indexOf(first));
  // The reader writes some line ends its own way; what it changed is read again as a whole.
  return text.startsWith(kept.map(({ raw }) => raw).join("")) ? kept : [];
}

/** One block as HTML that is safe to place into the page. */
export function renderBlock(block, labels) {
  const fragment = DOMPurify.sanitize(marked.parser([block.token]), PURIFY);
  for (const link of fragment.querySelectorAll("a[href]")) secure(link);
  for (const marker of fragment.querySelectorAll("[class]")) keepLanguage(marker);
  for (const code of fragment.querySelectorAll("pre > code")) frame(code, labels);
  for (const table of fragment.querySelectorAll("table")) makeScrollable(table);
  const holder = document.createElement("div");
  holder.append(fragment);
  return holder.innerHTML;
}

function secure(link) {
  link.target = "_blank";
  link.rel = "noopener noreferrer nofollow";
}

/** The text must not dress up as a part of the page. */
function keepLanguage(element) {
  const language = languageOf(element);
  element.removeAttribute("class");
  if (language && element.localName === "code") element.className = `language-${language}`;
}

function languageOf(element) {
  return [...element.classList].find((name) => name.startsWith("language-"))?.slice("language-".length);
}

function frame(code, labels) {
  const box = document.createElement("div");
  const head = document.createElement("div");
  const language = document.createElement("span");
  const copy = document.createElement("button");
  box.className = "code";
  head.className = "code-head";
  language.textContent = languageOf(code) ?? "";
  copy.type = "button";
  copy.className = "code-copy";
  copy.textContent = labels.copy;
  head.append(language, copy);
  const pre = code.parentElement;
  pre.tabIndex = 0;
  pre.replaceWith(box);
  box.append(head, pre);
}

function makeScrollable(table) {
  const box = document.createElement("div");
  box.className = "table";
  box.tabIndex = 0;
  table.replaceWith(box);
  box.append(table);
}
