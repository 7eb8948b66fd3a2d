/** The session list: search, status dots, rename, delete. */

import { formatWhen, named, t } from "../i18n.mjs";
import { html, memo, useEffect, useRef, useState } from "./html.mjs";
import { CloseIcon, ContrastIcon, GlobeIcon, LeaveIcon, PencilIcon, PlusIcon, SearchIcon, TrashIcon } from "./icons.mjs";
import { applyTheme, theme, THEMES } from "./theme.mjs";

export const Sidebar = memo((props) => {
  const { sessions, isLoaded, search, openId, actions, switchLocale } = props;
  const { isHidden, isNarrow, closeDrawer } = props;
  const [doomed, setDoomed] = useState(null);
  return html`
    <nav class="sidebar" aria-label=${t("sessions")} inert=${isHidden}>
      <div class="sidebar-head">
        <img src="./icon.svg" alt="" width="26" height="26" />
        <strong>${t("appName")}</strong>
        ${isNarrow &&
        html`<button class="icon-button" aria-label=${t("closeMenu")} onClick=${closeDrawer}><${CloseIcon} /></button>`}
      </div>
      <a class="button new-session" href="#/" onClick=${closeDrawer}><${PlusIcon} />${t("newSession")}</a>
      <label class="search">
        <${SearchIcon} />
        <input
          type="search" placeholder=${t("searchSessions")} aria-label=${t("searchSessions")}
          value=${search} onInput=${(event) => actions.search(event.currentTarget.value)}
        />
      </label>
      <ul class="sessions">
        ${sessions.map(
          (session) => html`<${Row}
            key=${session.id} session=${session} isOpen=${session.id === openId}
            actions=${actions} onDelete=${setDoomed} closeDrawer=${closeDrawer}
          />`,
        )}
      </ul>
      ${isLoaded && sessions.length === 0 &&
      html`<p class="sidebar-empty">${search ? t("noMatch") : t("noSessions")}</p>`}
      <${Preferences} switchLocale=${switchLocale} actions=${actions} />
      ${doomed && html`<${Confirm} session=${doomed} actions=${actions} close=${() => setDoomed(null)} />`}
    </nav>
  `;
});

const Row = memo(({ session, isOpen, actions, onDelete, closeDrawer }) => {
  const [isRenaming, setRenaming] = useState(false);
  const title = session.title || t("newSession");
  if (isRenaming) {
    return html`<${Rename} ...${{ session, title, actions }} close=${() => setRenaming(false)} />`;
  }
  const status = named("status", session.status);
  return html`
    <li class=${`session ${isOpen ? "is-open" : ""}`}>
      <a
        href=${`#/s/${encodeURIComponent(session.id)}`} title=${title}
        aria-current=${isOpen ? "page" : undefined} onClick=${closeDrawer}
      >
        <span class=${`dot ${session.status}`} role="img" aria-label=${status} title=${status} />
        <span class="session-title">${title}</span>
        ${session.kind && session.kind !== "main" && html`<span class="badge">${named("kind", session.kind)}</span>`}
        <time>${formatWhen(session.updatedAt)}</time>
      </a>
      <span class="session-actions">
        <button class="icon-button small" aria-label=${`${t("rename")}: ${title}`} title=${t("rename")} onClick=${() => setRenaming(true)}>
          <${PencilIcon} />
        </button>
        <button class="icon-button small" aria-label=${`${t("remove")}: ${title}`} title=${t("remove")} onClick=${() => onDelete(session)}>
          <${TrashIcon} />
        </button>
      </span>
    </li>
  `;
});

function Rename({ session, title, actions, close }) {
  const input = useRef(null);
  useEffect(() => input.current.select(), []);
  const isDone = useRef(false);
  // An input that goes while it has the focus still says blur.
  const finish = (name) => {
    if (isDone.current) return;
    isDone.current = true;
    if (name !== "" && name !== session.title) void actions.rename(session.id, name);
    close();
  };
  const onKeyDown = (event) => {
    if (event.isComposing) return;
    if (event.key === "Enter") finish(event.currentTarget.value.trim());
    if (event.key === "Escape") {
      event.stopPropagation();
      finish("");
    }
  };
  return html`
    <li class="session">
      <input
        class="rename" aria-label=${t("rename")} defaultValue=${title} maxlength="200"
        ref=${input} onKeyDown=${onKeyDown} onBlur=${(event) => finish(event.currentTarget.value.trim())}
      />
    </li>
  `;
}

function Confirm({ session, actions, close }) {
  const dialog = useRef(null);
  useEffect(() => dialog.current.showModal(), []);
  const remove = () => {
    close();
    void actions.remove(session.id);
  };
  return html`
    <dialog class="confirm" ref=${dialog} onClose=${close} aria-labelledby="confirm-title">
      <h2 id="confirm-title">${t("confirmDelete")}</h2>
      <p>${t("confirmDeleteText", { title: session.title || t("newSession") })}</p>
      <div class="confirm-actions">
        <button class="button" onClick=${close}>${t("cancel")}</button>
        <button class="button danger" onClick=${remove}>${t("remove")}</button>
      </div>
    </dialog>
  `;
}

function Preferences({ switchLocale, actions }) {
  const [name, setName] = useState(theme);
  const turn = () => {
    const next = THEMES[(THEMES.indexOf(name) + 1) % THEMES.length];
    applyTheme(next);
    setName(next);
  };
  const label = t({ auto: "themeAuto", light: "themeLight", dark: "themeDark" }[name]);
  return html`
    <div class="preferences">
      <button class="button quiet" onClick=${switchLocale}><${GlobeIcon} />${t("language")}</button>
      <button class="button quiet" aria-label=${`${t("theme")}: ${label}`} onClick=${turn}><${ContrastIcon} />${label}</button>
      <button class="icon-button" aria-label=${t("logout")} title=${t("logout")} onClick=${() => actions.logout()}><${LeaveIcon} /></button>
    </div>
  `;
}
