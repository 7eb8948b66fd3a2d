// Drives the real AG-UI client and prints, as JSON, what it made of a server or of given events.
//
//   node run.mjs '{"url": …, "headers": …, "threadId": …, "turns": [{"id", "text", …}]}'
//   node run.mjs '{"streams": [[ …AG-UI events… ], …]}'

import { AbstractAgent, HttpAgent } from "@ag-ui/client";
import { from } from "rxjs";

const warnings = [];
console.warn = (...words) => warnings.push(words.map(String).join(" "));
console.error = (...words) => warnings.push(words.map(String).join(" "));
console.debug = () => {};

class Replay extends AbstractAgent {
  constructor(events) {
    super();
    this.events = events;
  }

  run() {
    return from(this.events);
  }
}

async function take(agent, params, abortAfter) {
  const types = [];
  let runError = null;
  let failure = null;
  let interrupts = [];
  try {
    await agent.runAgent(params, {
      onEvent: ({ event }) => {
        types.push(event.type);
        if (event.outcome?.type === "interrupt") interrupts = event.outcome.interrupts;
        if (event.type === abortAfter) agent.abortRun();
      },
      onRunErrorEvent: ({ event }) => {
        runError = { message: event.message, code: event.code ?? null };
      },
    });
  } catch (error) {
    failure = { message: String(error?.message ?? error), status: error?.status ?? null, payload: error?.payload ?? null };
  }
  return { types, runError, failure, interrupts, messages: structuredClone(agent.messages) };
}

async function converse({ url, headers, threadId, turns }) {
  const agent = new HttpAgent({ url, headers, threadId });
  const results = [];
  for (const { id, text, runId, forwardedProps, abortAfter, resume: payload } of turns) {
    if (text !== undefined) agent.addMessage({ id, role: "user", content: text });
    const asked = payload === undefined ? [] : results.at(-1).interrupts;
    const resume = asked.map((one) => ({ interruptId: one.id, status: "resolved", payload }));
    results.push(await take(agent, { runId, forwardedProps, ...(resume.length && { resume }) }, abortAfter));
  }
  return results;
}

async function replay({ streams }) {
  const results = [];
  for (const events of streams) results.push(await take(new Replay(events), {}));
  return results;
}

const asked = JSON.parse(process.argv[2]);
const turns = asked.streams ? await replay(asked) : await converse(asked);
process.stdout.write(JSON.stringify({ turns, warnings }) + "\n");
