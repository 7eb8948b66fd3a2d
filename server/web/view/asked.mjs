/** A question of the model that was answered, read as the talk that it was. */

import { html, memo } from "./html.mjs";

export const Asked = memo(({ call }) => html`
  ${call.asked.question && html`<p class="asked">${call.asked.question}</p>`}
  <div class="user-row"><div class="bubble"><div class="bubble-text">${call.asked.answer}</div></div></div>
`);
