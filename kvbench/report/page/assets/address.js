// The page's address: its fragment names the run, the choices and the open sample, so that every view has a link.

const NO_FILTERS = { words: "", task: "", setting: "", shown: "all", cell: null };

/** What is shown. `metric` null: the run's first; `hidden`: methods; `at`: a section; `ratios`: those of decoding; `card`: a setting of `sample`. */
function start() {
  return {
    ...{ run: 0, beside: -1, metric: null, hidden: new Set(), across: "r_bytes", by: "", baseline: "", ratios: false },
    ...{ filters: { ...NO_FILTERS }, sample: null, card: null, at: "" },
  };
}

const view = start();

/** The name of a run in an address: its folder's, with a number where several have one name. */
function runName(index) {
  const names = data("runs");
  return names.indexOf(names[index]) === index ? names[index] : `${names[index]} ${index + 1}`;
}

function runNamed(name, none) {
  const index = name == null ? -1 : data("runs").findIndex((_, index) => runName(index) === name);
  return index < 0 ? none : index;
}

/** The fragment of a view; choices that are those of `start` are left out. */
function fragment(state) {
  const { words, task, setting, shown, cell } = state.filters;
  const parts = [
    ["run", state.run ? runName(state.run) : ""],
    ["beside", state.beside < 0 ? "" : runName(state.beside)],
    ["score", state.metric],
    ...[...state.hidden].map((method) => ["hide", method]),
    ["across", state.across === "r_bytes" ? "" : state.across],
    ...Object.entries({ baseline: state.baseline, by: state.by, words, task, setting, show: shown === "all" ? "" : shown }),
    ["ratios", state.ratios ? "all" : ""],
    ["cell", cell ? `${cell.length} ${cell.depth}` : ""],
    ...Object.entries({ sample: state.sample, card: state.card, at: state.at }),
  ];
  return `#${new URLSearchParams(parts.filter(([, value]) => value != null && value !== ""))}`.replace(/^#$/, "");
}

/** The view of a fragment; a fragment without choices names a section alone. */
function viewOf(text) {
  const plain = text.replace(/^#/, "");
  if (!plain.includes("=")) return { ...start(), at: plain };
  const parts = new URLSearchParams(plain);
  const [length, depth] = (parts.get("cell") ?? "").split(" ").map(Number);
  return {
    run: runNamed(parts.get("run"), 0),
    beside: runNamed(parts.get("beside"), -1),
    metric: parts.get("score"),
    hidden: new Set(parts.getAll("hide")),
    across: parts.get("across") ?? "r_bytes",
    baseline: parts.get("baseline") ?? "",
    by: parts.get("by") ?? "",
    ratios: parts.get("ratios") === "all",
    filters: {
      words: parts.get("words") ?? "",
      task: parts.get("task") ?? "",
      setting: parts.get("setting") ?? "",
      shown: parts.get("show") ?? "all",
      cell: parts.has("cell") ? { length, depth } : null,
    },
    sample: parts.get("sample"),
    card: parts.get("card"),
    at: parts.get("at") ?? "",
  };
}

const changesOf = new WeakMap(); // of links

/** Changes the view's address: a new entry of the history, or with `instead` in place of the last one. */
function go(changes, instead = false) {
  Object.assign(view, changes);
  const target = fragment(view);
  try {
    if (target !== location.hash) history[instead ? "replaceState" : "pushState"](null, "", target || "#");
  } catch {
    // in a frame that has no address of its own, views work but have no links
  }
  for (const link of document.querySelectorAll("a.view")) link.href = fragment({ ...view, ...changesOf.get(link) });
}

/** A link to the present view with `changes`; a plain click goes there by `act`, without loading anything. */
function viewLink(text, changes, act, attributes = {}) {
  const onclick = (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return; // a new tab or window
    event.preventDefault();
    act();
  };
  const kind = `view ${attributes.class ?? ""}`.trim();
  const link = h("a", { ...attributes, class: kind, href: fragment({ ...view, ...changes }), onclick }, text);
  changesOf.set(link, changes);
  return link;
}

/** A section whose title links to it. */
function section(id, title, ...children) {
  const jump = () => {
    go({ at: id });
    document.getElementById(id).scrollIntoView();
  };
  const heading = h("h2", { id: `${id}-title` }, viewLink(title, { at: id }, jump));
  return h("section", { id, "aria-labelledby": `${id}-title` }, heading, children);
}
