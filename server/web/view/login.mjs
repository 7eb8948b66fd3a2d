/** Ask for an access token; a login link brings its own and never shows this. */

import { t } from "../i18n.mjs";
import { html, useEffect, useRef, useState } from "./html.mjs";

export function Login({ actions, switchLocale }) {
  const [refusal, setRefusal] = useState(null);
  const [isBusy, setBusy] = useState(false);
  const input = useRef(null);
  useEffect(() => input.current.focus(), []);

  async function submit(event) {
    event.preventDefault();
    const token = input.current.value.trim();
    if (token === "") return;
    setBusy(true);
    setRefusal(await actions.account.login(token));
    setBusy(false);
  }

  return html`
    <main class="login">
      <form class="login-card" onSubmit=${submit}>
        <img class="login-mark" src="./icon.svg" alt="" width="44" height="44" />
        <h1>${t("loginTitle")}</h1>
        <p id="login-text">${t("loginText")}</p>
        <label for="token">${t("loginToken")}</label>
        <input
          id="token" type="password" autocomplete="current-password" spellcheck=${false}
          aria-describedby="login-text login-refusal" ref=${input}
        />
        <p id="login-refusal" class="login-refusal" role="alert">${refusal}</p>
        <button class="button primary" type="submit" disabled=${isBusy}>${t("loginSubmit")}</button>
      </form>
      <button class="button quiet" type="button" onClick=${switchLocale}>${t("language")}</button>
    </main>
  `;
}
