// Prequential accuracy of each class.

import { byId, make, show } from "./element.js";
import { percent, plural } from "./format.js";

/** @param {any} drift GET /drift */
export function showClasses(drift) {
  const rows = drift?.class_accuracies ?? [];
  byId("classes-none").hidden = rows.length > 0;
  show(byId("classes"), rows, () => rows.map((/** @type {any} */ one) => make("li", {},
    make("b", {}, one.label),
    make("span", { class: "meter", "data-level": "plain", share: one.accuracy }),
    make("span", { class: "figure" }, percent(one.accuracy)),
    make("small", {}, plural(one.samples, "sample")))));
}
