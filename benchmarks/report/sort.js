"use strict";
// Tables whose rows are put in order by a click on the head of a column; empty cells stay last.
(() => {
  const compare = (a, b) => {
    const [x, y] = [Number(a), Number(b)];
    return Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b) : x - y;
  };

  const sort = (table, place) => {
    const heads = [...table.tHead.rows[0].cells];
    const head = heads[place];
    const rows = [...table.tBodies[0].rows];
    const key = (row) => row.cells[place].dataset.value;
    const filled = rows.filter((row) => key(row) !== "");
    const isText = filled.some((row) => Number.isNaN(Number(key(row))));
    // Numbers are read from the best down, names from A on; a second click turns the order.
    const first = isText ? "ascending" : "descending";
    const other = isText ? "descending" : "ascending";
    const order = head.getAttribute("aria-sort") === first ? other : first;
    const sign = order === "ascending" ? 1 : -1;
    filled.sort((a, b) => sign * compare(key(a), key(b)));
    heads.forEach((one) => one.setAttribute("aria-sort", one === head ? order : "none"));
    table.tBodies[0].append(...filled, ...rows.filter((row) => key(row) === ""));
  };

  document.querySelectorAll("table.sortable").forEach((table) => {
    [...table.tHead.rows[0].cells].forEach((head, place) => {
      head.querySelector("button").addEventListener("click", () => sort(table, place));
    });
  });
})();
