// The report of a window, as `pag why` gives it.

import { failure, make, replace } from "./dom.js";
import { ask, of } from "./server.js";

export async function showWhy(box, store, window) {
  replace(box, make("p", { class: "faint" }, "Asking why…"));
  try {
    const told = await ask(`${of(store)}/why`, window, "why");
    replace(
      box,
      make("h2", {}, told.heading),
      make("p", { class: told.alarm ? "cause alarm" : "cause" }, told.cause.join(" ")),
      told.sections.map(({ title, statements }) => [
        make("h3", {}, title),
        make("ul", {}, statements.map((text) => make("li", {}, text))),
      ]),
    );
  } catch (error) {
    if (error.name !== "AbortError") replace(box, failure(error));
  }
}
