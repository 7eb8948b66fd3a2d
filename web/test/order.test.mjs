import assert from "node:assert/strict";
import { test } from "node:test";

import { Order } from "../../server/web/actions/order.mjs";

test("an answer is news until one is shown that was asked for later", () => {
  const order = new Order();
  const [first, second, third] = [order.asking(), order.asking(), order.asking()];
  assert.equal(order.isNews(second), true);
  assert.equal(order.isNews(first), false);
  assert.equal(order.isNews(third), true);
});

test("a change makes old what was asked for before it, and nothing else", () => {
  const order = new Order();
  const before = order.asking();
  order.changed();
  const after = order.asking();
  assert.equal(order.isNews(before), false);
  assert.equal(order.isNews(after), true);
});
