/** The form of a scheduled task. What the server finds wrong stands at its field. */

import { TASKS, taskAddress } from "../address.mjs";
import { named, t } from "../i18n.mjs";
import { UNITS, blankForm, changesOf, formOf, newTaskBody } from "../task_form.mjs";
import { zoneNames } from "../zones.mjs";
import { html, useEffect, useMemo, useRef, useState } from "./html.mjs";

const KINDS = ["once", "interval", "cron"];
const POLICIES = ["skip", "run_once", "run_if_within"];
/** Kinds of sessions in which somebody reads on. */
const DELIVERABLE = new Set(["main", "chat", "sideline"]);
const CRON_EXAMPLES = ["0 9 * * *", "0 9 * * 1-5", "30 8 * * 1", "0 0 1 * *", "*/30 * * * *", "@hourly", "@daily", "@weekly", "@monthly"];
/** The fault of a schedule as a whole is shown at the field of its kind. */
const SCHEDULE_PATHS = { once: ["schedule.at"], interval: ["schedule.seconds", "schedule.anchor"], cron: ["schedule.expression"] };

export function TaskForm({ state, task, actions }) {
  const [form, setForm] = useState(() => (task === null ? blankForm() : formOf(task)));
  const [fault, setFault] = useState(null);
  const [isBusy, setBusy] = useState(false);
  const element = useRef(null);
  const change = (part) => setForm((now) => ({ ...now, ...part }));
  useEffect(() => element.current.querySelector("[aria-invalid=true]")?.focus(), [fault]);

  async function submit(event) {
    event.preventDefault();
    const body = task === null ? newTaskBody(form) : changesOf(form, task);
    setBusy(true);
    setFault(await actions.tasks.save(task?.id ?? null, body));
    setBusy(false);
  }

  const at = (...paths) => (fault !== null && paths.includes(fault.path) ? fault.message : null);
  const known = ["prompt", "title", "timezone", "failureLimit", "missedPolicy", "missedWithinSeconds", "delivery", "delivery.session"];
  const isPlaced = fault !== null && (known.includes(fault.path) || schedulePaths(form).includes(fault.path));
  return html`
    <form class="task-form" noValidate onSubmit=${submit} ref=${element} aria-label=${t(task === null ? "newTask" : "editTaskTitle")}>
      ${fault !== null && !isPlaced && html`<p class="field-fault" role="alert">${fault.message}</p>`}
      <${Field} label=${t("taskPrompt")} fault=${at("prompt")}>
        ${(field) => html`
          <textarea
            ...${field} rows="5" maxlength="20000" placeholder=${t("taskPromptHint")}
            value=${form.prompt} onInput=${(event) => change({ prompt: event.currentTarget.value })}
          />
        `}
      <//>
      <${Field} label=${t("taskTitle")} hint=${t("taskTitleHint")} fault=${at("title")}>
        ${(field) => html`<input ...${field} maxlength="200" value=${form.title} onInput=${(event) => change({ title: event.currentTarget.value })} />`}
      <//>
      <${When} ...${{ form, change }} fault=${at(...schedulePaths(form))} />
      <${Zone} ...${{ form, change }} fault=${at("timezone")} />
      <${Missed} ...${{ form, change }} isNew=${task === null} fault=${at("missedPolicy", "missedWithinSeconds")} />
      <${Field} label=${t("failureLimit")} hint=${t("failureLimitHint")} fault=${at("failureLimit")}>
        ${(field) => html`<input ...${field} type="number" min="1" max="100" value=${form.failureLimit} onInput=${(event) => change({ failureLimit: event.currentTarget.value })} />`}
      <//>
      <${Deliver} ...${{ form, change, state, task }} fault=${at("delivery", "delivery.session")} />
      <label class="check">
        <input type="checkbox" checked=${form.quiet} onChange=${(event) => change({ quiet: event.currentTarget.checked })} />
        <span>${t("quiet")}</span>
      </label>
      <div class="task-form-actions">
        <button class="button primary" disabled=${isBusy}>${t(task === null ? "createTask" : "save")}</button>
        <a class="button" href=${task === null ? TASKS : taskAddress(task.id)}>${t("cancel")}</a>
      </div>
    </form>
  `;
}

const schedulePaths = ({ kind }) => [...SCHEDULE_PATHS[kind], "schedule"];

let count = 0;

/** A label, what it labels, and what is wrong with it; the control gets its attributes as an argument. */
function Field({ label, hint, fault, children: draw }) {
  const id = useMemo(() => `field-${++count}`, []);
  const about = [hint ? `${id}-hint` : null, fault ? `${id}-fault` : null].filter(Boolean).join(" ");
  const control = { id, "aria-invalid": fault ? "true" : "false", "aria-describedby": about || undefined };
  return html`
    <div class="field">
      <label for=${id}>${label}</label>
      ${draw(control)}
      ${fault && html`<p class="field-fault" id=${`${id}-fault`} role="alert">${fault}</p>`}
      ${hint && html`<p class="field-hint" id=${`${id}-hint`}>${hint}</p>`}
    </div>
  `;
}

