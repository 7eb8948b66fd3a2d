import assert from "node:assert/strict";
import { readFile, readdir } from "node:fs/promises";
import { test } from "node:test";

const WEB = new URL("../../server/web/", import.meta.url);

async function files(suffix) {
  const names = await readdir(WEB, { recursive: true });
  return names.filter((name) => name.endsWith(suffix)).sort();
}

const linked = (page, rel) => [...page.matchAll(new RegExp(`rel="${rel}" href="\\./([^"]+)"`, "g"))].map(([, name]) => name);

test("the page asks for all its modules and styles at once, and for nothing that is not there", async () => {
  const page = await readFile(new URL("index.html", WEB), "utf8");
  const modules = [...linked(page, "modulepreload"), "main.mjs"].sort();
  assert.deepEqual(modules, await files(".mjs"));
  assert.deepEqual(linked(page, "stylesheet").sort(), await files(".css"));
});

test("nothing in the page would need an exception from its content policy", async () => {
  const page = await readFile(new URL("index.html", WEB), "utf8");
  assert.doesNotMatch(page, /<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=/);
  for (const name of await files(".mjs")) {
    const code = await readFile(new URL(name, WEB), "utf8");
    assert.doesNotMatch(code, /\beval\(|new Function\(/, name);
  }
});

test("every word of the page is used, and no unknown one is asked for", async () => {
  const { TEXTS } = await import(new URL("i18n.mjs", WEB));
  const own = (await files(".mjs")).filter((name) => !name.startsWith("vendor") && name !== "i18n.mjs");
  const code = (await Promise.all(own.map((name) => readFile(new URL(name, WEB), "utf8")))).join("\n");
  const asked = new Set([...code.matchAll(/\bt\("(\w+)"/g)].map(([, key]) => key));
  for (const key of asked) assert.ok(key in TEXTS.en, key);
  const families = /^(status|kind|phase|error|approval|schedule|unit|missed|task|taskRun|skipped|delivery)_/;
  const unused = Object.keys(TEXTS.en).filter((key) => !families.test(key) && !code.includes(`"${key}"`));
  assert.deepEqual(unused, []);
});
