/** What a run asks of a person about one of its calls: may it be done, or what is the answer. */

import { isOpen, isQuestion } from "../approvals.mjs";
import { formatRemaining, formatWhen } from "../formats.mjs";
import { named, t } from "../i18n.mjs";
import { parseObject, prettyJson } from "../json.mjs";
import { html, useClock, useRef, useState } from "./html.mjs";
import { AlertIcon, CheckIcon, ClockIcon, CrossIcon, QuestionIcon } from "./icons.mjs";

/** `isStray`: it does not stand at its call, so it names the tool itself. */
export function Approval({ session, approval, args, isStray, actions }) {
  const expiresAt = approval.expiresAt ? new Date(approval.expiresAt).getTime() : null;
  const now = useClock(isOpen(approval) && expiresAt !== null);
  const isOver = expiresAt !== null && now >= expiresAt;
  const [isBusy, setBusy] = useState(false);
  if (!isOpen(approval) || isOver || approval.refusal) return html`<${Verdict} approval=${approval} />`;
  // An answer that counts closes the card as soon as the server tells everybody.
  const answer = async (word) => {
    setBusy(true);
    if (!(await actions.approvals.answer(session, approval.id, word))) setBusy(false);
  };
  const left = expiresAt === null ? null : html`<${Countdown} expiresAt=${expiresAt} now=${now} />`;
  const Card = isQuestion(approval) ? Question : Permission;
  return html`<${Card} ...${{ approval, args, isStray, isBusy, answer, left }} />`;
}

/** How long there is to answer. Read out it would never end, so the card's name has the time itself. */
function Countdown({ expiresAt, now }) {
  const when = formatWhen(expiresAt);
  return html`
    <span class="approval-left" title=${t("expiresAt", { when })}>
      <${ClockIcon} /><span aria-hidden="true">${formatRemaining(expiresAt - now)}</span>
      <span class="sr-only">${t("expiresAt", { when })}</span>
    </span>
  `;
}

function Permission({ approval, args, isStray, isBusy, answer, left }) {
  const shown = prettyJson(args);
  const [edited, setEdited] = useState(null);
  const [note, setNote] = useState("");
  const { value, fault } = edited === null ? {} : parseObject(edited);
  const isChanged = edited !== null && edited.trim() !== shown.trim();
  const approve = () => answer({ decision: "approve", ...(isChanged ? { editedArgs: value } : {}) });
  const deny = () => answer({ decision: "deny", ...(note.trim() === "" ? {} : { note: note.trim() }) });
  return html`
    <section class="approval" role="group" aria-labelledby=${`approval-${approval.id}`}>
      <header><${AlertIcon} /><h3 id=${`approval-${approval.id}`}>${t("approval")}</h3>${left}</header>
      <p>${approval.message}</p>
      ${isStray && html`<dl class="approval-call"><dt>${t("tool")}</dt><dd><code>${approval.toolName}</code></dd></dl>`}
      ${edited === null
        ? html`<pre tabindex="0" aria-label=${t("arguments")}>${shown || t("emptyResult")}</pre>`
        : html`<${ArgumentsEditor} id=${approval.id} text=${edited} fault=${fault} write=${setEdited} />`}
      <input
        class="approval-note" placeholder=${t("approvalNote")} aria-label=${t("approvalNote")} maxlength="4000"
        value=${note} onInput=${(event) => setNote(event.currentTarget.value)}
      />
      <div class="approval-actions">
        <button class="button primary" disabled=${isBusy || fault !== undefined} onClick=${approve}>${t(isChanged ? "approveEdited" : "approve")}</button>
        <button class="button" disabled=${isBusy} onClick=${deny}>${t("deny")}</button>
        <button class="button quiet" disabled=${isBusy} onClick=${() => setEdited(edited === null ? shown : null)}>
          ${t(edited === null ? "editArguments" : "keepArguments")}
        </button>
      </div>
    </section>
  `;
}

function ArgumentsEditor({ id, text, fault, write }) {
  const errorId = `arguments-fault-${id}`;
  return html`
    <textarea
      class="approval-editor" rows=${Math.min(16, text.split("\n").length + 1)} spellcheck=${false}
      aria-label=${t("arguments")} aria-invalid=${fault !== undefined} aria-describedby=${errorId}
      value=${text} onInput=${(event) => write(event.currentTarget.value)}
    />
    <p id=${errorId} class="field-fault" role="status">${fault === undefined ? "" : t(fault.key, fault)}</p>
  `;
}

function Question({ approval, isBusy, answer, left }) {
  const field = useRef(null);
  const say = (payload) => answer({ decision: "approve", payload });
  const submit = (event) => {
    event.preventDefault();
    const text = field.current.value.trim();
    if (text !== "") void say(text);
  };
  const { id, message, options = [] } = approval;
  return html`
    <section class="approval" role="group" aria-labelledby=${`approval-${id}`}>
      <header><${QuestionIcon} /><h3 id=${`approval-${id}`}>${t("question")}</h3>${left}</header>
      <p>${message}</p>
      ${options.length > 0 && html`
        <div class="approval-options">
          ${options.map((option) => html`<button key=${option} class="button" disabled=${isBusy} onClick=${() => say(option)}>${option}</button>`)}
        </div>
      `}
      <form class="approval-answer" onSubmit=${submit}>
        <input aria-label=${t("ownAnswer")} placeholder=${t("ownAnswer")} ref=${field} />
        <button class="button primary" disabled=${isBusy}>${t("answer")}</button>
        <button class="button quiet" type="button" disabled=${isBusy} onClick=${() => answer({ decision: "deny" })}>${t("skipQuestion")}</button>
      </form>
    </section>
  `;
}

const VERDICT_ICONS = { APPROVED: CheckIcon, ANSWERED: CheckIcon, DENIED: CrossIcon, CANCELLED: CrossIcon };

/** Who answered, and how; and that our own answer came too late. */
function Verdict({ approval }) {
  const { status, answeredBy, answeredAt, refusal } = approval;
  const isOver = isOpen(approval) && refusal?.code !== "approval_already_resolved";
  const Icon = VERDICT_ICONS[status] ?? ClockIcon;
  const words = isOver ? named("approval", "EXPIRED") : isOpen(approval) ? t("alreadyAnswered") : named("approval", status);
  const when = answeredAt ? formatWhen(answeredAt) : null;
  return html`
    <p class=${`verdict ${isOver ? "EXPIRED" : status}`}>
      <${Icon} />${[words, answeredBy, when].filter(Boolean).join(" · ")}
    </p>
    ${refusal?.code === "approval_already_resolved" && html`
      <p class="verdict is-late" role="status">${t("answeredFirst", { by: refusal.by, when: formatWhen(refusal.at) })}</p>
    `}
  `;
}
