/** The session that a call began: how it stands, and the way to its own log. */

import { sessionAddress } from "../address.mjs";
import { named, t } from "../i18n.mjs";
import { html, memo } from "./html.mjs";
import { ChevronIcon } from "./icons.mjs";

/** `session` is the one that is read; `child` is missing while the server has not told of it. */
export const Subagent = memo(({ session, call, child }) => {
  const { childId, subagent } = call;
  const status = child?.status ?? subagent?.status;
  const title = child?.title || subagent?.name || t("childSession");
  return html`
    <a class="subagent" href=${sessionAddress(session, childId)}>
      ${status && html`<span class=${`dot ${status}`} />`}
      <span class="subagent-title">${title}</span>
      ${status && html`<span class="subagent-state">${named("status", status)}</span>`}
      <${ChevronIcon} />
      ${subagent?.reason && html`<span class="subagent-reason">${subagent.reason}</span>`}
    </a>
  `;
});
