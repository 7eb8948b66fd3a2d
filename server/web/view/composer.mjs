/** Where one writes: usable while a run goes on, with the queue above it. */

import { isRunning } from "../chat.mjs";
import { formatElapsed, t } from "../i18n.mjs";
import { html, useClock, useEffect, useLayoutEffect, useMedia, useRef } from "./html.mjs";
import { ClipIcon, CloseIcon, SendIcon, StopIcon } from "./icons.mjs";

const MODIFIER = /Mac|iP(hone|ad)/.test(navigator.platform) ? "⌘" : "Ctrl";

export function Composer({ state, actions }) {
  const { chat, openId, attachments, editing } = state;
  const isBusy = chat !== null && isRunning(chat);
  const text = state.drafts[openId ?? ""] ?? "";
  const isUploading = attachments.some(({ phase }) => phase === "uploading");
  const isEmpty = text.trim() === "" && attachments.length === 0;
  const canSend = !isEmpty && !isUploading;
  const send = (steer) => void actions.send({ steer });
  return html`
    <div class="composer-place">
      ${isBusy && html`<${Progress} chat=${chat} />`}
      ${chat !== null && html`<${Queue} queue=${chat.queue} actions=${actions} />`}
      <div class="composer">
        ${editing !== null && html`
          <div class="composer-note">
            ${t("editing")}
            <button class="icon-button small" aria-label=${t("cancel")} onClick=${() => actions.stopEditing()}><${CloseIcon} /></button>
          </div>
        `}
        ${attachments.length > 0 && html`<${Attachments} attachments=${attachments} actions=${actions} />`}
        <${Input} ...${{ text, isBusy, openId, editing, actions, send }} />
        <div class="composer-bar">
          <${AttachButton} actions=${actions} />
          <span class="hint">${isBusy ? t("hintBusy", { modifier: MODIFIER }) : t("hintIdle")}</span>
          ${isBusy && canSend && html`
            <button class="button small" title=${t("steerTitle")} onClick=${() => send(true)}>${t("steer")}</button>
          `}
          ${(!isBusy || canSend) && html`
            <button class="round primary" aria-label=${isBusy ? t("enqueue") : t("send")} title=${isBusy ? t("enqueue") : t("send")} disabled=${!canSend} onClick=${() => send(false)}>
              <${SendIcon} />
            </button>
          `}
          ${isBusy && html`
            <button class="round stop" aria-label=${t("stop")} title=${t("stop")} disabled=${Boolean(chat.run?.cancelling)} onClick=${() => actions.stop()}>
              <${StopIcon} />
            </button>
          `}
        </div>
      </div>
    </div>
  `;
}

function Input({ text, isBusy, openId, editing, actions, send }) {
  const area = useRef(null);
  const isTouch = useMedia("(pointer: coarse)");
  useLayoutEffect(() => {
    area.current.style.height = "auto";
    area.current.style.height = `${area.current.scrollHeight}px`;
  }, [text]);
  useEffect(() => {
    if (!isTouch || editing !== null) area.current.focus();
  }, [openId, editing]);

  function onKeyDown(event) {
    // An input method takes Enter to choose a word; 229 is how some browsers say so.
    if (event.key !== "Enter" || event.isComposing || event.keyCode === 229) return;
    const hasModifier = event.ctrlKey || event.metaKey;
    if (event.shiftKey || (isTouch && !hasModifier)) return;
    event.preventDefault();
    send(hasModifier);
  }

  function onPaste(event) {
    const { files } = event.clipboardData;
    if (files.length === 0) return;
    event.preventDefault();
    void actions.attach(files);
  }

  return html`
    <textarea
      rows="1" aria-label=${t("composer")} placeholder=${isBusy ? t("placeholderBusy") : t("placeholder")}
      value=${text} ref=${area} onKeyDown=${onKeyDown} onPaste=${onPaste}
      onInput=${(event) => actions.write(event.currentTarget.value)}
    />
  `;
}

function AttachButton({ actions }) {
  const picker = useRef(null);
  const picked = (event) => {
    void actions.attach(event.currentTarget.files);
    event.currentTarget.value = "";
  };
  return html`
    <button class="icon-button" aria-label=${t("attach")} title=${t("attach")} onClick=${() => picker.current.click()}><${ClipIcon} /></button>
    <input type="file" multiple hidden ref=${picker} onChange=${picked} />
  `;
}

function Attachments({ attachments, actions }) {
  return html`
    <ul class="attachments">
      ${attachments.map(
        ({ key, name, previewUrl, phase }) => html`
          <li key=${key} class=${phase}>
            ${previewUrl ? html`<img src=${previewUrl} alt="" />` : null}
            <span>${name}${phase === "uploading" ? ` · ${t("uploading")}` : ""}</span>
            <button class="icon-button small" aria-label=${t("removeFile", { name })} onClick=${() => actions.detach(key)}><${CloseIcon} /></button>
          </li>
        `,
      )}
    </ul>
  `;
}

function Queue({ queue, actions }) {
  if (queue.length === 0) return null;
  const isPaused = queue.some(({ paused }) => paused);
  return html`
    <ul class="queue">
      ${queue.map(
        ({ itemId, text, position, steer }) => html`
          <li key=${itemId} class="chip">
            <b title=${steer ? t("steerTitle") : t("queuedAt", { position })}>${steer ? t("steered") : `${t("queued")} ${position}`}</b>
            <span title=${text}>${text}</span>
            <button class="icon-button small" aria-label=${`${t("removeQueued")}: ${text}`} title=${t("removeQueued")} onClick=${() => actions.removeQueued(itemId)}><${CloseIcon} /></button>
          </li>
        `,
      )}
      ${isPaused && html`
        <li class="queue-paused">
          ${t("paused")}
          <button class="button small" onClick=${() => actions.resumeQueue()}>${t("resume")}</button>
        </li>
      `}
    </ul>
  `;
}

/** Round, tool and time of the run in progress. */
function Progress({ chat }) {
  const now = useClock(true);
  const { round, startedAt, cancelling } = chat.run ?? {};
  const tool = chat.items.findLast((item) => item.phase === "running");
  const parts = [
    cancelling ? t("stopping") : t("running"),
    round ? t("round", { round }) : null,
    tool?.name,
    startedAt ? formatElapsed(now - startedAt) : null,
  ];
  return html`<p class="progress" aria-hidden="true"><span class="dot RUNNING" />${parts.filter(Boolean).join(" · ")}</p>`;
}