function When({ form, change, fault }) {
  return html`
    <fieldset class="field">
      <legend>${t("schedule")}</legend>
      <div class="choices">
        ${KINDS.map(
          (kind) => html`
            <label key=${kind} class="choice">
              <input type="radio" name="kind" checked=${form.kind === kind} onChange=${() => change({ kind })} />
              <span>${named("schedule", kind)}</span>
            </label>
          `,
        )}
      </div>
      ${form.kind === "once" && html`
        <${Field} label=${t("scheduleAt")} fault=${fault}>
          ${(field) => html`<input ...${field} type="datetime-local" value=${form.at} onInput=${(event) => change({ at: event.currentTarget.value })} />`}
        <//>
      `}
      ${form.kind === "interval" && html`
        <${Field} label=${t("scheduleInterval")} fault=${fault}>
          ${(field) => html`<${Length} field=${field} length=${form.interval} write=${(interval) => change({ interval })} />`}
        <//>
      `}
      ${form.kind === "cron" && html`
        <${Field} label=${t("scheduleCron")} hint=${t("scheduleCronHint")} fault=${fault}>
          ${(field) => html`
            <input
              ...${field} class="mono" list="cron-examples" spellcheck=${false} autocomplete="off"
              value=${form.expression} onInput=${(event) => change({ expression: event.currentTarget.value })}
            />
            <datalist id="cron-examples">${CRON_EXAMPLES.map((text) => html`<option key=${text} value=${text} />`)}</datalist>
          `}
        <//>
      `}
    </fieldset>
  `;
}

/** A length of time: a number and its unit. */
function Length({ field, length, write }) {
  return html`
    <div class="length">
      <input ...${field} type="number" min="1" value=${length.amount} onInput=${(event) => write({ ...length, amount: event.currentTarget.value })} />
      <select aria-label=${t("unit")} value=${length.unit} onChange=${(event) => write({ ...length, unit: event.currentTarget.value })}>
        ${Object.keys(UNITS).map((unit) => html`<option key=${unit} value=${unit} selected=${unit === length.unit}>${named("unit", unit)}</option>`)}
      </select>
    </div>
  `;
}

function Zone({ form, change, fault }) {
  const names = useMemo(zoneNames, []);
  return html`
    <${Field} label=${t("timezone")} hint=${t("timezoneHint")} fault=${fault}>
      ${(field) => html`
        <input ...${field} list="zones" spellcheck=${false} autocomplete="off" value=${form.timezone} onInput=${(event) => change({ timezone: event.currentTarget.value })} />
        <datalist id="zones">${names.map((name) => html`<option key=${name} value=${name} />`)}</datalist>
      `}
    <//>
  `;
}

function Missed({ form, change, isNew, fault }) {
  const policies = isNew ? ["", ...POLICIES] : POLICIES;
  const isWithin = form.missedPolicy === "run_if_within";
  return html`
    <${Field} label=${t("missedPolicy")} fault=${isWithin ? null : fault}>
      ${(field) => html`
        <select ...${field} onChange=${(event) => change({ missedPolicy: event.currentTarget.value })}>
          ${policies.map((policy) => html`<option key=${policy} value=${policy} selected=${policy === form.missedPolicy}>${named("missed", policy || "usual")}</option>`)}
        </select>
      `}
    <//>
    ${isWithin && html`
      <${Field} label=${t("missedWithin")} fault=${fault}>
        ${(field) => html`<${Length} field=${field} length=${form.within} write=${(within) => change({ within })} />`}
      <//>
    `}
  `;
}

/** Where its answers are told beside its own sessions. */
function Deliver({ form, change, state, task, fault }) {
  const sessions = state.sessions.filter(({ kind }) => DELIVERABLE.has(kind));
  const chosen = form.deliver.startsWith("session:") ? form.deliver.slice("session:".length) : null;
  const isListed = chosen === null || sessions.some(({ id }) => id === chosen);
  const chat = task?.delivery?.chat;
  const options = [
    ["", t("deliverNowhere")],
    ...(chat ? [["chat", `${named("kind", chat.platform)} ${chat.chatId}`]] : []),
    ...(isListed ? [] : [[form.deliver, t("deliverSession")]]),
    ...sessions.map(({ id, title }) => [`session:${id}`, title || t("newSession")]),
  ];
  return html`
    <${Field} label=${t("delivery")} hint=${t("deliveryHint")} fault=${fault}>
      ${(field) => html`
        <select ...${field} onChange=${(event) => change({ deliver: event.currentTarget.value })}>
          ${options.map(([value, words]) => html`<option key=${value} value=${value} selected=${value === form.deliver}>${words}</option>`)}
        </select>
      `}
    <//>
  `;
}
