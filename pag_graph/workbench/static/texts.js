// A selection as the other surfaces ask for it, to be copied.

import { make } from "./dom.js";
import { windowOption } from "./place.js";

// A text as one word of a command line: names of a run are never more than that.
export const quoted = (text) => (/^[\w.\/-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

// Neo4j Browser with the query in its editor. Browser takes a text that begins with a command, such as `:params`, for that
// command to its end, so the parameters are written into the query, as literals.
function browserLink({ cypher, run }, epoch) {
  const values = { run: JSON.stringify(run), epoch: String(Number(epoch)) };
  const query = cypher.query.replace(/\$(run|epoch)\b/g, (_, name) => values[name]);
  return `${cypher.browser}?cmd=edit&arg=${encodeURIComponent(query)}`;
}

export function texts(run, window, activity = null) {
  const cli = windowOption(window);
  const python = window.epoch === undefined ? `between=(${window.from}, ${window.to})` : `epoch=${window.epoch}`;
  const store = quoted(run.called);
  const first = run.made_of === null ? "" : `pag spark ${quoted(run.made_of)} --out ${quoted(`${run.made_of}.graph`)}\n`;
  const said = {
    CLI: `${first}pag critical-path ${store} ${cli}\npag why ${store} ${cli}`,
    Python: `pag = pag_graph.open(${JSON.stringify(run.called)})\npag.critical_path(${python})\npag.snapshot(${python}).edges`,
    Cypher: `:param run => ${JSON.stringify(run.run)}\n:param epoch => ${window.epoch ?? run.slowest}\n// pag neo4j query analyses/critical_path -p run=${run.run} -p epoch=${window.epoch ?? run.slowest}`,
  };
  if (activity) {
    const { edge } = activity;
    said.Python += `\npag.edges().filter(pl.col("dst") == ${edge.dst})`;
    said.Cypher += `\nMATCH (source)-[activity]->(target:Event {run: $run, id: ${edge.dst}}) RETURN *`;
    said.motif = `pag motif '(a)-[e]->(b)' ${store} --where "e.start_ns = ${edge.start_ns} and e.type = '${edge.type}'"`;
  }
  return Object.entries(said).map(([name, text]) => {
    const copy = make("button", { type: "button", onclick: () => navigator.clipboard?.writeText(text) }, "Copy");
    const link = name === "Cypher" && run.cypher.browser ? make("p", {}, make("a", { href: browserLink(run, window.epoch ?? run.slowest), target: "_blank", rel: "noreferrer", id: "neo4j" }, "Open in Neo4j Browser")) : null;
    return [make("h3", {}, `As ${name} `, copy), make("pre", { "data-surface": name }, text), link];
  });
}
