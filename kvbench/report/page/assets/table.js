// A table that sorts by its headers, filters by words and shows a page of rows at a time.

/**
 * columns: {title, value(row), text(row)?, cell(row)?, number?, hint?}. `value` sorts, `text` (default: value) is
 * read and searched, `cell` is a node to show instead. options: label, filter, pageSize, empty.
 * Returns {node, shown()}: shown() is all that passes the filter, in order.
 */
function table(columns, rows, { label, filter = false, pageSize = 100, empty = "nothing to show" }) {
  let sorted = { column: null, down: false };
  let page = 0;
  let passing = rows;
  const text = (column, row) => (column.text ? column.text(row) : short(column.value(row)));
  const kind = (column) => (column.number ? "number" : null);

  const heads = columns.map((column) => {
    const sorter = button(column.title, () => sort(column), { title: column.hint });
    return h("th", { scope: "col", class: kind(column), "aria-sort": "none" }, sorter);
  });
  const body = h("tbody");
  const query = h("input", { type: "search", placeholder: "filter", "aria-label": `filter ${label}` });
  query.addEventListener("input", later(() => show(true)));
  const count = h("span", { class: "count", role: "status" });
  const back = button("‹ previous", () => turn(-1));
  const forth = button("next ›", () => turn(1));
  const whole = h("table", { "aria-label": label }, h("thead", {}, h("tr", {}, heads)), body);
  const scroll = h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `${label}, scrollable` }, whole);

  function sort(column) {
    sorted = { column, down: sorted.column === column ? !sorted.down : Boolean(column.number) };
    columns.forEach((other, i) => {
      heads[i].setAttribute("aria-sort", other !== column ? "none" : sorted.down ? "descending" : "ascending");
    });
    show(true);
  }

  function turn(step) {
    page += step;
    show(false);
    scroll.focus();
  }

  function line(row) {
    const cells = columns.map((column, i) => {
      const content = column.cell ? column.cell(row) : text(column, row);
      return h(i ? "td" : "th", { class: kind(column), scope: i ? null : "row" }, content);
    });
    return h("tr", { class: row.kind }, cells);
  }

  function show(fromStart) {
    if (fromStart) page = 0;
    const words = query.value.toLowerCase().split(/\s+/).filter(Boolean);
    passing = rows.filter((row) => {
      const all = words.length ? columns.map((column) => text(column, row)).join(" ").toLowerCase() : "";
      return words.every((word) => all.includes(word));
    });
    if (sorted.column) passing.sort(by(sorted.column.value, sorted.down));
    const start = page * pageSize;
    const some = passing.slice(start, start + pageSize);
    body.replaceChildren(...some.map(line));
    if (!some.length) body.append(h("tr", {}, h("td", { colspan: columns.length }, empty)));
    back.hidden = forth.hidden = passing.length <= pageSize;
    back.disabled = page === 0;
    forth.disabled = start + pageSize >= passing.length;
    const total = passing.length === rows.length ? "" : ` (of ${rows.length})`;
    const part = back.hidden ? "" : `${start + 1} – ${start + some.length} of `;
    count.textContent = `${part}${passing.length} row${passing.length === 1 ? "" : "s"}${total}`;
  }

  show(true);
  const name = `${label.replaceAll(/[^\w-]+/g, "-")}.csv`;
  const saver = button("CSV", () => save(csv(columns, passing), name, "text/csv"), {
    class: "save",
    title: `all rows that pass the filter, as ${name}`,
  });
  const pager = h("div", { class: "pager" }, filter ? query : null, count, saver, back, forth);
  return { node: h("div", { class: "table" }, pager, scroll), shown: () => passing };
}

/** Rows as comma-separated values with every digit, in the order shown; empty where there is no value. */
function csv(columns, rows) {
  const quoted = (value) => {
    const text = value == null ? "" : String(value);
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  const lines = rows.map((row) => columns.map((column) => column.value(row)));
  return [columns.map((column) => column.title), ...lines].map((line) => `${line.map(quoted).join(",")}\r\n`).join("");
}

/** Has the browser save a text as a file. */
function save(text, name, type) {
  const link = h("a", { href: URL.createObjectURL(new Blob([text], { type })), download: name });
  link.click();
  URL.revokeObjectURL(link.href);
}

/** Compares rows by a value: numbers as numbers, all else as text in natural order; rows without a value come last. */
function by(value, down) {
  const order = new Intl.Collator("en", { numeric: true }).compare;
  return (a, b) => {
    const [x, y] = [value(a), value(b)];
    if (x == null || y == null) return (x == null) - (y == null);
    const difference = typeof x === "number" && typeof y === "number" ? x - y : order(String(x), String(y));
    return down ? -difference : difference;
  };
}
