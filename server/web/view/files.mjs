/** Files of a message or a result: pictures as pictures, others by name. */

import { isPicture } from "../content.mjs";
import { html, memo, useEffect, useState } from "./html.mjs";
import { FileIcon } from "./icons.mjs";

/** A picture may be told of before it is stored, or its request may fall into a broken line. */
const TRIES = 6;
const FIRST_RETRY_MS = 400;

export function Files({ files }) {
  return html`
    <div class="files">
      ${files.map((file) =>
        isPicture(file)
          ? html`<${Picture} key=${file.url} url=${file.url} name=${file.name} />`
          : html`<a class="file" href=${file.url} target="_blank" rel="noopener noreferrer"><${FileIcon} />${file.name || file.mediaType}</a>`,
      )}
    </div>
  `;
}

const Picture = memo(({ url, name }) => {
  const [tries, setTries] = useState(0);
  const [hasFailed, setFailed] = useState(false);
  useEffect(() => {
    if (!hasFailed || tries >= TRIES) return undefined;
    const retry = () => {
      setTries(tries + 1);
      setFailed(false);
    };
    const timer = setTimeout(retry, FIRST_RETRY_MS * 2 ** tries);
    return () => clearTimeout(timer);
  }, [hasFailed, tries]);
  const source = tries === 0 ? url : `${url}?try=${tries}`;
  return html`
    <a href=${url} target="_blank" rel="noopener">
      <img src=${source} alt=${name} loading="lazy" onError=${() => setFailed(true)} />
    </a>
  `;
});
