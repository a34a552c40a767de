// Prequential accuracy of each class, and shares of classes among the newest samples.

import { byId, make, show } from "./element.js";
import { byLabel, decimal, percent, plural } from "./format.js";

/** @param {any} drift GET /drift */
export function showClasses(drift) {
  const rows = (drift?.class_accuracies ?? []).toSorted((/** @type {any} */ one, /** @type {any} */ other) => byLabel(one.label, other.label));
  byId("classes-none").hidden = rows.length > 0;
  show(byId("classes"), rows, () => rows.map((/** @type {any} */ one) => make("li", {},
    make("b", { title: one.label }, one.label),
    make("span", { class: "meter", "data-level": "plain", share: one.accuracy }),
    make("span", { class: "figure" }, percent(one.accuracy)),
    make("small", {}, plural(one.samples, "sample")))));
}

/** @param {any} drift GET /drift */
export function showShares(drift) {
  const told = drift?.class_shares;
  // Of a hundred classes a sub-task may have two: what neither side has would only be noise.
  const rows = (told?.classes ?? []).filter((/** @type {any} */ one) => one.share || one.reference_share || one.drifts);
  byId("shares-none").hidden = rows.length > 0;
  if (told?.other) rows.push({ ...told.other, label: plural(told.other.classes, "other") });
  show(byId("shares"), rows, () => rows.map((/** @type {any} */ one) => make("li", {},
    make("b", { title: one.label }, one.label),
    make("span", { class: "meter", "data-level": one.drifts ? "near" : "plain", share: one.share ?? 0 }),
    make("span", { class: "figure" }, percent(one.share)),
    make("small", {}, inWords(one)))));
}

/** @param {any} one @returns {string} */
function inWords(one) {
  const before = one.reference_share === null ? "no reference yet" : `before: ${percent(one.reference_share)}`;
  if (!one.drifts) return before;
  const likelihood = one.likelihood_change === null ? "" : `, likelihood by ${decimal(one.likelihood_change, 2)}`;
  return `drifts; ${before}; share changed by ${decimal(one.share_change, 2)} standard errors${likelihood}`;
}
