/** Scheduled tasks: looked at, made, changed, started. */

import { TASKS, taskAddress } from "../address.mjs";
import * as api from "../api.mjs";
import { reasonOf, t } from "../i18n.mjs";
import { taskOf } from "../tasks.mjs";
import { soon } from "./burst.mjs";
import { Order } from "./order.mjs";

/** The most that one user can have. */
const LIST_SIZE = 200;
const RUNS_SIZE = 30;

export class Tasks {
  #requests;
  #readSoon = soon(() => this.#read());
  /** Of the tasks, and of the runs of one. */
  #order = new Order();
  #runsOrder = new Order();
  /** Done when the last change is; the next one waits for it, so that they end in their order. */
  #changes = Promise.resolve();

  constructor(requests) {
    this.#requests = requests;
  }

  /** Read anew what is shown of them. */
  refresh() {
    if (this.#requests.state.view === "tasks") this.#readSoon();
  }

  /**
   * @param {string | null} id null makes a new one
   * @returns {Promise<{path: string | null, message: string} | null>} what is wrong, and where
   */
  async save(id, body) {
    try {
      const task = await this.#change(() => (id === null ? api.createTask(body) : api.changeTask(id, body)));
      this.#requests.dispatch({ type: "taskSaved", task });
      location.hash = taskAddress(task.id);
      return null;
    } catch (error) {
      this.#requests.leaveIfSignedOut(error);
      return { path: error.path, message: reasonOf(error) };
    }
  }

  async remove(id) {
    const answer = await this.#requests.attempt(() => this.#change(() => api.removeTask(id)));
    if (!answer) return;
    this.#requests.dispatch({ type: "taskDeleted", id });
    location.hash = TASKS;
  }

  async run(id) {
    try {
      await api.runTask(id);
      this.#requests.toast(t("taskStarted"));
      this.refresh();
    } catch (error) {
      if (error.code === "busy") this.#requests.toast(t("taskBusy"));
      else this.#requests.failed(error);
    }
  }

  async pause(id) {
    await this.#apply(() => api.pauseTask(id));
  }

  async resume(id) {
    await this.#apply(() => api.resumeTask(id));
  }

  async loadOlderRuns(taskId) {
    const before = this.#requests.state.tasks.runs.rows.at(-1).dueAt;
    const answer = await this.#requests.attempt(() => api.taskRuns(taskId, { before, limit: RUNS_SIZE }));
    if (answer) this.#requests.dispatch({ type: "olderTaskRuns", taskId, ...answer });
  }

  async #read() {
    const place = this.#order.asking();
    const answer = await this.#requests.attempt(() => api.tasks({ limit: LIST_SIZE }));
    if (!answer) return;
    if (!this.#order.isNews(place)) return this.refresh();
    this.#requests.dispatch({ type: "tasks", ...answer });
    const { openId } = this.#requests.state.tasks;
    if (openId !== null) await this.#readRuns(openId);
  }

  async #readRuns(taskId) {
    // One that is beyond the list is asked for by itself.
    const isListed = taskOf(this.#requests.state, taskId) !== undefined;
    if (!isListed && !(await this.#readTask(taskId))) return;
    const place = this.#runsOrder.asking();
    const answer = await this.#requests.attempt(() => api.taskRuns(taskId, { limit: RUNS_SIZE }));
    if (answer && this.#runsOrder.isNews(place)) this.#requests.dispatch({ type: "taskRuns", taskId, ...answer });
  }

  async #readTask(taskId) {
    const place = this.#order.asking();
    const task = await this.#requests.attempt(() => api.task(taskId));
    if (task === null) return false;
    if (this.#order.isNews(place)) this.#requests.dispatch({ type: "taskSaved", task });
    return true;
  }

  async #apply(request) {
    const task = await this.#requests.attempt(() => this.#change(request));
    if (task) this.#requests.dispatch({ type: "taskSaved", task });
  }

  /** Do *request* after the changes before it. */
  #change(request) {
    const change = this.#changes.then(request).finally(() => this.#order.changed());
    this.#changes = change.catch(() => {});
    return change;
  }
}
