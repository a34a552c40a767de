// The key of whoever looks, where the service wants one: asked for once, kept in a cookie that this
// script cannot read.

import { byId, say } from "./element.js";
import { beginSession, unauthorized } from "./service.js";

const dialog = byId("key");
const field = byId("key-value");

unauthorized.addEventListener("refused", () => dialog.open || dialog.showModal());

byId("key-form").addEventListener("submit", async (/** @type {Event} */ event) => {
  event.preventDefault();
  try {
    await beginSession(field.value.trim());
    location.reload();
  } catch (problem) {
    say(byId("key-says"), /** @type {Error} */ (problem).message);
    field.select();
  }
});
