/** Scheduled tasks: the list, one task with its runs, or the form of one. */

import { NEW_TASK, TASKS, taskAddress } from "../address.mjs";
import { t } from "../i18n.mjs";
import { taskOf } from "../tasks.mjs";
import { Back } from "./back.mjs";
import { Banner } from "./banner.mjs";
import { html, useEffect } from "./html.mjs";
import { ClockIcon, MenuIcon, PlusIcon } from "./icons.mjs";
import { TaskCard, TaskStatus } from "./task_card.mjs";
import { TaskForm } from "./task_form.mjs";
import { TaskRuns } from "./task_runs.mjs";

/** That a due time was skipped is told by no event. */
const REFRESH_EVERY_MS = 30_000;

export function Tasks({ state, actions, socket, isCovered, openDrawer }) {
  const { openId, isForm } = state.tasks;
  const task = openId === null ? undefined : taskOf(state, openId);
  useEffect(() => {
    const timer = setInterval(() => actions.tasks.refresh(), REFRESH_EVERY_MS);
    return () => clearInterval(timer);
  }, []);
  useEffect(() => actions.tasks.refresh(), [openId]);
  return html`
    <main class="chat tasks" inert=${isCovered}>
      <header class="chat-head">
        <button class="icon-button menu-button" aria-label=${t("openMenu")} onClick=${openDrawer}><${MenuIcon} /></button>
        ${openId !== null && isForm && html`<${Back} href=${taskAddress(openId)} title=${t("task")} />`}
        ${(openId !== null) !== isForm && html`<${Back} href=${TASKS} title=${t("tasks")} />`}
        <h1>${titleOf(openId, isForm, task)}</h1>
        ${task && !isForm && html`<${TaskStatus} status=${task.status} />`}
      </header>
      <${Banner} connection=${state.connection} socket=${socket} />
      <div class="tasks-scroller">
        <div class="tasks-body">${bodyOf({ state, actions, task })}</div>
      </div>
    </main>
  `;
}

function titleOf(openId, isForm, task) {
  if (isForm) return t(openId === null ? "newTask" : "editTaskTitle");
  return openId === null ? t("tasks") : (task?.title ?? "");
}

function bodyOf({ state, actions, task }) {
  const { openId, isForm, loaded, runs } = state.tasks;
  if (openId === null && isForm) return html`<${TaskForm} key="new" ...${{ state, actions }} task=${null} />`;
  if (openId === null) return html`<${List} state=${state} actions=${actions} />`;
  if (task === undefined) return html`<p class="tasks-empty">${loaded ? t("taskMissing") : t("loading")}</p>`;
  if (isForm) return html`<${TaskForm} key=${openId} ...${{ state, actions, task }} />`;
  return html`
    <${TaskCard} ...${{ task, actions }} isWhole=${true} />
    <h2>${t("taskRuns")}</h2>
    ${runs?.taskId === openId
      ? html`<${TaskRuns} ...${{ runs, actions }} zone=${task.timezone} />`
      : html`<p class="tasks-empty">${t("loading")}</p>`}
  `;
}

function List({ state, actions }) {
  const { rows, loaded, isCut } = state.tasks;
  return html`
    <a class="button primary new-task" href=${NEW_TASK}><${PlusIcon} />${t("newTask")}</a>
    ${!loaded && html`<p class="tasks-empty">${t("loading")}</p>`}
    ${loaded && rows.length === 0 && html`<${NoTasks} />`}
    <ul class="task-list">
      ${rows.map((task) => html`<li key=${task.id}><${TaskCard} ...${{ task, actions }} isWhole=${false} /></li>`)}
    </ul>
    ${isCut && html`<p class="tasks-empty">${t("tasksCut", { count: rows.length })}</p>`}
  `;
}

function NoTasks() {
  return html`
    <div class="tasks-none">
      <${ClockIcon} />
      <h2>${t("noTasks")}</h2>
      <p>${t("noTasksText")}</p>
    </div>
  `;
}
