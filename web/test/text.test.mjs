import assert from "node:assert/strict";
import { test } from "node:test";

import { formatAmount, formatDuration, formatElapsed, formatRemaining } from "../../server/web/formats.mjs";
import { TEXTS, kindOf, localeFor, setLocale } from "../../server/web/i18n.mjs";
import { callSummary, parseObject, prettyJson } from "../../server/web/json.mjs";
import { splitBlocks } from "../../server/web/markdown.mjs";
import { formatTokens, readUsage } from "../../server/web/usage.mjs";

const SAMPLE = `# Title

First *paragraph*
on two lines.

- one
- two

  still two

| a | b |
| - | - |
| 1 | 2 |

\`\`\`python
x = 1

y = 2
\`\`\`

a
***b*** and the end.
`;

const raws = (blocks) => blocks.map(({ raw }) => raw);

test("a text that grows letter by letter has at each letter the blocks of one read at once", () => {
  let blocks = [];
  for (let end = 1; end <= SAMPLE.length; end += 1) {
    const text = SAMPLE.slice(0, end);
    blocks = splitBlocks(text, blocks, false);
    assert.deepEqual(raws(blocks), raws(splitBlocks(text)));
  }
});

test("earlier blocks stay the same objects while the last one grows", () => {
  const text = "one\n\ntwo\n\nthree\n\nfour";
  const before = splitBlocks(text, [], false);
  const after = splitBlocks(`${text} and more`, before, false);
  assert.equal(after[0], before[0]);
  assert.equal(after[2], before[2]);
  assert.notEqual(after.at(-1), before.at(-1));
});

test("a link that is defined further down is found once the text is whole", () => {
  const text = "See [it][x].\n\nb\n\nc\n\n[x]: https://example.com\n";
  const growing = splitBlocks(text, splitBlocks(text.slice(0, 20), [], false), false);
  const whole = splitBlocks(text, growing, true);
  assert.match(JSON.stringify(whole[0].token), /example\.com/);
});

test("another text takes nothing over", () => {
  assert.deepEqual(raws(splitBlocks("b", splitBlocks("a\n\nb\n\nc", [], false), false)), ["b"]);
});

test("JSON is laid out without touching its numbers", () => {
  assert.equal(prettyJson('{"id":12345678901234567890,"n":1e0,"a":[]}'), '{\n  "id": 12345678901234567890,\n  "n": 1e0,\n  "a": []\n}');
  assert.equal(prettyJson('{"s":"{\\"x\\": [1, 2]}"}'), '{\n  "s": "{\\"x\\": [1, 2]}"\n}');
  assert.equal(prettyJson("[[],{}]"), "[\n  [],\n  {}\n]");
});

test("what is not JSON is shown as it is", () => {
  assert.equal(prettyJson('{"half":'), '{"half":');
});

test("a call is summed up by its telling argument", () => {
  assert.equal(callSummary('{"action":"run","command":"ls\\n -l"}'), "ls -l");
  assert.equal(callSummary('{"n":1,"other":"text"}'), "text");
  assert.equal(callSummary('{"comm'), "");
  assert.equal(callSummary("null"), "");
});

test("both languages have the same texts with the same gaps", () => {
  const gaps = (text) => (text.match(/\{\w+\}/g) ?? []).sort();
  const [chinese, english] = [TEXTS["zh-CN"], TEXTS.en];
  assert.deepEqual(Object.keys(chinese).sort(), Object.keys(english).sort());
  for (const key of Object.keys(chinese)) assert.deepEqual(gaps(chinese[key]), gaps(english[key]), key);
});

test("the language follows the browser, Chinese where it says nothing", () => {
  assert.equal(localeFor(["en-US"]), "en");
  assert.equal(localeFor(["en-US", "zh-TW"]), "zh-CN");
  assert.equal(localeFor([]), "zh-CN");
});

test("every kind of session has a name, a bot's chat that of its platform", () => {
  setLocale("zh-CN");
  const kinds = [{ kind: "main" }, { kind: "sideline" }, { kind: "subagent" }, { kind: "scheduled" }];
  const chats = ["feishu", "dingtalk", "elsewhere"].map((origin) => ({ kind: "chat", origin }));
  assert.deepEqual([...kinds, ...chats].map(kindOf), ["会话", "旁路", "子代理", "定时", "飞书", "钉钉", "聊天"]);
});

test("times and token counts are short", () => {
  assert.deepEqual([512, 2_340, 12_400, 61_000].map(formatDuration), ["512 ms", "2.3 s", "12 s", "1:01"]);
  assert.equal(formatElapsed(999), "0 s");
  assert.deepEqual([950, 12_345, 4_500_000].map(formatTokens), ["950", "12.3k", "4.5M"]);
});

test("what is left of a time shows seconds only near its end", () => {
  setLocale("en");
  const [second, minute, hour] = [1000, 60_000, 3_600_000];
  assert.deepEqual(
    [24 * hour - second, hour, 10 * minute, 9 * minute + 59 * second, 300, -5].map(formatRemaining),
    ["23 h 59 min left", "1 h 0 min left", "10 min left", "9:59 left", "0:01 left", "0:00 left"],
  );
});

test("arguments that a person wrote are an object, or what is wrong with them", () => {
  assert.deepEqual(parseObject('{"a": [1, "x"]}').value, { a: [1, "x"] });
  assert.equal(parseObject("[1]").fault.key, "notAnObject");
  assert.equal(parseObject("null").fault.key, "notAnObject");
  assert.ok(parseObject('{"a": }').fault.key.startsWith("notJson"));
  assert.ok(parseObject("").fault.key.startsWith("notJson"));
});

test("an amount is worded in both languages", () => {
  setLocale("en");
  assert.deepEqual([formatAmount(1, "hours"), formatAmount(90, "minutes")], ["1 hour", "90 minutes"]);
  setLocale("zh-CN");
  assert.match(formatAmount(2, "days"), /^2\s?天$/);
});

test("usage is one sum, whether per model or of the session", () => {
  assert.deepEqual(readUsage([{ inputTokens: 5, outputTokens: 1 }, { inputTokens: 2, cachedInputTokens: 2 }]), { input: 7, cached: 2, output: 1 });
  assert.deepEqual(readUsage({ promptTokens: 5, cachedTokens: 4, completionTokens: 1 }), { input: 5, cached: 4, output: 1 });
  assert.equal(readUsage({ promptTokens: 0, cachedTokens: 0, completionTokens: 0 }), null);
});
