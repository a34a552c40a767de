// What becomes of batches that come: the mode in force, and asking for another, or for another run
// time between false alarms. Both are entries of the stream, with the name of whoever asked.

import { byId, make, say, show } from "./element.js";
import { count, isKnown, plural } from "./format.js";
import { put } from "./service.js";

/** @type {Record<string, [string, string]>} */
const MODES = {
  learn: ["Learning", "Batches are learned, and boundaries are crossed."],
  detect_only: ["Detecting only", "Changes are found and told. Nothing is learned, no boundary is crossed."],
  frozen: ["Frozen", "Batches are scored, counted and told. Nothing is learned, and no change is looked for."],
};

/** @type {[string, string][]} */
const BUTTONS = [["frozen", "Freeze"], ["detect_only", "Detect only"], ["learn", "Thaw"]];

/**
 * @param {any} drift GET /drift
 * @param {() => void} changed
 */
export function showMode(drift, changed) {
  const mode = drift?.mode;
  if (!mode) return;
  const [name, sentence] = MODES[mode] ?? [mode, ""];
  byId("mode").dataset.mode = mode;
  say(byId("mode-name"), name);
  say(byId("mode-says"), `${sentence} ${mode === "learn" ? "" : "What passes by is never learned; after a thaw the model goes on from where it was."}`.trim());
  say(byId("mode-passed"), !drift.passed_batches ? "Nothing has passed by unlearned."
    : `${plural(drift.passed_batches, "batch has", "batches have")} passed by unlearned, ${plural(drift.passed_samples, "sample")} in all${drift.labels_held ? `; ${plural(drift.labels_held, "label waits", "labels wait")} for the thaw` : ""}.`);
  say(byId("ert-says"), isKnown(drift.ert)
    ? `One false alarm in ${count(drift.ert)} samples is asked for, by ${drift.ert_asked ? "a person" : "the settings"}.` : "");
  show(byId("mode-buttons"), mode, () => BUTTONS.filter(([other]) => other !== mode).map(([other, label]) =>
    make("button", { type: "button", "data-mode": other, onclick: () => ask("model/mode", { mode: other, reason: reason() }, `The mode is ${other === "learn" ? "learn" : other.replace("_", " ")}.`, "mode-reason", changed) }, label)));
}

/** @param {() => void} changed */
export function listen(changed) {
  byId("ert-form").addEventListener("submit", (/** @type {SubmitEvent} */ event) => {
    event.preventDefault();
    const text = byId("ert").value.trim();
    const ert = text === "" ? null : Number(text);
    void ask("drift/ert", { ert }, ert === null ? "The settings say again how often an alarm may be false." : `One false alarm in ${count(ert)} samples is asked for.`, "ert", changed);
  });
}

/** Why, as it stands in the box; null where it is empty. */
function reason() {
  return byId("mode-reason").value.trim() || null;
}

/**
 * @param {string} path
 * @param {object} body
 * @param {string} done what to say of it
 * @param {string} field the box that it came from: emptied, unless somebody wrote in it meanwhile
 * @param {() => void} changed
 */
async function ask(path, body, done, field, changed) {
  const sent = byId(field).value;
  try {
    const answer = await put(path, body);
    say(byId("said"), [answer.applied ? done : "The request is in the stream; the trainer has yet to read it.", answer.warning].filter(Boolean).join(" "));
    if (byId(field).value === sent) byId(field).value = "";
  } catch (problem) {
    say(byId("said"), /** @type {Error} */ (problem).message);
  }
  changed();
}
