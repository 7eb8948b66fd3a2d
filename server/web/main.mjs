/** Join the parts: state, socket, REST and view. */

import { createActions } from "./actions.mjs";
import { readAddress } from "./address.mjs";
import { locale, localeFor, setLocale, t } from "./i18n.mjs";
import { Socket } from "./socket.mjs";
import { initialState, reduce } from "./state.mjs";
import { createStore } from "./store.mjs";
import { render } from "./vendor/vendor.mjs";
import { App } from "./view/app.mjs";
import { html } from "./view/html.mjs";
import { applyTheme } from "./view/theme.mjs";

const CLIENT = { id: "headway-web", version: "1", platform: "web" };
const LOCALE_KEY = "headway.locale";

setLocale(localStorage.getItem(LOCALE_KEY) ?? localeFor(navigator.languages));
applyTheme();

const store = createStore(reduce, initialState({ locale: locale() }));
const socket = new Socket({
  url: `${location.origin.replace(/^http/, "ws")}/ws`,
  client: () => ({ ...CLIENT, locale: locale() }),
  onOpen: opened,
  onFrame: received,
  onState: connectionChanged,
  // A refused handshake looks like a broken network; only REST can tell whether we must log in.
  onRefused: () => void actions.account.checkLogin(),
});
const actions = createActions(store, socket);

function opened() {
  void actions.following.resume();
  refreshLists();
}

function received(frame) {
  if (frame.type === "sessions.changed") return refreshLists();
  store.dispatch({ type: "frame", frame });
  actions.following.mend();
}

function refreshLists() {
  actions.sessions.refresh();
  actions.tasks.refresh();
}

function connectionChanged(connection) {
  store.dispatch({ type: "connection", connection });
  if (connection.state === "unauthenticated") actions.requests.signedOut();
}

function openFromAddress() {
  const address = readAddress(location.hash);
  void actions.following.open(address);
  if (address.view === "tasks") actions.tasks.refresh();
}

/** A login link carries its token in the fragment; it leaves the address bar before anything else. */
async function logInFromAddress() {
  const token = /^#token=(.+)$/.exec(location.hash)?.[1];
  if (token === undefined) return actions.account.enter();
  history.replaceState(null, "", location.pathname);
  const refusal = await actions.account.login(decodeURIComponent(token));
  if (refusal !== null) {
    actions.requests.signedOut();
    actions.requests.toast(refusal);
  }
}

function draw(state) {
  document.documentElement.lang = state.locale;
  const title = state.view === "tasks" ? t("tasks") : state.chat?.title;
  document.title = title ? `${title} · Headway` : "Headway";
  const props = { state, actions, socket, switchLocale };
  // All words change with the locale, so the tree is built anew.
  render(html`<${App} key=${state.locale} ...${props} />`, document.getElementById("app"));
}

function switchLocale() {
  setLocale(locale() === "en" ? "zh-CN" : "en");
  localStorage.setItem(LOCALE_KEY, locale());
  store.dispatch({ type: "locale", locale: locale() });
}

addEventListener("hashchange", () => {
  if (location.hash.startsWith("#token=")) void logInFromAddress();
  else openFromAddress();
});
addEventListener("online", () => socket.wake());
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) socket.wake();
});

store.subscribe(draw);
draw(store.state);
openFromAddress();
await logInFromAddress();
