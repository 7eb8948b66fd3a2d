/** Tokens used, in one modest line. */

import { t } from "../i18n.mjs";
import { formatTokens } from "../usage.mjs";
import { html, memo } from "./html.mjs";

export const Usage = memo(({ total, run }) => {
  const shown = total ?? run;
  if (shown === null) return null;
  const lines = [total && `${t("usageSession")}: ${words(total)}`, run && `${t("usageRun")}: ${words(run)}`];
  const title = lines.filter(Boolean).join("\n");
  return html`
    <span class="usage" title=${title}>
      <span aria-hidden="true">↑ ${formatTokens(shown.input)} ↓ ${formatTokens(shown.output)}</span>
      <span class="sr-only">${title}</span>
    </span>
  `;
});

function words({ input, cached, output }) {
  const parts = [`${t("tokensIn")} ${formatTokens(input)}`, `${t("tokensOut")} ${formatTokens(output)}`];
  if (cached > 0) parts.splice(1, 0, `${t("tokensCached")} ${formatTokens(cached)}`);
  return parts.join(" · ");
}
