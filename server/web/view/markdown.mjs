/** A growing markdown text: one element per block, and only blocks that changed are drawn. */

import { t } from "../i18n.mjs";
import { renderBlock, splitBlocks } from "../markdown.mjs";
import { html, memo, useRef } from "./html.mjs";

export const Markdown = memo(({ text, isOpen }) => {
  const blocks = useRef([]);
  blocks.current = splitBlocks(text, blocks.current, !isOpen);
  const shown = blocks.current.filter(({ token }) => token.type !== "space" && token.type !== "def");
  return html`
    <div class="markdown" onClick=${copyCode}>
      ${shown.map((block, at) => html`<${Block} key=${at} block=${block} />`)}
    </div>
  `;
});

const Block = memo(
  ({ block }) => html`
    <div class="block" dangerouslySetInnerHTML=${{ __html: renderBlock(block, { copy: t("copy") }) }} />
  `,
);

async function copyCode(event) {
  const button = event.target.closest(".code-copy");
  if (button === null) return;
  await copyText(button.closest(".code").querySelector("code").textContent);
  button.textContent = t("copied");
  setTimeout(() => (button.textContent = t("copy")), 1500);
}

/** The clipboard's own interface is missing on plain http to another machine. */
export async function copyText(text) {
  if (navigator.clipboard !== undefined) return navigator.clipboard.writeText(text);
  const area = document.createElement("textarea");
  area.value = text;
  area.className = "sr-only";
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}
