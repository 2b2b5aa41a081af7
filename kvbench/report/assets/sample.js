// One sample opened: its prompt, the expected answers, and the output of every setting side by side.

const LEGEND =
  "Bars: the share of the prompt's tokens that each layer kept, layer 0 on the left. Strips: where in the prompt " +
  "they are, a row per layer, layer 0 on top; filled where all heads kept all tokens of a segment, blank where none did; " +
  "where heads keep different numbers of tokens, a second strip has a column per head, filled where it kept all. " +
  "▼ the needle's approximate place. Where the question is hidden, the prompt is the context alone.";

/** Opens sample `number`; `order` is the list it was opened from, which previous and next go through. */
function openSample(run, settings, metric, number, order) {
  const dialog = document.getElementById("sample");
  const place = order.indexOf(number);
  const other = (by) => order[place + by];
  const go = (by) => other(by) !== undefined && openSample(run, settings, metric, other(by), order);
  dialog.onkeydown = (event) => {
    if (event.key === "ArrowLeft") go(-1);
    if (event.key === "ArrowRight") go(1);
  };
  const { samples } = run;
  const title = h("h2", { id: "sample-title", tabindex: -1 }, samples.id[number]);
  const bar = h(
    "div",
    { class: "bar-top" },
    title,
    h("span", { class: "count" }, `${place + 1} of ${order.length}`),
    button("‹ previous", () => go(-1), { disabled: other(-1) === undefined }),
    button("next ›", () => go(1), { disabled: other(1) === undefined }),
    button("close", () => dialog.close()),
  );
  const facts = run.properties.map((name) =>
    h("div", {}, h("dt", {}, name), h("dd", {}, short(samples[`property ${name}`][number]))),
  );
  dialog.setAttribute("aria-labelledby", "sample-title");
  dialog.replaceChildren(
    bar,
    h("dl", { class: "facts" }, facts),
    ...prompt(samples, number),
    h("h3", {}, "Expected"),
    h("ul", { class: "answers" }, samples.answers[number].map((answer) => h("li", {}, h("pre", {}, answer)))),
    h("h3", {}, "Output of each setting"),
    note(LEGEND),
    h("div", { class: "cards" }, settings.map((setting) => card(run, setting, metric, number))),
  );
  if (!dialog.open) dialog.showModal();
  dialog.scrollTop = 0;
  title.focus();
}

/** The prompt's end with its question marked, and the beginning of the answer where the prompt gives one. */
function prompt(samples, number) {
  const [end, question, prefix] = [samples.end[number], samples.question[number], samples.prefix[number]];
  const characters = samples.characters[number];
  if (!end) return [note("The prompt is not in this run's folder: it was made before samples.jsonl was written.")];
  const marked = question && end.endsWith(question);
  const shown = marked ? [end.slice(0, end.length - question.length), h("mark", {}, question)] : [end];
  const cut = characters > end.length;
  const part = cut ? `, the last ${end.length} are shown` : "";
  return [
    h("h3", {}, "End of the prompt"),
    note(`${characters} characters${part}${marked ? "; the question is marked" : ""}`),
    h("pre", { class: "prompt", tabindex: 0 }, cut ? "… " : null, shown),
    ...(prefix ? [note("The answer begins with: ", h("q", {}, prefix))] : []),
  ];
}

/** One setting's output for a sample; null where there is no record. */
function card(run, setting, metric, number) {
  const record = run.recordOf(number, run.settings.indexOf(setting));
  if (record < 0) return null;
  const { records } = run;
  const [shares, positions, heads] = layersOf(run, record);
  const others = run.metrics.filter((name) => name !== metric && records.scores[name][record] != null);
  return h(
    "article",
    { class: "card" },
    h("h4", {}, setting.label, " ", scoreMark(metric, records.scores[metric][record])),
    h("pre", { class: "output" }, records.prediction[record] || "(empty)"),
    others.length ? note(others.map((name) => `${name} ${fixed(records.scores[name][record])}`).join(" · ")) : null,
    note(factors(records, record)),
    keptBars(shares),
    keptStrip(positions, run.heatmap && run.samples["property depth"]?.[number]),
    keptHeads(heads),
  );
}

/** The factors of r, and the size of the stored tokens where it is less than full. */
function factors(records, record) {
  const values = ["r1", "r2", "r3", "r", "r_bytes"].map((name) => `${name} ${fixed(records[name][record])}`).join(" · ");
  const size = records.r[record] / records.r1[record];
  return size < 0.999 ? `${values} — stored in ${percent(size)} of their size: coded, quantised or merged` : values;
}

/** A score with a sign, so that right and wrong do not depend on colour. */
function scoreMark(metric, score) {
  const kind = score == null ? "none" : score >= 1 ? "right" : score > 0 ? "part" : "wrong";
  const sign = { none: "", right: "✓ ", part: "~ ", wrong: "✗ " }[kind];
  return h("span", { class: `score ${kind}`, title: metric }, sign + fixed(score, 2));
}
