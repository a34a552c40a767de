// Versions of the model that are kept, and going back to one.

import { byId, make, say, show } from "./element.js";
import { clock, count } from "./format.js";
import { post } from "./service.js";

/**
 * @param {any} answer GET /model/versions
 * @param {() => void} changed called when another version may answer
 */
export function showVersions(answer, changed) {
  if (!answer) return;
  byId("versions-none").hidden = answer.versions.length > 0;
  byId("versions").hidden = answer.versions.length === 0;
  show(byId("version-rows"), answer, () => answer.versions.map((/** @type {any} */ one) => {
    const served = one.version === answer.model_version;
    return make("tr", {},
      make("th", { scope: "row" }, count(one.version), served ? make("span", { class: "badge" }, "answers") : null),
      make("td", {}, clock(one.time)),
      make("td", {}, one.samples_seen === undefined ? "" : count(one.samples_seen)),
      make("td", { class: "faint" }, [
        one.before_boundary ? `before boundary ${one.before_boundary}` : "",
        one.origin === "learned" ? "" : `from a ${one.origin}`,
      ].filter(Boolean).join(", ")),
      make("td", {}, served ? null : goBack(one.version, changed)));
  }));
}

/**
 * A button that goes back to a version, after asking.
 * @param {number} version
 * @param {() => void} changed
 */
export function goBack(version, changed) {
  return make("button", { type: "button", "data-version": version, onclick: () => confirm(version, changed) },
    "Go back", make("span", { class: "aside" }, ` to version ${version}`));
}

/** @param {number} version @param {() => void} changed */
function confirm(version, changed) {
  const dialog = byId("rollback");
  say(byId("rollback-title"), `Go back to version ${count(version)}?`);
  dialog.returnValue = "";
  dialog.addEventListener("close", async () => {
    if (dialog.returnValue !== "yes") return;
    say(byId("said"), `Going back to version ${version} …`);
    try {
      const done = await post("model/rollback", { version });
      say(byId("said"), done.applied
        ? `Version ${version} answers again, under the number ${done.model_version}.`
        : `The request is in the stream; the trainer has yet to go back to version ${version}.`);
    } catch (problem) {
      say(byId("said"), /** @type {Error} */ (problem).message);
    }
    changed();
  }, { once: true });
  dialog.showModal();
}
