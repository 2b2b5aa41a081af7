// The table of every speed run on the page: prefill, compression, decoding, bytes and the largest batch.

/** Every speed run, the runs of this model first. */
function speedRuns(model) {
  const ofModel = (speed) => speed.model === model;
  const all = data("speeds");
  return [...all.filter(ofModel), ...all.filter((speed) => !ofModel(speed))];
}

/**
 * Decoded tokens a second of each setting, measured with a model: for every machine, prompt length, number of new tokens,
 * batch and engine other than eager {key, text, brief, figures}, where `figures` has a number by label. The largest batch is one batch,
 * of however many sequences it is under a setting.
 */
function measuredSpeeds(model) {
  const axes = new Map();
  const tables = data("speeds").filter((speed) => speed.model === model).flatMap((speed) => speed.tables);
  for (const { header, rows, machine } of tables) {
    for (const { cells } of rows) {
      const names = ["prompt", "new", "batch", "tokens/s", "engine"];
      const [prompt, fresh, sequences, rate, engine = "eager"] = names.map((name) => cells[header.indexOf(name)]);
      const [batch] = sequences.split(",");
      const key = `tokens/s ${prompt} ${fresh} ${batch} ${engine} ${machine}`;
      const many = Number(batch) ? `batch of ${batch}` : `${batch} batch`;
      const brief = `tokens/s, prompt of ${prompt}, ${many}${engine === "eager" ? "" : `, ${engine}`}`;
      const text = `${brief} (${fresh} new tokens; ${machine})`;
      if (!axes.has(key)) axes.set(key, { key, text, brief, figures: new Map() });
      if (Number.isFinite(Number(rate))) axes.get(key).figures.set(cells[0], Number(rate));
    }
  }
  return [...axes.values()];
}

function speedSection(speeds, hidden) {
  const parts = speeds.map(({ name, tables }) => [
    h("h3", {}, name),
    tables.map((shown) => textTable(`speed ${name}`, shown, hidden)),
  ]);
  return section("speed", "Speed and memory", parts);
}
