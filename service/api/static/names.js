// A class that is called otherwise, or that is another one: both are entries of the stream.

import { byId, say } from "./element.js";
import { labelOf } from "./proposals.js";
import { post } from "./service.js";

/** @type {any} GET /model, as it is by now */
let newest = null;

/** @param {any} model */
export function showNames(model) {
  newest = model;
  byId("names").hidden = !model?.classes?.length;
  tell();
}

/** @param {() => void} changed */
export function listen(changed) {
  byId("names-form").addEventListener("input", tell);
  byId("names-form").addEventListener("submit", async (/** @type {SubmitEvent} */ event) => {
    event.preventDefault();
    const [label, to] = [labelIn("names-label"), labelIn("names-to")];
    const reason = byId("names-reason").value.trim() || null;
    try {
      const done = isKnown(to) ? await post("model/merge-classes", { label, into: to, reason }) : await post("model/rename-class", { label, to, reason });
      if (!done.applied) say(byId("said"), "The request is in the stream; the trainer has yet to read it.");
      for (const field of ["names-label", "names-to", "names-reason"]) byId(field).value = "";
      tell();
    } catch (problem) {
      say(byId("said"), /** @type {Error} */ (problem).message);
    }
    changed();
  });
}

/** What the button will do: with a name that another class has, something else. */
function tell() {
  const [label, to] = [labelIn("names-label"), labelIn("names-to")];
  const both = isKnown(to) && to !== label;
  say(byId("names-button"), both ? "Let both be one" : "Call it so");
  say(byId("names-says"), both ? `There is a class ${to}. All that was learned as ${label === "" ? "the other" : label} is of it then; a rollback brings both back.` : "");
}

/** @param {string} field */
function labelIn(field) {
  return labelOf(byId(field).value, newest);
}

/** @param {string | number} label */
function isKnown(label) {
  return (newest?.classes ?? []).some((/** @type {any} */ one) => one.label === label);
}
