/** One session in the list: where it leads, how it stands, and what can be done with it. */

import { formatWhen } from "../formats.mjs";
import { kindOf, named, t } from "../i18n.mjs";
import { html, memo, useEffect, useRef, useState } from "./html.mjs";
import { PencilIcon, TrashIcon } from "./icons.mjs";

export const SessionRow = memo(({ session, href, isOpen, actions, onDelete, closeDrawer, children }) => {
  const [isRenaming, setRenaming] = useState(false);
  const title = session.title || t("newSession");
  if (isRenaming) {
    return html`<${Rename} ...${{ session, title, actions }} close=${() => setRenaming(false)} />`;
  }
  const status = named("status", session.status);
  const isWaiting = session.status === "WAITING";
  return html`
    <li class=${`session ${isOpen ? "is-open" : ""}`}>
      <div class="session-line">
        <a href=${href} title=${title} aria-current=${isOpen ? "page" : undefined} onClick=${closeDrawer}>
          <span class=${`dot ${session.status}`} role="img" aria-label=${status} title=${status} />
          <span class="session-title">${title}</span>
          ${session.kind && session.kind !== "main" && html`<span class="badge">${kindOf(session)}</span>`}
          ${isWaiting ? html`<span class="badge is-waiting" aria-hidden="true">${status}</span>` : html`<time>${formatWhen(session.updatedAt)}</time>`}
        </a>
        <span class="session-actions">
          <button class="icon-button small" aria-label=${`${t("rename")}: ${title}`} title=${t("rename")} onClick=${() => setRenaming(true)}>
            <${PencilIcon} />
          </button>
          <button class="icon-button small" aria-label=${`${t("remove")}: ${title}`} title=${t("remove")} onClick=${() => onDelete(session)}>
            <${TrashIcon} />
          </button>
        </span>
      </div>
      ${children}
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
    if (name !== "" && name !== session.title) void actions.sessions.rename(session.id, name);
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
