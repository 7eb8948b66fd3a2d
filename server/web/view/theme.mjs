/** Light, dark, or as the system says; the style sheets follow `data-theme` by `color-scheme`. */

const KEY = "headway.theme";
export const THEMES = ["auto", "light", "dark"];

export function theme() {
  const stored = localStorage.getItem(KEY);
  return THEMES.includes(stored) ? stored : "auto";
}

export function applyTheme(name = theme()) {
  localStorage.setItem(KEY, name);
  document.documentElement.dataset.theme = name;
}
