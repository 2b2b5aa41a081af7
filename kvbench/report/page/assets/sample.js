// One sample opened: its prompt, the expected answers, and the output of every setting side by side.

const LEGEND =
  "Bars: the share of the prompt's tokens that each layer kept, layer 0 on the left. Strip: where in the prompt these " +
  "tokens are, a row per layer with layer 0 on top, filled where all heads kept all tokens of a segment and blank where " +
  "none did. Where heads keep different numbers of tokens, a second strip has a column per head, filled where it kept " +
  "all. ▼ marks the needle's approximate place. With a hidden question, the prompt is the context alone.";

/**
 * Opens sample `number` of shown.run; `order` is the list it was opened from, which previous and next go through with
 * `open(number, card, instead)`. Outputs of shown.other, a run beside, stand below those of the same setting.
 */
function openSample(shown, number, order, open) {
  const { run, settings, metric } = shown;
  const dialog = document.getElementById("sample");
  const place = order.indexOf(number);
  const other = (by) => order[place + by];
  const turn = (by) => other(by) !== undefined && open(other(by), null, true);
  dialog.onkeydown = (event) => {
    if (event.key === "ArrowLeft") turn(-1);
    if (event.key === "ArrowRight") turn(1);
  };
  const { samples } = run;
  const id = samples.id[number];
  const title = h("h2", { id: "sample-title", tabindex: -1 }, id);
  const bar = h(
    "div",
    { class: "bar-top" },
    title,
    h("span", { class: "count" }, `${place + 1} of ${order.length}`),
    viewLink("link", { sample: id, card: null }, () => open(number), { title: "the address of this sample" }),
    button("‹ previous", () => turn(-1), { disabled: other(-1) === undefined }),
    button("next ›", () => turn(1), { disabled: other(1) === undefined }),
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
    ...evidence(samples, number),
    h("h3", {}, "Output of each setting"),
    note(LEGEND),
    h("div", { class: "cards" }, settings.map((setting) => card(shown, setting, number, open))),
  );
  if (!dialog.open) dialog.showModal();
  dialog.scrollTop = 0;
  title.focus();
  dialog.querySelector(".card.chosen")?.scrollIntoView({ block: "center" });
}

/** The prompt's end with its question marked, and the beginning of the answer where the prompt gives one. */
function prompt(samples, number) {
  const [end, question, prefix] = [samples.end[number], samples.question[number], samples.prefix[number]];
  const characters = samples.characters[number];
  if (!end) return [note("This run's folder does not have the prompt: an earlier version of kvbench made it.")];
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

/** The passages of the prompt that have an expected answer, with the answer marked. */
function evidence(samples, number) {
  const passages = samples.evidence[number];
  if (!passages.length) return [];
  const nodes = passages.map(({ at, text }) => {
    const place = percent(at / samples.characters[number]);
    const ends = [at > 0 ? "… " : null, at + text.length < samples.characters[number] ? " …" : null];
    return [note(`${place} into the prompt`), h("pre", { class: "evidence" }, ends[0], marked(text, samples.answers[number]), ends[1])];
  });
  return [h("h3", {}, "Where the answer stands in the prompt"), ...nodes.flat()];
}

/** A text with every answer in it marked, in upper or lower case. */
function marked(text, answers) {
  const sought = answers.map((answer) => answer.trim()).filter((answer) => answer.length > 2);
  const escaped = sought.map((answer) => answer.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  if (!escaped.length) return [text];
  // split at a group: every second part is an answer
  return text.split(new RegExp(`(${escaped.join("|")})`, "i")).map((part, i) => (i % 2 ? h("mark", {}, part) : part));
}

/** One setting's output for a sample, and that of the run beside; null where neither has a record. */
function card({ run, other, others, metric }, setting, number, open) {
  const beside = others.find(({ label }) => label === setting.label);
  const otherNumber = beside && other.numberOf.get(run.samples.id[number]);
  const parts = [
    outcome(run, run.recordOf(number, run.settings.indexOf(setting)), metric, number, other && run.title),
    otherNumber === undefined ? null : outcome(other, other.recordOf(otherNumber, other.settings.indexOf(beside)), metric, otherNumber, other.title),
  ].filter(Boolean);
  if (!parts.length) return null;
  const chosen = view.card === setting.label;
  const name = viewLink(setting.label, { card: setting.label }, () => open(number, setting.label));
  const whole = h("article", { class: chosen ? "card chosen" : "card" });
  const picture = pictureButton(whole, `${run.samples.id[number]}-${setting.label}`);
  whole.append(h("h4", {}, name, " ", picture), ...parts);
  return whole;
}

/** The output of a record with its scores and what its layers kept; null for record -1. `runTitle` is given where the page shows two runs. */
function outcome(run, record, metric, number, runTitle) {
  if (record < 0) return null;
  const { records } = run;
  const [shares, positions, heads] = layersOf(run, record);
  const others = run.metrics.filter((name) => name !== metric && records.scores[name][record] != null);
  return h(
    "div",
    { class: "outcome" },
    h("p", { class: "run" }, runTitle, " ", scoreMark(run, metric, records.scores[metric]?.[record])),
    h("pre", { class: "output" }, records.prediction[record] || "(empty)"),
    others.length ? note(others.map((name) => `${name} ${scoreText(name, records.scores[name][record])}`).join(" · ")) : null,
    ...(shares.length
      ? [
          note(factors(run, record)),
          rounding(records, record),
          keptBars(shares),
          keptStrip(positions, run.heatmap && run.samples["property depth"]?.[number]),
          keptHeads(heads),
        ]
      : [note("Another engine answered: it does not say which tokens its cache keeps.")]),
  );
}

/** The factors of r, and the size of the stored tokens where it is less than full. */
function factors({ records, bytes }, record) {
  const named = [...["r1", "r2", "r3", "r"].map((name) => [name, name]), [bytes, "r_bytes"]];
  const values = named.map(([name, column]) => `${name} ${fixed(records[column][record])}`).join(" · ");
  const size = records.r[record] / records.r1[record];
  return size < 0.999 ? `${values} — stored in ${percent(size)} of their size: coded, quantised or merged` : values;
}

/** Where another machine's rounding could give another answer; null for nowhere, and for records that do not say. */
function rounding(records, record) {
  const [token, cuts] = [records.close_call[record], records.close_cuts[record]];
  const effects = [
    ...(cuts ? [`keep another token in ${cuts} of its heads`] : []),
    ...(token == null ? [] : [`choose another token ${token + 1} of the answer`]),
  ];
  return effects.length ? note(`Rounding on another machine could ${effects.join(", and ")}.`) : null;
}

/** A score with a sign, so that right and wrong do not depend on colour; a distance is neither, and has none. */
function scoreMark({ distances }, metric, score) {
  if (distances.includes(metric)) return h("span", { class: "score", title: metric }, scoreText(metric, score));
  const kind = score == null ? "none" : score >= 1 ? "right" : score > 0 ? "part" : "wrong";
  const sign = { none: "", right: "✓ ", part: "~ ", wrong: "✗ " }[kind];
  return h("span", { class: `score ${kind}`, title: metric }, sign + fixed(score, 2));
}
