/** What became of the due times of a scheduled task. */

import { sessionAddress } from "../address.mjs";
import { formatDuration } from "../formats.mjs";
import { named, t } from "../i18n.mjs";
import { formatInZone } from "../zones.mjs";
import { html, useState } from "./html.mjs";
import { ChevronIcon } from "./icons.mjs";

export function TaskRuns({ runs, zone, actions }) {
  const { taskId, rows, hasMore } = runs;
  if (rows.length === 0) return html`<p class="tasks-empty">${t("noTaskRuns")}</p>`;
  return html`
    <ul class="task-runs">
      ${rows.map((run) => html`<${Run} key=${run.dueAt} run=${run} zone=${zone} />`)}
    </ul>
    ${hasMore && html`<${Older} load=${() => actions.tasks.loadOlderRuns(taskId)} />`}
  `;
}

function Run({ run, zone }) {
  const words = html`
    <span class=${`dot ${run.status}`} />
    <time datetime=${run.dueAt}>${formatInZone(run.dueAt, zone)}</time>
    <span class="task-run-status">${named("taskRun", run.status)}</span>
    <span class="task-run-more">${moreOf(run)}</span>
  `;
  const reason = run.reason && html`<p class="task-run-reason">${named("skipped", run.reason)}</p>`;
  return html`
    <li>
      ${run.session === null
        ? html`<div class="task-run">${words}</div>`
        : html`<a class="task-run" href=${sessionAddress(run.session)}>${words}<${ChevronIcon} /></a>`}
      ${reason}
    </li>
  `;
}

function moreOf({ trigger, createdAt, endedAt, deliveryStatus, status }) {
  const ms = endedAt === null || status === "SKIPPED" ? null : new Date(endedAt) - new Date(createdAt);
  const parts = [
    trigger === "manual" ? t("manualRun") : null,
    ms === null ? null : formatDuration(ms),
    deliveryStatus === null ? null : named("delivery", deliveryStatus),
  ];
  return parts.filter(Boolean).join(" · ");
}

function Older({ load }) {
  const [isBusy, setBusy] = useState(false);
  const more = async () => {
    setBusy(true);
    await load();
    setBusy(false);
  };
  return html`<button class="button quiet older" disabled=${isBusy} onClick=${more}>${isBusy ? t("loading") : t("loadOlderRuns")}</button>`;
}
