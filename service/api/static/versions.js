// Versions of the model that are kept, and going back to one.

import { byId, make, say, showEach } from "./element.js";
import { clock, count, isKnown } from "./format.js";
import { post } from "./service.js";

/**
 * @param {any} answer GET /model/versions
 * @param {any} model GET /model
 * @param {() => void} changed called when another version may answer
 */
export function showVersions(answer, model, changed) {
  if (!answer) return;
  byId("versions-none").hidden = answer.versions.length > 0;
  byId("versions").hidden = answer.versions.length === 0;
  showEach(byId("version-rows"), answer.versions.map((/** @type {any} */ one) => {
    const served = one.version === answer.model_version;
    return [[one, served, isAhead(one, model)], () => make("tr", {},
      make("th", { scope: "row" }, count(one.version), served ? make("span", { class: "badge" }, "answers") : null),
      make("td", {}, clock(one.time)),
      one.samples_seen === undefined ? make("td", {}) : make("td", { "data-head": "samples learned" }, count(one.samples_seen)),
      make("td", { class: "faint" }, [
        one.before_boundary ? `before boundary ${one.before_boundary}` : "",
        one.origin === "learned" ? "" : `from a ${one.origin}`,
      ].filter(Boolean).join(", ")),
      make("td", {}, served ? null : goBack(one, model, changed)))];
  }));
}

/**
 * Whether a version has learned more than the one that answers, as after a rollback.
 * @param {any} one a kept version
 * @param {any} model GET /model
 */
function isAhead(one, model) {
  return isKnown(one.samples_seen) && isKnown(model?.samples_seen) && Boolean(model.model_version) && one.samples_seen > model.samples_seen;
}

/**
 * A button that goes back, or forward, to a version, after asking.
 * @param {any} one a kept version
 * @param {any} model GET /model
 * @param {() => void} changed
 */
export function goBack(one, model, changed) {
  const way = isAhead(one, model) ? "forward" : "back";
  return make("button", { type: "button", "data-version": one.version, onclick: () => confirm(one.version, way, changed) },
    `Go ${way}`, make("span", { class: "aside" }, ` to version ${one.version}`));
}

/** @param {number} version @param {"back" | "forward"} way @param {() => void} changed */
function confirm(version, way, changed) {
  const dialog = byId("rollback");
  say(byId("rollback-title"), `Go ${way} to version ${count(version)}?`);
  say(byId("rollback-says"), way === "forward"
    ? "That version answers again, with all that it had learned. What was learned since the rollback is dropped, and can be sent again."
    : "That version answers again. What was learned after it is dropped, and can be sent again. Versions that are kept can be gone forward to.");
  say(byId("rollback-yes"), `Go ${way}`);
  dialog.returnValue = "";
  dialog.addEventListener("close", async () => {
    if (dialog.returnValue !== "yes") return;
    say(byId("said"), `Going ${way} to version ${version} …`);
    try {
      const done = await post("model/rollback", { version });
      say(byId("said"), done.applied
        ? `Version ${version} answers again, under the number ${done.model_version}.`
        : `The request is in the stream; the trainer has yet to go ${way} to version ${version}.`);
    } catch (problem) {
      say(byId("said"), /** @type {Error} */ (problem).message);
    }
    changed();
  }, { once: true });
  dialog.showModal();
}
