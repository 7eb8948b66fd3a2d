/** One scheduled task: when it runs, how it went, and what can be done with it. */

import { sessionAddress, taskAddress, taskFormAddress } from "../address.mjs";
import { formatAmount } from "../formats.mjs";
import { named, t } from "../i18n.mjs";
import { lengthOf } from "../task_form.mjs";
import { formatInZone } from "../zones.mjs";
import { Confirm } from "./confirm.mjs";
import { html, memo, useState } from "./html.mjs";
import { PauseIcon, PencilIcon, PlayIcon, RetryIcon, TrashIcon } from "./icons.mjs";

/** What turns a task off, and on again. */
const TURNS = {
  ACTIVE: (id, actions) => ({ label: t("pauseTask"), icon: PauseIcon, run: () => actions.tasks.pause(id) }),
  PAUSED: (id, actions) => ({ label: t("resumeTask"), icon: RetryIcon, run: () => actions.tasks.resume(id) }),
};

/** `isWhole`: the task is open by itself under its title, so that all of it is shown. */
export const TaskCard = memo(({ task, isWhole, actions }) => {
  const { id, title, prompt, status } = task;
  const [isDoomed, setDoomed] = useState(false);
  return html`
    <article class=${`task ${status}`}>
      ${!isWhole && html`<header><h2><a href=${taskAddress(id)}>${title}</a></h2><${TaskStatus} status=${status} /></header>`}
      <${Facts} task=${task} isWhole=${isWhole} />
      <${Troubles} task=${task} />
      ${isWhole && html`<pre class="task-prompt" tabindex="0" aria-label=${t("taskPrompt")}>${prompt}</pre>`}
      <footer>
        <${Act} label=${t("runNow")} title=${title} icon=${PlayIcon} run=${() => actions.tasks.run(id)} />
        ${status in TURNS && html`<${Act} ...${TURNS[status](id, actions)} title=${title} />`}
        <a class="button small" href=${taskFormAddress(id)} aria-label=${`${t("editTask")}: ${title}`}><${PencilIcon} />${t("editTask")}</a>
        <${Act} label=${t("remove")} title=${title} icon=${TrashIcon} run=${() => setDoomed(true)} />
      </footer>
      ${isDoomed && html`
        <${Confirm}
          title=${t("confirmDeleteTask")} text=${t("confirmDeleteTaskText", { title })}
          action=${t("remove")} run=${() => actions.tasks.remove(id)} close=${() => setDoomed(false)}
        />
      `}
    </article>
  `;
});

export function TaskStatus({ status }) {
  return html`<span class=${`task-status ${status}`}>${named("task", status)}</span>`;
}

/** A button that takes no second press while the first one is under way; as another button it does. */
function Act({ label, title, icon: Icon, run }) {
  const [busyLabel, setBusyLabel] = useState(null);
  const act = async () => {
    setBusyLabel(label);
    await run();
    setBusyLabel((now) => (now === label ? null : now));
  };
  return html`
    <button class="button small" aria-label=${`${label}: ${title}`} disabled=${busyLabel === label} onClick=${act}><${Icon} />${label}</button>
  `;
}

function Facts({ task, isWhole }) {
  const { schedule, timezone, nextAt, lastRun } = task;
  return html`
    <dl class="task-facts">
      <dt>${t("schedule")}</dt>
      <dd>${scheduleWords(schedule, timezone)}</dd>
      <dt>${t("nextRun")}</dt>
      <dd>${nextAt === null ? t("never") : html`<time datetime=${nextAt}>${formatInZone(nextAt, timezone)}</time>`} <span class="faint">${timezone}</span></dd>
      <dt>${t("lastRun")}</dt>
      <dd>${lastRun === null ? t("never") : html`<${LastRun} run=${lastRun} zone=${timezone} />`}</dd>
      ${isWhole && html`<${Rules} task=${task} />`}
    </dl>
  `;
}

function LastRun({ run, zone }) {
  const words = `${named("taskRun", run.status)} · ${formatInZone(run.dueAt, zone)}`;
  return html`
    <span class=${`dot ${run.status}`} />
    ${run.session === null ? words : html`<a href=${sessionAddress(run.session)}>${words}</a>`}
  `;
}

function Rules({ task }) {
  const { missedPolicy, missedWithinSeconds, quiet, failureLimit, delivery } = task;
  const missed = named("missed", missedPolicy);
  const within = missedWithinSeconds === null || missedPolicy !== "run_if_within" ? "" : ` (${lengthWords(missedWithinSeconds)})`;
  return html`
    <dt>${t("missedPolicy")}</dt>
    <dd>${missed}${within}</dd>
    <dt>${t("failureLimit")}</dt>
    <dd>${t("failureLimitValue", { count: failureLimit })}</dd>
    <dt>${t("delivery")}</dt>
    <dd><${Delivery} delivery=${delivery} />${quiet ? ` · ${t("quietShort")}` : ""}</dd>
  `;
}

function Delivery({ delivery }) {
  if (delivery?.session) return html`<a href=${sessionAddress(delivery.session)}>${t("deliverSession")}</a>`;
  return delivery?.chat ? `${named("kind", delivery.chat.platform)} ${delivery.chat.chatId}` : t("deliverNowhere");
}

/** What somebody has to look at. */
function Troubles({ task }) {
  const { status, failuresInRow, pausedReason, deliveryHeldReason } = task;
  const lines = [
    status === "INVALID" ? t("taskDamaged") : null,
    pausedReason,
    failuresInRow > 0 && !pausedReason ? t("failuresInRow", { count: failuresInRow }) : null,
    deliveryHeldReason ? t("deliveryHeld", { reason: deliveryHeldReason }) : null,
  ];
  return lines.filter(Boolean).map((line) => html`<p class="task-trouble">${line}</p>`);
}

function scheduleWords(schedule, zone) {
  switch (schedule?.kind) {
    case "once":
      return t("scheduleOnce", { when: formatInZone(schedule.at, zone) });
    case "interval":
      return t("scheduleEvery", { length: lengthWords(schedule.seconds) });
    case "cron":
      return html`<code>${schedule.expression}</code>`;
    default:
      return t("never");
  }
}

function lengthWords(seconds) {
  const { amount, unit } = lengthOf(seconds);
  return formatAmount(Number(amount), unit);
}
