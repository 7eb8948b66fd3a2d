/** The conversation, and the one rule of its scrolling: follow the end, never move a reader. */

import { approvalOf, strayApprovals } from "../approvals.mjs";
import { isRunning, isWaiting } from "../chat.mjs";
import { t } from "../i18n.mjs";
import { Approval } from "./approval.mjs";
import { Ending } from "./ending.mjs";
import { html, useLayoutEffect, useRef, useState } from "./html.mjs";
import { DownIcon } from "./icons.mjs";
import { Item, Pending } from "./message.mjs";
import { ToolCard } from "./tool.mjs";

/** A reader this near to the end counts as being there. */
const NEAR_PX = 32;

export function Log({ chat, pending, canAsk, actions, isConnected }) {
  const { scroller, content, isAway, jump } = useFollowing(chat.items[0]?.id, pending.length);
  const isIdle = !isRunning(chat) && !isWaiting(chat);
  const lastText = isIdle ? chat.items.findLast((item) => item.kind === "text") : undefined;
  const session = chat.id;
  return html`
    <div class="log-place">
      <div class="log-scroller" ref=${scroller} tabindex="0" aria-label=${t("messages")}>
        <div class="log" role="log" aria-label=${t("messages")} aria-busy=${isRunning(chat)} ref=${content}>
          ${!chat.loaded && html`<p class="loading">${t("loading")}</p>`}
          ${chat.hasMore && html`<${Older} session=${session} actions=${actions} />`}
          ${chat.items.map((item, at) =>
            item.kind === "tool"
              ? html`<${ToolCard}
                  key=${`tool:${item.id}`} ...${{ session, actions }} call=${item}
                  approval=${approvalOf(chat.approvals, item.id)}
                  child=${item.childId === null ? undefined : chat.children.find(({ id }) => id === item.childId)}
                />`
              : html`<${Item}
                  key=${`${item.kind}:${item.id}`} ...${{ session, item, isIdle, canAsk, actions }}
                  isFinal=${item.kind === "text" && isEndOfTurn(chat, at)}
                  prompt=${item === lastText ? promptOf(chat, item.runId) : undefined}
                />`,
          )}
          ${strayApprovals(chat.approvals, chat.items).map(
            (approval) => html`<${Approval} key=${approval.id} ...${{ session, approval, actions }} args=${approval.arguments ?? ""} isStray=${true} />`,
          )}
          <${Ending} chat=${chat} prompt=${promptOf(chat, chat.error?.runId)} actions=${actions} />
          ${pending.map(
            (row) => html`<${Pending} key=${row.clientMsgId} row=${row} actions=${actions} isConnected=${isConnected} />`,
          )}
        </div>
      </div>
      ${isAway && html`<button class="jump" onClick=${jump}><${DownIcon} />${t("jumpToLatest")}</button>`}
    </div>
  `;
}

/** What comes between two texts of one turn is work; only the last one is the answer. */
function isEndOfTurn(chat, at) {
  const next = chat.items[at + 1];
  return next === undefined ? !isRunning(chat) : next.kind === "user";
}

/** The message that began the run; of an older run's rest, the last one a person wrote. */
function promptOf(chat, runId) {
  const users = chat.items.filter((item) => item.kind === "user");
  return users.find((item) => runId && item.runId === runId) ?? users.at(-1);
}

function Older({ session, actions }) {
  const [isBusy, setBusy] = useState(false);
  const load = async () => {
    setBusy(true);
    await actions.following.loadOlder(session);
    setBusy(false);
  };
  return html`
    <button class="button quiet older" disabled=${isBusy} onClick=${load}>
      ${isBusy ? t("loading") : t("loadOlder")}
    </button>
  `;
}

function useFollowing(firstId, sentCount) {
  const scroller = useRef(null);
  const content = useRef(null);
  const place = useRef({ isFollowing: true, firstId, sentCount, height: 0 });
  const [isAway, setAway] = useState(false);

  const toEnd = () => {
    scroller.current.scrollTop = scroller.current.scrollHeight;
  };
  const follow = (isFollowing) => {
    place.current.isFollowing = isFollowing;
    setAway(!isFollowing);
  };

  useLayoutEffect(() => {
    const now = place.current;
    const { scrollHeight } = scroller.current;
    if (sentCount > now.sentCount) follow(true);
    const isOlderAdded = now.firstId !== undefined && firstId !== now.firstId;
    if (now.isFollowing) toEnd();
    else if (isOlderAdded) scroller.current.scrollTop += scrollHeight - now.height;
    Object.assign(now, { firstId, sentCount, height: scrollHeight });
  });

  // A layout effect, since its end must come before the elements go.
  useLayoutEffect(() => {
    const box = scroller.current;
    let top = box.scrollTop;
    // The event of our own scrolling comes a frame late, when the text may have grown again: only
    // a way up is a reader leaving.
    const onScroll = () => {
      const isNear = box.scrollHeight - box.scrollTop - box.clientHeight < NEAR_PX;
      if (isNear) follow(true);
      else if (box.scrollTop < top) follow(false);
      top = box.scrollTop;
    };
    const onWheel = (event) => event.deltaY < 0 && box.scrollTop > 0 && follow(false);
    box.addEventListener("scroll", onScroll, { passive: true });
    box.addEventListener("wheel", onWheel, { passive: true });
    // Pictures and folds change the height without a new state.
    const sizes = new ResizeObserver(() => place.current.isFollowing && toEnd());
    sizes.observe(content.current);
    sizes.observe(box);
    return () => {
      box.removeEventListener("scroll", onScroll);
      box.removeEventListener("wheel", onWheel);
      sizes.disconnect();
    };
  }, []);

  const jump = () => {
    follow(true);
    toEnd();
  };
  return { scroller, content, isAway, jump };
}
