/** The open session: its head and what is said in it; or the page of a new one. */

import { TASKS, sessionAddress } from "../address.mjs";
import { NEW_KEY } from "../composers.mjs";
import { named, t } from "../i18n.mjs";
import { Back } from "./back.mjs";
import { Banner } from "./banner.mjs";
import { Conversation } from "./conversation.mjs";
import { html, useState } from "./html.mjs";
import { MenuIcon } from "./icons.mjs";
import { Usage } from "./usage.mjs";

export function Chat({ state, actions, socket, isCovered, openDrawer }) {
  const { chat, connection } = state;
  const composerKey = chat?.id ?? NEW_KEY;
  const [isDropping, drop] = useDrop((files) => actions.files.attach(composerKey, files));
  return html`
    <main class="chat" inert=${isCovered} ...${drop}>
      <header class="chat-head">
        <button class="icon-button menu-button" aria-label=${t("openMenu")} onClick=${openDrawer}><${MenuIcon} /></button>
        ${chat?.parent && html`<${Back} href=${sessionAddress(chat.parent)} title=${titleOf(state.sessions, chat.parent)} />`}
        ${chat?.kind === "scheduled" && html`<${Back} href=${TASKS} title=${t("tasks")} />`}
        <h1>${chat?.title || t("newSession")}</h1>
        ${chat !== null && html`<span class=${`status ${chat.status}`}>${named("status", chat.status)}</span>`}
        ${chat !== null && html`<${Usage} total=${chat.usage} run=${chat.runUsage} />`}
      </header>
      <${Banner} connection=${connection} socket=${socket} />
      ${chat === null && html`<${Welcome} />`}
      <${Conversation} ...${{ state, chat, composerKey, actions }} label=${t("composer")} canAsk=${chat !== null} />
      ${isDropping && html`<div class="drop-here">${t("dropHere")}</div>`}
    </main>
  `;
}

const titleOf = (sessions, id) => sessions.find((row) => row.id === id)?.title ?? t("parentSession");

function Welcome() {
  return html`
    <div class="welcome">
      <img src="./icon.svg" alt="" width="56" height="56" />
      <h2>${t("welcome")}</h2>
      <p>${t("welcomeText")}</p>
    </div>
  `;
}

/** Files dragged over the page; entering a child fires before leaving its parent, hence the count. */
function useDrop(onFiles) {
  const [depth, setDepth] = useState(0);
  const hasFiles = (event) => event.dataTransfer?.types.includes("Files");
  const handlers = {
    onDragEnter: (event) => hasFiles(event) && setDepth((count) => count + 1),
    onDragLeave: (event) => hasFiles(event) && setDepth((count) => Math.max(0, count - 1)),
    onDragOver: (event) => hasFiles(event) && event.preventDefault(),
    onDrop: (event) => {
      if (!hasFiles(event)) return;
      event.preventDefault();
      setDepth(0);
      void onFiles(event.dataTransfer.files);
    },
  };
  return [depth > 0, handlers];
}
