/** Asks before something is gone for good. */

import { t } from "../i18n.mjs";
import { html, useEffect, useRef } from "./html.mjs";

export function Confirm({ title, text, action, run, close }) {
  const dialog = useRef(null);
  useEffect(() => dialog.current.showModal(), []);
  const confirmed = () => {
    close();
    run();
  };
  return html`
    <dialog class="confirm" ref=${dialog} onClose=${close} aria-labelledby="confirm-title">
      <h2 id="confirm-title">${title}</h2>
      <p>${text}</p>
      <div class="confirm-actions">
        <button class="button" onClick=${close}>${t("cancel")}</button>
        <button class="button danger" onClick=${confirmed}>${action}</button>
      </div>
    </dialog>
  `;
}
