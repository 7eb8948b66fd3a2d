/** How the last run ended, drawn from the session's state, so that a reload shows the same. */

import { isRunning } from "../chat.mjs";
import { formatWhen } from "../formats.mjs";
import { t } from "../i18n.mjs";
import { html } from "./html.mjs";
import { AlertIcon } from "./icons.mjs";

export function Ending({ chat, prompt, actions }) {
  return html`
    <${Outcome} chat=${chat} prompt=${prompt} actions=${actions} />
    ${chat.undelivered && html`<p class="note" role="alert"><span>${t("undelivered", chat.undelivered)}</span></p>`}
  `;
}

function Outcome({ chat, prompt, actions }) {
  if (isRunning(chat)) return html`<${Working} chat=${chat} />`;
  if (chat.status === "CANCELLED") return html`<p class="note"><span>${t("stopped")}</span></p>`;
  if (chat.status !== "FAILED" || chat.error === null) return null;
  return html`<${ErrorCard} session=${chat.id} error=${chat.error} prompt=${prompt} actions=${actions} />`;
}

/** Shown while nothing else on the page moves: the model has been asked and is silent. */
function Working({ chat }) {
  if (chat.items.at(-1)?.open || chat.items.some(({ phase }) => phase === "running" || phase === "calling")) return null;
  return html`<p class="working" aria-hidden="true"><i /><i /><i /></p>`;
}

function ErrorCard({ session, error, prompt, actions }) {
  return html`
    <section class="error-card" role="alert">
      <${AlertIcon} />
      <div>
        <h3>${t("failed")}</h3>
        <p class="error-reason">${error.message}</p>
        <p class="error-facts">
          <code>${error.code}</code>
          ${error.runId && html`<span>${t("runId")} <code>${error.runId}</code></span>`}
          ${error.at && html`<time>${formatWhen(error.at)}</time>`}
        </p>
        ${prompt && html`
          <button class=${`button ${error.retryable === false ? "" : "danger"}`} onClick=${() => actions.messages.retry(session, prompt)}>
            ${t("retry")}
          </button>
        `}
      </div>
    </section>
  `;
}
