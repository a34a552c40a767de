// The key of whoever looks, where the service wants one: asked for once, kept in a cookie that this
// script cannot read. Where the key may not know something, another can be given.

import { byId, say } from "./element.js";
import { beginSession, unauthorized } from "./service.js";

const FORBIDDEN = 403;

const dialog = byId("key");
const field = byId("key-value");
const other = byId("key-other");

/** @param {boolean} asked whether somebody wants to give another key, and may change their mind */
function ask(asked) {
  if (dialog.open) return;
  byId("key-not").hidden = !asked;
  dialog.showModal();
}

unauthorized.addEventListener("refused", () => ask(false));
other.addEventListener("click", () => ask(true));
byId("key-not").addEventListener("click", () => dialog.close());

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

/** What the key may not know, with the words of before. @type {Map<string, string>} */
const refused = new Map();

/**
 * Say that the key may not know something, instead of "none", which would be untrue; or take that
 * back once it may.
 * @param {string} id of the element that says so, and else "none"
 * @param {any} problem why there was no answer; null where there was one
 */
export function tellRefused(id, problem) {
  const place = byId(id);
  if (problem?.status === FORBIDDEN) {
    if (!refused.has(id)) refused.set(id, place.textContent);
    say(place, problem.message);
  } else if (!problem && refused.has(id)) {
    say(place, /** @type {string} */ (refused.get(id)));
    refused.delete(id);
  }
  other.hidden = refused.size === 0;
}
