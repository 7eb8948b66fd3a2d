/** Line icons, 20 by 20, in the colour of the text. They only decorate: the button has the name. */

import { html } from "./html.mjs";

const icon = (path) => () =>
  html`<svg class="icon" viewBox="0 0 20 20" aria-hidden="true"><path d=${path} /></svg>`;

export const MenuIcon = icon("M3 5.5h14M3 10h14M3 14.5h14");
export const PlusIcon = icon("M10 4v12M4 10h12");
export const SearchIcon = icon("M9 4a5 5 0 1 0 0 10A5 5 0 0 0 9 4Zm3.8 8.8L16.5 16.5");
export const CloseIcon = icon("m5 5 10 10M15 5 5 15");
export const PencilIcon = icon("m4 16 .8-3.4 8-8a1.7 1.7 0 0 1 2.5 2.5l-8 8L4 16Z");
export const TrashIcon = icon("M4 6h12M8 6V4h4v2m2.5 0-.7 10H6.2L5.5 6M8.5 9v4.5m3-4.5v4.5");
export const SendIcon = icon("M10 16V4.5M5 9.2l5-5 5 5");
export const StopIcon = icon("M6 6h8v8H6Z");
export const ClipIcon = icon("m15.5 9.3-5.4 5.4a3.4 3.4 0 0 1-4.8-4.8l5.9-5.9a2.2 2.2 0 0 1 3.2 3.2l-5.7 5.7a1 1 0 0 1-1.5-1.5l5-5");
export const CopyIcon = icon("M7 7V4h9v9h-3M4 7h9v9H4Z");
export const RetryIcon = icon("M15.8 8A6 6 0 1 0 16 11.5M16 4v4h-4");
export const DownIcon = icon("M10 4v11.5m-5-5 5 5 5-5");
export const ChevronIcon = icon("m7.5 5 5 5-5 5");
export const AlertIcon = icon("M10 6v5m0 2.8v.2M10 2.8a7.2 7.2 0 1 0 0 14.4 7.2 7.2 0 0 0 0-14.4Z");
export const ToolIcon = icon("M12.2 3.6a4 4 0 0 0-3.9 5.5L3.6 13.8a1.8 1.8 0 0 0 2.6 2.6l4.7-4.7a4 4 0 0 0 5.3-4.9l-2.4 2.4-2.3-.7-.7-2.3 2.4-2.4a4 4 0 0 0-1-.2Z");
export const FileIcon = icon("M5.5 3h6L15 6.5V17H5.5ZM11 3v4h4");
export const LeaveIcon = icon("M8 4H4v12h4M12.5 6.5 16 10l-3.5 3.5M16 10H8");
export const GlobeIcon = icon("M10 3a7 7 0 1 0 0 14 7 7 0 0 0 0-14ZM3 10h14M10 3c4 4 4 10 0 14-4-4-4-10 0-14Z");
export const ContrastIcon = icon("M10 3a7 7 0 1 0 0 14 7 7 0 0 0 0-14Zm0 0v14M10 6.5l5.5-.5M10 10h7m-7 3.5 5.5.5");
export const AsideIcon = icon("M4 4.5h9v6.5H8L5.5 13.5V11H4ZM10.5 13.5H12l2.5 2.5v-2.5H16V7");
export const BackIcon = icon("m11.5 5-5 5 5 5");
export const ExpandIcon = icon("M11.5 4H16v4.5M16 4l-5 5M8.5 16H4v-4.5M4 16l5-5");
export const ClockIcon = icon("M10 3a7 7 0 1 0 0 14 7 7 0 0 0 0-14Zm0 3.5V10l2.5 2");
export const CheckIcon = icon("m4.5 10.5 3.5 3.5 7.5-8");
export const CrossIcon = icon("m6 6 8 8M14 6l-8 8");
export const QuestionIcon = icon("M7.8 8a2.2 2.2 0 1 1 3 2c-.6.3-.8.6-.8 1.2v.3m0 2.4v.1M10 3a7 7 0 1 0 0 14 7 7 0 0 0 0-14Z");
export const PlayIcon = icon("M7 5v10l8-5Z");
export const PauseIcon = icon("M7.5 5v10M12.5 5v10");
