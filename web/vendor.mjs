/**
 * Bundle the page's third parties into `server/web/vendor/`, with their licences and a manifest.
 *
 * `node vendor.mjs` writes the files; with `--check` it compares them with what stands there and
 * exits 1 where they differ. The result is committed, so that installing Headway needs no Node.
 */

import { createHash } from "node:crypto";
import { mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import { build } from "esbuild";

const HERE = dirname(fileURLToPath(import.meta.url));
const TARGET = join(HERE, "..", "server", "web", "vendor");

/** What the page imports from the bundle; an import map would need an inline script. */
const ENTRY = `
export { Component, Fragment, createRef, h, render } from "preact";
export { useEffect, useLayoutEffect, useMemo, useRef, useState } from "preact/hooks";
export { default as htm } from "htm";
export { Marked } from "marked";
export { default as DOMPurify } from "dompurify";
`;

async function bundle() {
  const result = await build({
    stdin: { contents: ENTRY, resolveDir: HERE, sourcefile: "vendor-entry.mjs" },
    bundle: true,
    format: "esm",
    target: "es2022",
    minify: true,
    legalComments: "none",
    charset: "utf8",
    write: false,
  });
  return result.outputFiles[0].text;
}

/** The packages that end up in the bundle; esbuild only makes it. */
async function bundled() {
  const { devDependencies } = JSON.parse(await readFile(join(HERE, "package.json"), "utf8"));
  return Object.keys(devDependencies).filter((name) => name !== "esbuild").sort();
}

async function describe(name) {
  const folder = join(HERE, "node_modules", name);
  const { version, license } = JSON.parse(await readFile(join(folder, "package.json"), "utf8"));
  const files = (await readdir(folder)).filter((file) => /^licen[cs]e/i.test(file)).sort();
  const texts = await Promise.all(files.map((file) => readFile(join(folder, file), "utf8")));
  return { name, version, license, text: texts.join("\n\n").replaceAll("\r\n", "\n").trim() };
}

function licences(packages) {
  const head = "vendor.mjs is made of the packages below, each under its own licence.\n";
  const sections = packages.map(
    ({ name, version, license, text }) =>
      `\n${"=".repeat(78)}\n${name} ${version} (${license})\n${"=".repeat(78)}\n\n${text}\n`,
  );
  return head + sections.join("");
}

function manifest(packages, code) {
  const sha256 = createHash("sha256").update(code).digest("hex");
  const listed = packages.map(({ name, version, license }) => ({ name, version, license }));
  return `${JSON.stringify({ file: "vendor.mjs", sha256, packages: listed }, null, 2)}\n`;
}

async function make() {
  const code = await bundle();
  const packages = await Promise.all((await bundled()).map(describe));
  return {
    "vendor.mjs": code,
    "vendor.json": manifest(packages, code),
    "LICENSES.txt": licences(packages),
  };
}

async function differing(files) {
  const names = [];
  for (const [name, text] of Object.entries(files)) {
    const standing = await readFile(join(TARGET, name), "utf8").catch(() => null);
    if (standing !== text) names.push(name);
  }
  return names;
}

async function main() {
  const files = await make();
  if (process.argv.includes("--check")) {
    const names = await differing(files);
    if (names.length === 0) return;
    console.error(`Not what \`node web/vendor.mjs\` makes: ${names.join(", ")}`);
    process.exitCode = 1;
    return;
  }
  await mkdir(TARGET, { recursive: true });
  for (const [name, text] of Object.entries(files)) await writeFile(join(TARGET, name), text);
}

await main();
