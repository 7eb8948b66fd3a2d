/** The open session: its head, its log, and the composer; or the page of a new one. */

import { isRunning } from "../chat.mjs";
import { named, t } from "../i18n.mjs";
import { Banner } from "./banner.mjs";
import { Composer } from "./composer.mjs";
import { html, useState } from "./html.mjs";
import { MenuIcon } from "./icons.mjs";
import { Log } from "./log.mjs";
import { Usage } from "./usage.mjs";

export function Chat({ state, actions, socket, isCovered, openDrawer }) {
  const { chat, connection } = state;
  const [isDropping, drop] = useDrop((files) => actions.attach(files));
  const pending = state.pending.filter((row) => row.session === chat?.id);
  return html`
    <main class="chat" inert=${isCovered} ...${drop}>
      <header class="chat-head">
        <button class="icon-button menu-button" aria-label=${t("openMenu")} onClick=${openDrawer}><${MenuIcon} /></button>
        <h1>${chat?.title || t("newSession")}</h1>
        ${chat !== null && html`<span class=${`status ${chat.status}`}>${named("status", chat.status)}</span>`}
        ${chat !== null && html`<${Usage} total=${chat.usage} run=${chat.runUsage} />`}
      </header>
      <${Banner} connection=${connection} socket=${socket} />
      ${chat === null && html`<${Welcome} />`}
      ${chat !== null && chat.missing && html`<p class="missing">${t("sessionMissing")}</p>`}
      ${chat !== null && !chat.missing &&
      html`<${Log} key=${chat.id} ...${{ chat, pending, actions }} isConnected=${connection.state === "open"} />`}
      ${!chat?.missing && html`<${Composer} state=${state} actions=${actions} />`}
      <div class="sr-only" role="status" aria-live="polite">${chat !== null && spoken(chat)}</div>
      ${isDropping && html`<div class="drop-here">${t("dropHere")}</div>`}
    </main>
  `;
}

function Welcome() {
  return html`
    <div class="welcome">
      <img src="./icon.svg" alt="" width="56" height="56" />
      <h2>${t("welcome")}</h2>
      <p>${t("welcomeText")}</p>
    </div>
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
  return chat.status === "IDLE" ? "" : named("status", chat.status);
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
