/** What a person can do, carried out over the socket and REST. */

import { Account } from "./actions/account.mjs";
import { Approvals } from "./actions/approvals.mjs";
import { Files } from "./actions/files.mjs";
import { Following } from "./actions/following.mjs";
import { Messages } from "./actions/messages.mjs";
import { Requests } from "./actions/requests.mjs";
import { Sessions } from "./actions/sessions.mjs";
import { Sideline } from "./actions/sideline.mjs";
import { Tasks } from "./actions/tasks.mjs";

export function createActions(store, socket) {
  const requests = new Requests(store, socket);
  const following = new Following(requests);
  const approvals = new Approvals(requests);
  const messages = new Messages(requests, following, approvals);
  return {
    account: new Account(requests),
    approvals,
    files: new Files(requests, messages),
    following,
    messages,
    requests,
    sessions: new Sessions(requests),
    sideline: new Sideline(requests, following),
    tasks: new Tasks(requests),
  };
}
