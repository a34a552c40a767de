// The other models of the service, in the page's head: a page for each, at models/NAME/.

import { byId, make, show } from "./element.js";
import { get } from "./service.js";

const NAMED = /models\/([^/]+)\/$/;

/** Where the service's own page is, from a model's, and the name of that model. */
const found = NAMED.exec(location.pathname);
const root = found ? "../../" : "";

const USUAL = ["http://127.0.0.1:8000", "http://localhost:8000"]; // where commands ask by themselves

/** The options by which a command asks this model of this service. */
export function options() {
  const url = new URL(root || ".", location.href).href.replace(/\/$/, "");
  return `${USUAL.includes(url) ? "" : ` --url ${url}`}${found ? ` --model ${decodeURIComponent(found[1])}` : ""}`;
}

/** Show a choice of models where there are several, or another than the one on this page. */
export async function showModels() {
  const { default: own, models } = await get(`${root}models`);
  const named = models.map((/** @type {any} */ model) => model.name).sort();
  const names = own === null ? named : ["", ...named]; // null: the key does not count for it
  const now = found ? decodeURIComponent(found[1]) : "";
  const choice = byId("models");
  const choices = [
    ...(names.includes(now) ? [] : [make("option", { disabled: true, selected: true }, "choose a model")]),
    ...names.map((name) => make("option", { value: name, selected: name === now }, name || own)),
  ];
  show(choice, [names, now], () => choices);
  choice.hidden = choices.length < 2;
}

byId("models").addEventListener("change", (/** @type {any} */ event) => {
  const name = event.target.value;
  location.href = name ? `${root}models/${encodeURIComponent(name)}/` : root || "./";
});
