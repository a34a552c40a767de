// The other models of the service, in the page's head: a page for each, at models/NAME/.

import { byId, make, show } from "./element.js";
import { get } from "./service.js";

const NAMED = /models\/([^/]+)\/$/;

/** Where the service's own page is, from a model's, and the name of that model. */
const found = NAMED.exec(location.pathname);
const root = found ? "../../" : "";

/** Show a choice of models where there are several. */
export async function showModels() {
  const { default: own, models } = await get(`${root}models`);
  const names = ["", ...models.map((/** @type {any} */ model) => model.name).sort()];
  const now = found ? decodeURIComponent(found[1]) : "";
  const choice = byId("models");
  show(choice, names, () =>
    names.map((name) => make("option", { value: name, selected: name === now }, name || own)));
  choice.hidden = names.length < 2;
}

byId("models").addEventListener("change", (/** @type {any} */ event) => {
  const name = event.target.value;
  location.href = name ? `${root}models/${encodeURIComponent(name)}/` : root || "./";
});
