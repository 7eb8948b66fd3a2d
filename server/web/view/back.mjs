/** The way up: from a session to the one that it stands under, from a task to the list. */

import { t } from "../i18n.mjs";
import { html } from "./html.mjs";
import { BackIcon } from "./icons.mjs";

export function Back({ href, title }) {
  const words = t("backTo", { title });
  return html`<a class="back" href=${href} title=${words} aria-label=${words}><${BackIcon} /><span>${title}</span></a>`;
}
