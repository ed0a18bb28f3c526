// What helps a reader of a page that can be read without it: sorts and filters tables, and tries thresholds. It loads nothing.
"use strict";
(() => {
  const make = (name, attributes, ...inside) => {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...inside);
    return made;
  };
  // a text that is a number as a whole, with its unit, error, interval or judgement; a date or a name that begins with one is none
  const units = { "%": 0.01, s: 1, min: 60, h: 3600, days: 86400, kB: 1e3, MB: 1e6, GB: 1e9, TB: 1e12 };
  const form = /^[<>±]?([-+]?\d*\.?\d+(?:e[-+]?\d+)?) ?(%|s|min|h|days|bytes?|[kMGT]B)?(?: ?±.*| to [-+\d].*| \(.* to .*\)|, [a-z ]+)?$/;
  const number = (text) => {
    const found = text.replace(/,(?=\d{3})/g, "").match(form);
    return found ? Number(found[1]) * (units[found[2]] ?? 1) : NaN;
  };
  const text = (row, column) => row.cells[column].textContent.trim();

  // rows by a column, empty cells last; numbers by their size
  const sort = (table, column, down) => {
    const body = table.tBodies[0], rows = [...body.rows];
    const numeric = rows.every((row) => text(row, column) === "" || !Number.isNaN(number(text(row, column))));
    const compare = (a, b) => {
      const [x, y] = [text(a, column), text(b, column)];
      if (x === "" || y === "") return (x === "") - (y === "");
      const order = numeric ? number(x) - number(y) : x.localeCompare(y, undefined, { numeric: true });
      return down ? -order : order;
    };
    body.append(...rows.sort(compare));
  };

  const sortable = (table) => {
    const heads = [...table.tHead.rows[0].cells];
    heads.forEach((head, column) => {
      if (!table.tBodies[0].rows.length || [...table.tBodies[0].rows].every((row) => text(row, column) === "")) return;
      const button = make("button", { type: "button", class: "sort" }, ...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        // numbers begin with the largest
        const first = head.classList.contains("number") ? "descending" : "ascending";
        const was = head.getAttribute("aria-sort");
        const now = was ? (was === "ascending" ? "descending" : "ascending") : first;
        heads.forEach((each) => each.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", now);
        sort(table, column, now === "descending");
      });
    });
  };

  const filterable = (box, table) => {
    const rows = [...table.tBodies[0].rows], said = make("span", { role: "status" });
    const input = make("input", { type: "search", placeholder: "filter rows", "aria-label": `Filter: ${box.getAttribute("aria-label")}` });
    const words = rows.map((row) => row.textContent.toLowerCase());
    input.addEventListener("input", () => {
      const wanted = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      let left = 0;
      rows.forEach((row, place) => {
        row.hidden = !wanted.every((word) => words[place].includes(word));
        left += !row.hidden;
      });
      said.textContent = wanted.length ? `${left} of ${rows.length} rows` : "";
    });
    box.before(make("p", { class: "tool" }, input, said));
  };

  // the rows of a table of thresholds under a slider, with costs of the reader's own
  const explorable = (box, table) => {
    const points = [...table.tBodies[0].rows].map((row) => ({ row, told: [...row.cells].map((cell) => cell.textContent.trim()) }));
    const names = [...table.tHead.rows[0].cells].map((cell) => cell.textContent.trim()).filter((name) => name !== "cost");
    const wrong = box.dataset.wrong.split(" ").map(Number);
    points.forEach((point, place) => { point.wrong = wrong.slice(2 * place, 2 * place + 2); });
    const given = box.dataset.thresholds.split(" ").map(Number), start = given.pop();
    const costs = given.map((value, place) =>
      make("input", { type: "number", min: 0, step: "any", value, "aria-label": `cost of ${["a false positive", "a false negative"][place]}` }));
    const slider = make("input", { type: "range", min: 0, max: points.length - 1, value: start, "aria-label": "threshold" });
    const said = make("output", {}), best = make("button", { type: "button" }, "least cost");
    const costOf = (point) => point.wrong.reduce((sum, count, place) => sum + count * (Number(costs[place].value) || 0), 0);
    const least = () => points.reduce((at, point, place) => (costOf(point) < costOf(points[at]) ? place : at), 0);
    const show = () => {
      const point = points[slider.value];
      const facts = names.map((name, place) => `${name} ${point.told[place]}`);
      const cost = costOf(point), low = points[least()];
      said.textContent = `${facts.join(", ")}; cost ${Number(cost.toPrecision(6))}, of the points shown at least ${Number(costOf(low).toPrecision(6))} at ${low.told[0]}`;
      slider.setAttribute("aria-valuetext", `${names[0]} ${point.told[0]}`);
      points.forEach((each) => each.row.classList.toggle("chosen", each === point));
    };
    best.addEventListener("click", () => { slider.value = least(); show(); });
    [slider, ...costs].forEach((input) => input.addEventListener("input", show));
    const tool = make("div", { class: "tool explorer" },
      make("label", {}, "threshold ", slider),
      make("label", {}, "cost of a false positive ", costs[0]),
      make("label", {}, "of a false negative ", costs[1]), best, said);
    const fold = box.closest("details"), name = fold.querySelector("summary");
    fold.before(make("h3", {}, name.textContent), tool);
    name.textContent = "All of the points";
    show();
  };

  // a link into a closed fold opens it
  const reveal = () => {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const fold = target && target.closest("details");
    if (fold && !fold.open) {
      fold.open = true;
      target.scrollIntoView();
    }
  };

  for (const box of document.querySelectorAll("section .scroll")) {
    const table = box.querySelector("table");
    if (!table || !table.tHead || !table.tBodies.length) continue;
    if (table.tBodies[0].rows.length > 2) sortable(table);
    if (box.dataset.thresholds) explorable(box, table);
    else if (table.tBodies[0].rows.length > 12) filterable(box, table);
  }
  for (const drawn of document.querySelectorAll("svg.panel[aria-label]")) {
    const title = document.createElementNS("http://www.w3.org/2000/svg", "title");
    title.textContent = drawn.getAttribute("aria-label");
    drawn.prepend(title);
  }
  addEventListener("hashchange", reveal);
  reveal();
})();
