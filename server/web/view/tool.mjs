/** One tool call as a card: a line that says what and how, its arguments and result folded. */

import { isPicture } from "../content.mjs";
import { formatBytes, formatDuration, formatElapsed } from "../formats.mjs";
import { named, t } from "../i18n.mjs";
import { callSummary, prettyJson } from "../json.mjs";
import { Approval } from "./approval.mjs";
import { Asked } from "./asked.mjs";
import { Files } from "./files.mjs";
import { html, memo, useClock, useState } from "./html.mjs";
import { ChevronIcon, ToolIcon } from "./icons.mjs";
import { Subagent } from "./subagent.mjs";

/** A folded result shows the lines that fit a glance. */
const FOLDED_LINES = 14;
const FOLDED_CHARACTERS = 1600;

/** `approval` is what was asked about the call, `child` the session that it began. */
export const ToolCard = memo(({ session, call, approval, child, actions }) => {
  const [isOpen, setOpen] = useState(false);
  const pictures = call.result?.files.filter(isPicture) ?? [];
  return html`
    <div class=${`tool ${call.phase}`}>
      <details open=${isOpen} onToggle=${(event) => setOpen(event.currentTarget.open)}>
        <summary>
          <${ToolIcon} />
          <span class="tool-name">${call.name}</span>
          <span class="tool-summary">${call.progress || callSummary(call.args)}</span>
          <${Phase} call=${call} />
          <${ChevronIcon} />
        </summary>
        ${isOpen && html`<${Body} call=${call} />`}
      </details>
      ${pictures.length > 0 && html`<${Files} files=${pictures} />`}
      ${call.childId !== null && html`<${Subagent} ...${{ session, call, child }} />`}
      ${approval && html`
        <${Approval} key=${approval.id} ...${{ session, approval, actions }} args=${approval.arguments || call.args} isStray=${false} />
      `}
      ${call.asked !== null && html`<${Asked} call=${call} />`}
    </div>
  `;
});

function Phase({ call }) {
  const now = useClock(call.phase === "running");
  const exitCode = call.result?.exitCode;
  const time = timeOf(call, now);
  return html`
    <span class="tool-phase">
      ${exitCode ? html`<span class="tool-exit">${t("exitCode", { code: exitCode })}</span>` : null}
      ${time && html`<span class="tool-time">${time}</span>`}
      <span class="tool-state">${named("phase", call.phase)}</span>
    </span>
  `;
}

function timeOf({ phase, since, result }, now) {
  if (phase === "running") return since ? formatElapsed(now - since) : "";
  return result === null || result.durationMs === null ? "" : formatDuration(result.durationMs);
}

function Body({ call }) {
  const { result } = call;
  const others = result?.files.filter((file) => !isPicture(file)) ?? [];
  return html`
    <div class="tool-body">
      <h4>${t("arguments")}</h4>
      <pre tabindex="0">${prettyJson(call.args) || t("emptyResult")}</pre>
      <h4>${t("result")}</h4>
      ${result === null ? html`<p class="tool-none">${t("noResult")}</p>` : html`<${Result} text=${result.text} />`}
      ${others.length > 0 && html`<${Files} files=${others} />`}
      ${result?.truncated && html`<p class="tool-none">${t("truncated")}</p>`}
      ${isOwn(result?.fullResultUrl) &&
      html`<a href=${result.fullResultUrl} target="_blank" rel="noopener noreferrer">${t("fullResult")}</a>`}
    </div>
  `;
}

const isOwn = (url) => typeof url === "string" && url.startsWith("/api/");

function Result({ text }) {
  const [isWhole, setWhole] = useState(false);
  const shown = prettyJson(text);
  const folded = shown.split("\n", FOLDED_LINES).join("\n").slice(0, FOLDED_CHARACTERS);
  const isLong = folded.length < shown.length;
  const label = isWhole ? t("showLess") : t("showAll", { size: formatBytes(shown.length) });
  return html`
    <pre tabindex="0" class=${isLong && !isWhole ? "is-folded" : ""}>${(isWhole ? shown : folded) || t("emptyResult")}</pre>
    ${isLong && html`<button class="button small" onClick=${() => setWhole(!isWhole)}>${label}</button>`}
  `;
}
