/** Where one writes: usable while a run goes on, with the queue above it. */

import { openQuestion } from "../approvals.mjs";
import { isRunning, isWaiting } from "../chat.mjs";
import { formatElapsed } from "../formats.mjs";
import { t } from "../i18n.mjs";
import { html, useClock, useEffect, useLayoutEffect, useMedia, useRef } from "./html.mjs";
import { AsideIcon, ClipIcon, CloseIcon, SendIcon, StopIcon } from "./icons.mjs";

const IS_MAC = /Mac|iP(hone|ad)/.test(navigator.platform);
const MODIFIER = IS_MAC ? "⌘" : "Ctrl";
const ASIDE_KEYS = IS_MAC ? "⌥Enter" : "Alt+Enter";

export function Composer({ chat, composer, composerKey, label, canAsk, actions }) {
  const { text, attachments, editing } = composer;
  const mode = modeOf(chat, editing !== null);
  const isUploading = attachments.some(({ phase }) => phase === "uploading");
  const isAnswer = mode === "question";
  const isEmpty = text.trim() === "" && (isAnswer || attachments.length === 0);
  const canSend = !isEmpty && (isAnswer || !isUploading);
  const send = (steer) => void actions.messages.send(composerKey, { steer });
  const attach = isAnswer ? null : (files) => void actions.files.attach(composerKey, files);
  const aside = canAsk ? () => void actions.sideline.askAt(composerKey) : null;
  const canStop = mode !== "idle";
  return html`
    <div class="composer-place">
      ${mode === "busy" && html`<${Progress} chat=${chat} />`}
      ${chat !== null && html`<${Queue} chat=${chat} actions=${actions} />`}
      <div class=${`composer ${isAnswer ? "is-answer" : ""}`}>
        ${editing !== null && html`
          <div class="composer-note">
            ${t("editing")}
            <button class="icon-button small" aria-label=${t("cancel")} onClick=${() => actions.messages.stopEditing(composerKey)}><${CloseIcon} /></button>
          </div>
        `}
        ${attachments.length > 0 && html`<${Attachments} ...${{ attachments, composerKey, actions }} />`}
        <${Input} ...${{ text, label, composerKey, editing, actions, send, attach, aside }} placeholder=${t(PLACEHOLDERS[mode])} />
        <div class="composer-bar">
          ${attach && html`<${AttachButton} attach=${attach} />`}
          ${aside && html`
            <button class="icon-button" aria-label=${t("aside")} title=${t("asideTitle", { keys: ASIDE_KEYS })} onClick=${aside}><${AsideIcon} /></button>
          `}
          <span class="hint">${t(HINTS[mode], { modifier: MODIFIER })}</span>
          ${mode === "busy" && canSend && html`
            <button class="button small" title=${t("steerTitle")} onClick=${() => send(true)}>${t("steer")}</button>
          `}
          ${(!canStop || canSend) && html`<${SendButton} label=${t(SEND_LABELS[mode])} isDisabled=${!canSend} send=${() => send(false)} />`}
          ${canStop && html`
            <button class="round stop" aria-label=${t("stop")} title=${t("stop")} disabled=${Boolean(chat.run?.cancelling)} onClick=${() => actions.messages.stop(chat.id)}>
              <${StopIcon} />
            </button>
          `}
        </div>
      </div>
    </div>
  `;
}

/** Where a side question is written, before it has a session of its own. */
export function AsideComposer({ composer, composerKey, isAsking, actions }) {
  const canSend = composer.text.trim() !== "" && !isAsking;
  const send = () => void actions.sideline.ask();
  return html`
    <div class="composer-place">
      <div class="composer">
        <${Input}
          ...${{ composerKey, actions, send }} text=${composer.text} editing=${null} attach=${null} aside=${null}
          label=${t("asideMessage")} placeholder=${t("asidePlaceholder")}
        />
        <div class="composer-bar">
          <span class="hint">${isAsking ? t("sending") : t("hintIdle")}</span>
          <${SendButton} label=${t("send")} isDisabled=${!canSend} send=${send} />
        </div>
      </div>
    </div>
  `;
}

