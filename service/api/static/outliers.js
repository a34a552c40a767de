// Outliers of bursts, as they come: neither learned nor lost.

import { byId, make, named, show } from "./element.js";
import { clock } from "./format.js";
import { extent, picture } from "./picture.js";
import { inShort, usualKey } from "./usual.js";

/**
 * @param {any[]} outliers newest last
 * @param {any} model
 */
export function showOutliers(outliers, model) {
  byId("outliers-none").hidden = outliers.length > 0;
  const newest = outliers.toReversed();
  const range = newest.length ? extent(newest.map((one) => one.features)) : undefined;
  show(byId("outliers"), [usualKey(), newest.map((one) => one.id)], () => newest.map((one) => make("li", {},
    picture(one.features, model?.image_shape ?? null, `An outlier${one.label === null ? "" : ` with label ${one.label}`}`, range),
    make("small", {}, one.label === null ? clock(one.time) : ["“", named(one.label), `”, ${clock(one.time)}`]),
    model?.image_shape ? null : make("small", { title: "In deviations from usual" }, inShort(one.features, 1)))));
}
