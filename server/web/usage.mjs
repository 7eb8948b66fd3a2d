/** Token counts: AG-UI's list per model, or one object of the session, as one sum. */

/** @returns {{input: number, cached: number, output: number} | null} null when nothing was counted */
export function readUsage(value) {
  const rows = (Array.isArray(value) ? value : [value]).filter(Boolean);
  const sum = { input: 0, cached: 0, output: 0 };
  for (const row of rows) {
    sum.input += row.inputTokens ?? row.promptTokens ?? 0;
    sum.cached += row.cachedInputTokens ?? row.cachedTokens ?? 0;
    sum.output += row.outputTokens ?? row.completionTokens ?? 0;
  }
  return sum.input + sum.output > 0 ? sum : null;
}

/** 950, 12.3k, 4.5M. */
export function formatTokens(count) {
  if (count < 1000) return String(count);
  if (count < 999_950) return `${trim(count / 1000)}k`;
  return `${trim(count / 1_000_000)}M`;
}

function trim(value) {
  return value.toFixed(1).replace(/\.0$/, "");
}
