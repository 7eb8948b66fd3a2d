/** One session as it is read and written: its log, and below it the composer. */

import { isOpen } from "../approvals.mjs";
import { isRunning, isWaiting } from "../chat.mjs";
import { composerOf } from "../composers.mjs";
import { named, t } from "../i18n.mjs";
import { Composer } from "./composer.mjs";
import { html } from "./html.mjs";
import { Log } from "./log.mjs";

/** `canAsk`: side questions may be asked of this session from here. */
export function Conversation({ state, chat, composerKey, label, canAsk, actions }) {
  if (chat?.missing) return html`<p class="missing">${t("sessionMissing")}</p>`;
  const pending = state.pending.filter((row) => row.session === chat?.id);
  const isConnected = state.connection.state === "open";
  const composer = composerOf(state, composerKey);
  return html`
    ${chat !== null && html`<${Log} key=${chat.id} ...${{ chat, pending, canAsk, actions, isConnected }} />`}
    <${Composer} ...${{ chat, composer, composerKey, label, canAsk, actions }} />
    <div class="sr-only" role="status" aria-live="polite">${chat !== null && spoken(chat)}</div>
  `;
}

/** What a screen reader is told of the run; the text itself it reads at leisure. */
function spoken(chat) {
  if (isRunning(chat)) {
    const { round, cancelling } = chat.run ?? {};
    if (cancelling) return t("stopping");
    return round ? `${t("running")} · ${t("round", { round })}` : t("running");
  }
  if (chat.status === "FAILED" && chat.error) return `${t("failed")}: ${chat.error.message}`;
  if (isWaiting(chat)) return [named("status", chat.status), ...chat.approvals.filter(isOpen).map(({ message }) => message)].join(": ");
  return chat.status === "IDLE" ? "" : named("status", chat.status);
}
