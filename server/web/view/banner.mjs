/** How the connection stands, when it is not simply open. */

import { t } from "../i18n.mjs";
import { html, memo, useClock } from "./html.mjs";

export const Banner = memo(({ connection, socket }) => {
  const { state, retryAt } = connection;
  const now = useClock(state === "waiting");
  if (state === "open" || state === "unauthenticated") return null;
  if (state === "forbidden") return html`<div class="banner error" role="alert">${t("forbidden")}</div>`;
  if (state === "outdated") {
    return html`
      <div class="banner error" role="alert">
        ${t("outdated")}
        <button class="button small" onClick=${() => location.reload()}>${t("reload")}</button>
      </div>
    `;
  }
  if (state === "connecting") return html`<div class="banner">${t("connecting")}</div>`;
  const seconds = Math.max(0, Math.ceil((retryAt - now) / 1000));
  return html`
    <div class="banner">
      ${t("reconnecting", { seconds })}
      <button class="button small" onClick=${() => socket.wake()}>${t("reconnectNow")}</button>
    </div>
  `;
});
