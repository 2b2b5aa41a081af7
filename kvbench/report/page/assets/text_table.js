// A table whose cells are text, as a run's own table has them.

const NUMBER = /^[+-]?\d+(\.\d+)?(?=$| )/; // alone, or before its interval

function textTable(label, { caption, header, rows, notes }, hidden) {
  const value = (text) => (text === "–" ? null : NUMBER.test(text) ? Number(NUMBER.exec(text)[0]) : text);
  const columns = header.map((title, i) => ({
    title,
    number: i > 0,
    value: ({ cells }) => (i ? value(cells[i]) : cells[i]),
    text: ({ cells }) => cells[i],
  }));
  const shown = rows.filter(({ method }) => !hidden.has(method));
  return [note(caption), table(columns, shown, { label, filter: true }).node, notes.map((text) => note(text))];
}
