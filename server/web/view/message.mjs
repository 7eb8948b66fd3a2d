/** One item of the conversation that is no tool call. */

import { contentOf, readContent } from "../content.mjs";
import { t } from "../i18n.mjs";
import { Files } from "./files.mjs";
import { html, memo, useState } from "./html.mjs";
import { AsideIcon, CopyIcon, PencilIcon, RetryIcon } from "./icons.mjs";
import { copyText, Markdown } from "./markdown.mjs";

export const Item = memo((props) => {
  const { item } = props;
  switch (item.kind) {
    case "user":
      return html`<${UserMessage} ...${props} />`;
    case "text":
      return html`<${Answer} ...${props} />`;
    case "reasoning":
      return html`<${Reasoning} item=${item} />`;
    default:
      return html`<${Note} item=${item} />`;
  }
});

function UserMessage({ session, item, isIdle, canAsk, actions }) {
  return html`
    <article class="user-row">
      <${Bubble} text=${item.text} files=${item.files} />
      <div class="row-actions">
        <${CopyButton} text=${item.text} />
        ${isIdle && html`
          <button class="icon-button small" aria-label=${t("edit")} title=${t("edit")} onClick=${() => actions.messages.edit(session, item)}>
            <${PencilIcon} />
          </button>
        `}
        ${canAsk && html`<${AsideButton} from=${item.id} actions=${actions} />`}
      </div>
    </article>
  `;
}

function Bubble({ text, files }) {
  return html`
    <div class="bubble">
      ${files.length > 0 && html`<${Files} files=${files} />`}
      ${text && html`<div class="bubble-text">${text}</div>`}
    </div>
  `;
}

/** A message of ours that the log does not hold yet. */
export function Pending({ row, actions, isConnected }) {
  const hasFailed = row.phase === "failed";
  const { files } = readContent(contentOf("", row.files));
  const state = isConnected ? t("sending") : t("waitingForConnection");
  return html`
    <article class=${`user-row ${hasFailed ? "has-failed" : "is-pending"}`}>
      <${Bubble} text=${row.text} files=${files} />
      <div class="pending-state">
        ${hasFailed ? t("notSent", { reason: row.error }) : state}
        ${hasFailed && html`
          <button class="button small" onClick=${() => actions.messages.resend(row.clientMsgId)}>${t("retry")}</button>
          <button class="button small quiet" onClick=${() => actions.messages.withdraw(row.clientMsgId)}>${t("discard")}</button>
        `}
      </div>
    </article>
  `;
}

function Answer({ session, item, isFinal, prompt, canAsk, actions }) {
  return html`
    <article class="answer">
      <${Markdown} text=${item.text} isOpen=${Boolean(item.open)} />
      ${isFinal && html`
        <div class="row-actions">
          <${CopyButton} text=${item.text} />
          ${prompt && html`
            <button class="icon-button small" aria-label=${t("regenerate")} title=${t("regenerate")} onClick=${() => actions.messages.retry(session, prompt)}>
              <${RetryIcon} />
            </button>
          `}
          ${canAsk && html`<${AsideButton} from=${item.id} actions=${actions} />`}
        </div>
      `}
    </article>
  `;
}

/** A side question that sees the history up to this message. */
function AsideButton({ from, actions }) {
  return html`
    <button class="icon-button small" aria-label=${t("asideFrom")} title=${t("asideFrom")} onClick=${() => actions.sideline.open({ from })}>
      <${AsideIcon} />
    </button>
  `;
}

function CopyButton({ text }) {
  const [isCopied, setCopied] = useState(false);
  const copy = async () => {
    await copyText(text);
    setCopied(true);
    setTimeout(() => setCopied(false), 1500);
  };
  const label = isCopied ? t("copied") : t("copy");
  return html`
    <button class=${`icon-button small ${isCopied ? "is-done" : ""}`} aria-label=${label} title=${label} onClick=${copy}>
      <${CopyIcon} />
    </button>
  `;
}

function Reasoning({ item }) {
  const [isOpen, setOpen] = useState(false);
  return html`
    <details class=${`reasoning ${item.open ? "is-live" : ""}`} open=${isOpen} onToggle=${(event) => setOpen(event.currentTarget.open)}>
      <summary>${item.open ? t("thinking") : t("thought")}</summary>
      ${isOpen && html`<${Markdown} text=${item.text} isOpen=${Boolean(item.open)} />`}
    </details>
  `;
}

const COMPACTION_WORDS = { started: "compacting", finished: "compacted", failed: "compactionFailed" };

function Note({ item }) {
  const words = t(COMPACTION_WORDS[item.state] ?? "compacted");
  if (!item.text) return html`<p class="note"><span>${words}</span></p>`;
  return html`
    <details class="note">
      <summary><span>${words}</span></summary>
      <${Markdown} text=${item.text} isOpen=${false} />
    </details>
  `;
}
