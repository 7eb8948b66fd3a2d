/** The page: the login, or the session list beside the open session. */

import { t } from "../i18n.mjs";
import { Chat } from "./chat.mjs";
import { html, useEffect, useMedia, useState } from "./html.mjs";
import { Login } from "./login.mjs";
import { Sidebar } from "./sidebar.mjs";

/** Below this width the session list is a drawer; the style sheets name the same number. */
const NARROW = "(max-width: 767px)";

export function App({ state, actions, socket, switchLocale }) {
  if (state.login === "unknown") return null;
  return html`
    ${state.login === "out"
      ? html`<${Login} actions=${actions} switchLocale=${switchLocale} />`
      : html`<${Shell} ...${{ state, actions, socket, switchLocale }} />`}
    <div class="toast-place" role="status">
      ${state.toast && html`<div class="toast">${state.toast}</div>`}
    </div>
  `;
}

function Shell({ state, actions, socket, switchLocale }) {
  const isNarrow = useMedia(NARROW);
  const [isOpen, setOpen] = useState(false);
  const closeDrawer = () => setOpen(false);
  useEffect(closeDrawer, [state.openId, isNarrow]);
  useEffect(() => {
    if (!isOpen) return undefined;
    const onKey = (event) => event.key === "Escape" && closeDrawer();
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, [isOpen]);
  const isHidden = isNarrow && !isOpen;
  return html`
    <div class=${`shell ${isOpen ? "drawer-open" : ""}`}>
      <${Sidebar}
        ...${{ actions, switchLocale, isHidden, isNarrow, closeDrawer }}
        sessions=${state.sessions}
        isLoaded=${state.sessionsLoaded}
        search=${state.search}
        openId=${state.openId}
      />
      ${isNarrow && isOpen && html`<button class="backdrop" aria-label=${t("closeMenu")} onClick=${closeDrawer} />`}
      <${Chat} ...${{ state, actions, socket }} isCovered=${isNarrow && isOpen} openDrawer=${() => setOpen(true)} />
    </div>
  `;
}
