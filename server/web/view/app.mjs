/** The page: the login, or the session list beside the open session or the scheduled tasks. */

import { familyOf, relativesOf } from "../family.mjs";
import { t } from "../i18n.mjs";
import { Chat } from "./chat.mjs";
import { html, useEffect, useMedia, useMemo, useState } from "./html.mjs";
import { Login } from "./login.mjs";
import { Side } from "./side.mjs";
import { Sidebar } from "./sidebar.mjs";
import { Tasks } from "./tasks.mjs";

/** Below this width the session list is a drawer; the style sheets name the same number. */
const NARROW = "(max-width: 767px)";
/** Below this one a side question covers its session; the style sheets name it too. */
const NO_ROOM_BESIDE = "(max-width: 1099px)";

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
  const { chat, sessions, search, view } = state;
  const sideId = state.side?.chat?.id ?? null;
  const isNarrow = useMedia(NARROW);
  const isCovering = useMedia(NO_ROOM_BESIDE);
  const [isOpen, setOpen] = useState(false);
  const closeDrawer = useMemo(() => () => setOpen(false), []);
  useEffect(closeDrawer, [state.openId, sideId, isNarrow]);
  useEffect(() => {
    if (!isOpen) return undefined;
    const onKey = (event) => event.key === "Escape" && closeDrawer();
    addEventListener("keydown", onKey);
    return () => removeEventListener("keydown", onKey);
  }, [isOpen]);
  const { id, parent, children, title, status } = chat ?? {};
  const relatives = useMemo(() => relativesOf(chat), [id, parent, children, title, status]);
  const isBehindDrawer = isNarrow && isOpen;
  const openDrawer = () => setOpen(true);
  return html`
    <div class=${`shell ${isOpen ? "drawer-open" : ""} ${state.side ? "has-side" : ""}`}>
      <${Sidebar}
        ...${{ actions, switchLocale, isNarrow, closeDrawer, sessions, search, view, sideId, relatives }}
        isHidden=${isNarrow && !isOpen}
        familyId=${familyOf(chat)}
        isLoaded=${state.sessionsLoaded} isCut=${state.sessionsCut}
        openId=${state.openId}
      />
      ${isBehindDrawer && html`<button class="backdrop" aria-label=${t("closeMenu")} onClick=${closeDrawer} />`}
      ${view === "tasks"
        ? html`<${Tasks} ...${{ state, actions, socket, openDrawer }} isCovered=${isBehindDrawer} />`
        : html`<${Chat} ...${{ state, actions, socket, openDrawer }} isCovered=${isBehindDrawer || (isCovering && state.side !== null)} />`}
      ${state.side && html`<${Side} ...${{ state, actions, isCovering }} />`}
    </div>
  `;
}
