/** What stands beside the open session: one of its children, or a side question to be asked. */

import { sessionAddress } from "../address.mjs";
import { asideKey, composerOf } from "../composers.mjs";
import { named, t } from "../i18n.mjs";
import { AsideComposer } from "./composer.mjs";
import { Conversation } from "./conversation.mjs";
import { html, useEffect, useRef } from "./html.mjs";
import { BackIcon, CloseIcon, ExpandIcon } from "./icons.mjs";

/** `isCovering`: there is no room beside the session, so this stands before it. */
export function Side({ state, actions, isCovering }) {
  const { chat } = state.side;
  const panel = useRef(null);
  useFocusBack(panel);
  const onKeyDown = (event) => {
    if (event.key !== "Escape" || event.isComposing || event.defaultPrevented) return;
    event.stopPropagation();
    actions.sideline.close();
  };
  const title = chat?.title || t(chat === null || chat.kind === "sideline" ? "aside" : "childSession");
  return html`
    <aside class=${`side ${isCovering ? "is-covering" : ""}`} aria-label=${title} ref=${panel} onKeyDown=${onKeyDown}>
      <header class="chat-head side-head">
        ${isCovering && html`<${Close} actions=${actions} icon=${BackIcon} />`}
        ${chat?.kind && html`<span class="badge">${named("kind", chat.kind)}</span>`}
        <h2>${title}</h2>
        ${chat !== null && html`<span class=${`status ${chat.status}`}>${named("status", chat.status)}</span>`}
        <span class="side-actions">
          ${chat !== null && html`
            <a class="icon-button" href=${sessionAddress(chat.id)} aria-label=${t("openWhole")} title=${t("openWhole")}><${ExpandIcon} /></a>
          `}
          ${!isCovering && html`<${Close} actions=${actions} icon=${CloseIcon} />`}
        </span>
      </header>
      ${chat === null
        ? html`<${Question} state=${state} actions=${actions} />`
        : html`<${Conversation} key=${chat.id} ...${{ state, chat, actions }} composerKey=${chat.id} label=${t("asideMessage")} canAsk=${false} />`}
    </aside>
  `;
}

function Close({ actions, icon: Icon }) {
  return html`
    <button class="icon-button" aria-label=${t("closeSide")} title=${t("closeSide")} onClick=${() => actions.sideline.close()}><${Icon} /></button>
  `;
}

function Question({ state, actions }) {
  const { from, isAsking } = state.side;
  const key = asideKey(state.openId);
  return html`
    <div class="aside-about">
      <p>${t(from === null ? "asideAbout" : "asideAboutMessage")}</p>
      ${from !== null && html`<blockquote>${wordsOf(state.chat, from)}</blockquote>`}
    </div>
    <${AsideComposer} ...${{ actions, isAsking, composerKey: key }} composer=${composerOf(state, key)} />
  `;
}

const wordsOf = (chat, id) => chat?.items.find((item) => item.id === id && item.text)?.text ?? "";

/**
 * When the panel goes while one is in it, one goes on in the session's own composer; not by touch,
 * where that would bring up the keyboard.
 */
function useFocusBack(panel) {
  useEffect(() => {
    let isInside = false;
    const onFocus = () => (isInside = panel.current?.contains(document.activeElement) ?? false);
    document.addEventListener("focusin", onFocus);
    onFocus();
    return () => {
      document.removeEventListener("focusin", onFocus);
      if (isInside && !matchMedia("(pointer: coarse)").matches) document.querySelector(".chat .composer textarea")?.focus();
    };
  }, []);
}
