/** Language, appearance, and leaving. */

import { t } from "../i18n.mjs";
import { html, useState } from "./html.mjs";
import { ContrastIcon, GlobeIcon, LeaveIcon } from "./icons.mjs";
import { applyTheme, theme, THEMES } from "./theme.mjs";

export function Preferences({ switchLocale, actions }) {
  const [name, setName] = useState(theme);
  const turn = () => {
    const next = THEMES[(THEMES.indexOf(name) + 1) % THEMES.length];
    applyTheme(next);
    setName(next);
  };
  const label = t({ auto: "themeAuto", light: "themeLight", dark: "themeDark" }[name]);
  return html`
    <div class="preferences">
      <button class="button quiet" onClick=${switchLocale}><${GlobeIcon} />${t("language")}</button>
      <button class="button quiet" aria-label=${`${t("theme")}: ${label}`} onClick=${turn}><${ContrastIcon} />${label}</button>
      <button class="icon-button" aria-label=${t("logout")} title=${t("logout")} onClick=${() => actions.account.logout()}><${LeaveIcon} /></button>
    </div>
  `;
}
