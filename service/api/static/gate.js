// The gate: that what is learned is held back because it has forgotten, why, and letting it pass.

import { byId, say } from "./element.js";
import { count, decimal, percent } from "./format.js";
import { post } from "./service.js";

/** @param {any} drift GET /drift */
export function showGate(drift) {
  const gate = drift?.gate;
  byId("gate").hidden = !gate?.held;
  if (!gate?.held) return;
  say(byId("gate-title"), `Version ${count(gate.checked_version)} is held back`);
  say(byId("gate-says"), `Of the samples that the model drew of sub-task ${gate.past_sub_task} when it ended, it names ${percent(gate.accuracy_now)} rightly; it was ${percent(gate.accuracy_before)}, and may fall by ${decimal(100 * gate.max_forgetting, 2)} points. Version ${count(gate.served_version)} answers, and learning goes on. ${gate.rollback ? "The trainer goes back to it by itself." : "The hold ends when enough is known again, by a rollback, or here."}`);
}

/** @param {() => void} changed */
export function listen(changed) {
  byId("gate-form").addEventListener("submit", async (/** @type {SubmitEvent} */ event) => {
    event.preventDefault();
    try {
      const done = await post("model/release", { reason: byId("gate-reason").value.trim() || null });
      say(byId("said"), done.applied ? `Version ${count(done.model_version)} answers.` : "The request is in the stream; the trainer has yet to read it.");
      byId("gate-reason").value = "";
    } catch (problem) {
      say(byId("said"), /** @type {Error} */ (problem).message);
    }
    changed();
  });
}