/** What sending does now: start a run, queue behind one, wait for a word, or answer a question. */
function modeOf(chat, isEditing) {
  if (chat === null) return "idle";
  if (isRunning(chat)) return "busy";
  if (!isWaiting(chat)) return "idle";
  return isEditing || openQuestion(chat.approvals) === undefined ? "waiting" : "question";
}

const PLACEHOLDERS = { idle: "placeholder", busy: "placeholderBusy", waiting: "placeholderWaiting", question: "placeholderAnswer" };
const HINTS = { idle: "hintIdle", busy: "hintBusy", waiting: "hintWaiting", question: "hintAnswer" };
const SEND_LABELS = { idle: "send", busy: "enqueue", waiting: "enqueue", question: "answer" };

function SendButton({ label, isDisabled, send }) {
  return html`
    <button class="round primary" aria-label=${label} title=${label} disabled=${isDisabled} onClick=${send}><${SendIcon} /></button>
  `;
}

function Input({ text, label, placeholder, composerKey, editing, actions, send, attach, aside }) {
  const area = useRef(null);
  const isTouch = useMedia("(pointer: coarse)");
  useLayoutEffect(() => {
    area.current.style.height = "auto";
    area.current.style.height = `${area.current.scrollHeight}px`;
  }, [text]);
  useEffect(() => {
    if (!isTouch || editing !== null) area.current.focus();
  }, [composerKey, editing]);

  function onKeyDown(event) {
    // An input method takes Enter to choose a word; 229 is how some browsers say so.
    if (event.key !== "Enter" || event.isComposing || event.keyCode === 229) return;
    const hasModifier = event.ctrlKey || event.metaKey;
    const isAside = event.altKey && aside !== null;
    if (event.shiftKey || (isTouch && !hasModifier && !isAside)) return;
    event.preventDefault();
    if (isAside) aside();
    else send(hasModifier);
  }

  function onPaste(event) {
    const { files } = event.clipboardData;
    if (files.length === 0 || attach === null) return;
    event.preventDefault();
    attach(files);
  }

  return html`
    <textarea
      rows="1" aria-label=${label} placeholder=${placeholder}
      value=${text} ref=${area} onKeyDown=${onKeyDown} onPaste=${onPaste}
      onInput=${(event) => actions.messages.write(composerKey, event.currentTarget.value)}
    />
  `;
}

function AttachButton({ attach }) {
  const picker = useRef(null);
  const picked = (event) => {
    attach(event.currentTarget.files);
    event.currentTarget.value = "";
  };
  return html`
    <button class="icon-button" aria-label=${t("attach")} title=${t("attach")} onClick=${() => picker.current.click()}><${ClipIcon} /></button>
    <input type="file" multiple hidden ref=${picker} onChange=${picked} />
  `;
}

function Attachments({ attachments, composerKey, actions }) {
  return html`
    <ul class="attachments">
      ${attachments.map(
        ({ key, name, previewUrl, phase }) => html`
          <li key=${key} class=${phase}>
            ${previewUrl ? html`<img src=${previewUrl} alt="" />` : null}
            <span>${name}${phase === "uploading" ? ` · ${t("uploading")}` : ""}</span>
            <button class="icon-button small" aria-label=${t("removeFile", { name })} onClick=${() => actions.files.detach(composerKey, key)}><${CloseIcon} /></button>
          </li>
        `,
      )}
    </ul>
  `;
}

function Queue({ chat, actions }) {
  const { id, queue } = chat;
  if (queue.length === 0) return null;
  const isPaused = queue.some(({ paused }) => paused);
  return html`
    <ul class="queue">
      ${queue.map(
        ({ itemId, text, position, steer }) => html`
          <li key=${itemId} class="chip">
            <b title=${steer ? t("steerTitle") : t("queuedAt", { position })}>${steer ? t("steered") : `${t("queued")} ${position}`}</b>
            <span title=${text}>${text}</span>
            <button class="icon-button small" aria-label=${`${t("removeQueued")}: ${text}`} title=${t("removeQueued")} onClick=${() => actions.messages.removeQueued(id, itemId)}><${CloseIcon} /></button>
          </li>
        `,
      )}
      ${isPaused && html`
        <li class="queue-paused">
          ${t("paused")}
          <button class="button small" onClick=${() => actions.messages.resumeQueue(id)}>${t("resume")}</button>
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
