/** The session list: search, status dots, and under the open session what stands below it. */

import { NEW_SESSION, TASKS, sessionAddress } from "../address.mjs";
import { t } from "../i18n.mjs";
import { Confirm } from "./confirm.mjs";
import { html, memo, useState } from "./html.mjs";
import { ClockIcon, CloseIcon, PlusIcon, SearchIcon } from "./icons.mjs";
import { Preferences } from "./preferences.mjs";
import { SessionRow } from "./session_row.mjs";

/** More children than this are folded. */
const CHILDREN_SHOWN = 6;

/** `familyId` is the session whose `relatives` are listed below it. */
export const Sidebar = memo((props) => {
  const { sessions, familyId, relatives, isLoaded, isCut, search, view, openId, sideId, actions, switchLocale } = props;
  const { isHidden, isNarrow, closeDrawer } = props;
  const [doomed, setDoomed] = useState(null);
  const row = { actions, closeDrawer, onDelete: setDoomed };
  return html`
    <nav class="sidebar" aria-label=${t("sessions")} inert=${isHidden}>
      <div class="sidebar-head">
        <img src="./icon.svg" alt="" width="26" height="26" />
        <strong>${t("appName")}</strong>
        ${isNarrow &&
        html`<button class="icon-button" aria-label=${t("closeMenu")} onClick=${closeDrawer}><${CloseIcon} /></button>`}
      </div>
      <a class="button new-session" href=${NEW_SESSION} onClick=${closeDrawer}><${PlusIcon} />${t("newSession")}</a>
      <a class="button quiet tasks-link" href=${TASKS} aria-current=${view === "tasks" ? "page" : undefined} onClick=${closeDrawer}>
        <${ClockIcon} />${t("tasks")}
      </a>
      <label class="search">
        <${SearchIcon} />
        <input
          type="search" placeholder=${t("searchSessions")} aria-label=${t("searchSessions")}
          value=${search} onInput=${(event) => actions.sessions.search(event.currentTarget.value)}
        />
      </label>
      <ul class="sessions">
        ${sessions.map(
          (session) => html`
            <${SessionRow} key=${session.id} ...${{ ...row, session }} href=${sessionAddress(session.id)} isOpen=${session.id === openId}>
              ${session.id === familyId && relatives.length > 0 && html`<${Relatives} ...${{ ...row, relatives, familyId, openId, sideId }} />`}
            <//>
          `,
        )}
        ${isCut && html`<li class="sessions-cut">${t("sessionsCut", { count: sessions.length })}</li>`}
      </ul>
      ${isLoaded && sessions.length === 0 &&
      html`<p class="sidebar-empty">${search ? t("noMatch") : t("noSessions")}</p>`}
      <${Preferences} switchLocale=${switchLocale} actions=${actions} />
      ${doomed && html`
        <${Confirm}
          title=${t("confirmDelete")} text=${t("confirmDeleteText", { title: doomed.title || t("newSession") })}
          action=${t("remove")} run=${() => actions.sessions.remove(doomed.id)} close=${() => setDoomed(null)}
        />
      `}
    </nav>
  `;
});

/** Side questions and subagents of the open session. */
function Relatives({ relatives, familyId, openId, sideId, ...row }) {
  const [isWhole, setWhole] = useState(false);
  const shown = isWhole ? relatives : relatives.slice(0, CHILDREN_SHOWN);
  return html`
    <ul class="relatives" aria-label=${t("children")}>
      ${shown.map(
        (session) => html`<${SessionRow}
          key=${session.id} ...${row} session=${session}
          href=${sessionAddress(familyId, session.id)} isOpen=${session.id === sideId || session.id === openId}
        />`,
      )}
      ${shown.length < relatives.length && html`
        <li><button class="button small quiet" onClick=${() => setWhole(true)}>${t("showAllChildren", { count: relatives.length })}</button></li>
      `}
    </ul>
  `;
}
