/** Scheduled tasks as the page knows them: the list, and the runs of the one that is open. */

export function noTasks() {
  return {
    rows: [],
    loaded: false,
    /** There are more than are shown. */
    isCut: false,
    /** The open task; null for the list, or for a new one where `isForm` is true. */
    openId: null,
    isForm: false,
    /** Of the open task, the latest first: `{taskId, rows, hasMore}`. */
    runs: null,
  };
}

export const STEPS = {
  tasks: (state, { tasks, hasMore }) => within(state, { rows: tasks, isCut: hasMore, loaded: true }),
  taskSaved: (state, { task }) => within(state, { rows: saved(state.tasks.rows, task) }),
  taskDeleted: (state, { id }) => within(state, { rows: state.tasks.rows.filter((row) => row.id !== id) }),
  taskRuns: (state, { taskId, runs, hasMore }) => within(state, { runs: newest(state.tasks.runs, taskId, runs, hasMore) }),
  olderTaskRuns: (state, { taskId, runs, hasMore }) => {
    const known = state.tasks.runs;
    if (known?.taskId !== taskId) return state;
    return within(state, { runs: { taskId, rows: [...known.rows, ...runs], hasMore } });
  },
};

export const taskOf = (state, id) => state.tasks.rows.find((row) => row.id === id);

function within(state, change) {
  return { ...state, tasks: { ...state.tasks, ...change } };
}

function saved(rows, task) {
  const isKnown = rows.some(({ id }) => id === task.id);
  return isKnown ? rows.map((row) => (row.id === task.id ? task : row)) : [task, ...rows];
}

/** The first page anew; the older ones that were loaded before stay. */
function newest(known, taskId, runs, hasMore) {
  const last = runs.at(-1)?.dueAt;
  const isOlder = ({ dueAt }) => new Date(dueAt) < new Date(last);
  const older = known?.taskId === taskId && hasMore ? known.rows.filter(isOlder) : [];
  return { taskId, rows: [...runs, ...older], hasMore: older.length > 0 ? known.hasMore : hasMore };
}
