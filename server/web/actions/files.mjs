/** Files that go with a message. */

import * as api from "../api.mjs";
import { composerOf } from "../composers.mjs";
import { formatBytes } from "../formats.mjs";
import { reasonOf, t } from "../i18n.mjs";
import { newId } from "../ids.mjs";

export class Files {
  #requests;
  #messages;

  constructor(requests, messages) {
    this.#requests = requests;
    this.#messages = messages;
  }

  attach(key, files) {
    return Promise.all([...files].map((file) => this.#upload(key, file)));
  }

  detach(key, attachment) {
    const { attachments } = composerOf(this.#requests.state, key);
    const gone = attachments.find((row) => row.key === attachment);
    if (gone?.previewUrl) URL.revokeObjectURL(gone.previewUrl);
    this.#requests.dispatch({ type: "detached", key, attachment });
  }

  async #upload(key, file) {
    const limit = this.#requests.state.maxFileBytes;
    if (limit !== null && file.size > limit) {
      return this.#requests.toast(t("tooLarge", { name: file.name, limit: formatBytes(limit) }));
    }
    if (file.size === 0) return this.#requests.toast(t("emptyFile", { name: file.name }));
    const attachment = newId();
    const previewUrl = file.type.startsWith("image/") ? URL.createObjectURL(file) : null;
    const begun = { key: attachment, name: file.name, previewUrl };
    this.#requests.dispatch({ type: "attached", key, attachment: begun });
    const session = await this.#messages.sessionOf(key);
    if (session === null) return this.detach(key, attachment);
    try {
      const stored = await api.upload(session, file);
      this.#requests.dispatch({ type: "uploaded", key: session, attachment, file: stored });
    } catch (error) {
      this.detach(session, attachment);
      const isOut = this.#requests.leaveIfSignedOut(error);
      if (!isOut) this.#requests.toast(t("uploadFailed", { name: file.name, reason: reasonOf(error) }));
    }
  }
}
