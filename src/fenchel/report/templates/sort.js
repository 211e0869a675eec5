// Click on a heading: rows in its order, again: in the opposite one.
for (const table of document.querySelectorAll("table.sortable")) {
  const headings = table.tHead.rows[0].cells;
  Array.from(headings).forEach((heading, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...heading.childNodes);
    heading.append(button);
    button.addEventListener("click", () => {
      const rising = heading.getAttribute("aria-sort") !== "ascending";
      for (const other of headings) other.removeAttribute("aria-sort");
      heading.setAttribute("aria-sort", rising ? "ascending" : "descending");
      const body = table.tBodies[0];
      const rows = Array.from(body.rows).map((row) => {
        const cell = row.cells[column];
        return { row, value: parseFloat(cell.dataset.value), text: cell.textContent };
      });
      const numbers = rows.some(({ value }) => !Number.isNaN(value));
      rows.sort((a, b) => {
        if (!numbers) return (rising ? 1 : -1) * a.text.localeCompare(b.text);
        const missing = Number.isNaN(a.value) - Number.isNaN(b.value);
        return missing || (rising ? 1 : -1) * (a.value - b.value);
      });
      body.append(...rows.map(({ row }) => row));
    });
  });
}
