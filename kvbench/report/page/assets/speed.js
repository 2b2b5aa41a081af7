// The table of every speed run on the page: prefill, compression, decoding, bytes and the largest batch.

/** Every speed run, those of this model first. */
function speedRuns(model) {
  const ours = (speed) => speed.model === model;
  const all = data("speeds");
  return [...all.filter(ours), ...all.filter((speed) => !ours(speed))];
}

/**
 * Decoded tokens a second of each setting, measured with a model: for every machine, prompt length, number of new tokens
 * and batch {key, text, brief, of}, where `of` has a number by label.
 */
function measuredSpeeds(model) {
  const found = new Map();
  const tables = data("speeds").filter((speed) => speed.model === model).flatMap((speed) => speed.tables);
  for (const { header, rows, machine } of tables) {
    for (const { cells } of rows) {
      const [prompt, fresh, batch, rate] = ["prompt", "new", "batch", "tokens/s"].map((name) => cells[header.indexOf(name)]);
      const key = `tokens/s ${prompt} ${fresh} ${batch} ${machine}`;
      const brief = `tokens/s, prompt of ${prompt}, batch of ${batch}`;
      const text = `${brief} (${fresh} new tokens; ${machine})`;
      if (!found.has(key)) found.set(key, { key, text, brief, of: new Map() });
      if (Number.isFinite(Number(rate))) found.get(key).of.set(cells[0], Number(rate));
    }
  }
  return [...found.values()];
}

function speedSection(speeds, hidden) {
  const made = speeds.map(({ name, tables }) => [
    h("h3", {}, name),
    tables.map((one) => textTable(`speed ${name}`, one, hidden)),
  ]);
  return section("speed", "Speed and memory", made);
}
