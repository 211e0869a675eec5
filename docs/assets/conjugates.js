// The interactive part of the page on conjugates: sliders in, label, objective and direction out.
"use strict";

(() => {
  const CLASSES = 4;
  const LIMIT = 6;
  const SHOWN = 3; // digits
  const STARTS = {
    "fairly sure": [2, 0.5, -1, 0],
    unsure: [0.3, 0.1, 0, -0.2],
    "very sure": [6, 0, -1, -2],
    "two alike": [3, 2.8, -2, -3],
  };
  const { losses, softmax, studied } = FENCHEL_LOSSES;
  const root = document.getElementById("conjugates");
  const state = { loss: "poly", option: 6, h: [...STARTS["fairly sure"]] };

  function made(tag, facts = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(facts)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  }
  const shown = (value) => (Object.is(Math.round(value * 1e3), -0) ? 0 : value).toFixed(SHOWN);
  const chosen = () => losses.find((each) => each.name === state.loss);

  function slider(name, low, high, step, value, moved) {
    const input = made("input", { type: "range", min: low, max: high, step, "aria-label": name });
    const output = made("output", {}, String(value));
    input.value = value;
    input.addEventListener("input", () => {
      output.textContent = input.value;
      moved(Number(input.value));
      draw();
    });
    return made("label", { class: "slider" }, made("span", {}, name), input, output);
  }

  function controls() {
    const select = made("select", { "aria-label": "Training loss" });
    for (const loss of losses) select.append(made("option", { value: loss.name }, loss.title));
    select.value = state.loss;
    select.addEventListener("change", () => {
      state.loss = select.value;
      state.option = chosen().option?.value;
      build();
    });
    const parts = [made("label", { class: "choice" }, made("span", {}, "Training loss"), select)];
    parts.push(made("p", { class: "formula" }, made("code", {}, chosen().formula)));
    const option = chosen().option;
    if (option)
      parts.push(
        slider(option.name, option.low, option.high, option.step, state.option, (value) => {
          state.option = value;
        }),
      );
    const scores = chosen().scores ?? CLASSES;
    for (let k = 0; k < scores; k += 1)
      parts.push(
        slider(scores === 1 ? "score h" : `logit of class ${k + 1}`, -LIMIT, LIMIT, 0.1, state.h[k], (value) => {
          state.h[k] = value;
        }),
      );
    const starts = made("p", { class: "starts" });
    for (const [name, h] of Object.entries(STARTS)) {
      const button = made("button", { type: "button" }, name);
      button.addEventListener("click", () => {
        state.h = [...h];
        build();
      });
      starts.append(button);
    }
    return made("form", { class: "controls" }, ...parts, starts);
  }

  // The cells of a column: bars from the left, or from the middle where some values are negative.
  function column(values, least, signed = values.some((value) => value < 0)) {
    const full = Math.max(least, ...values.map(Math.abs));
    return values.map((value) => cell(value, full, signed));
  }

  function cell(value, full, signed) {
    const share = (Math.abs(value) / full) * (signed ? 50 : 100);
    const side = value < 0 ? "right: 50%" : `left: ${signed ? 50 : 0}%`;
    const bar = made("span", { class: value < 0 ? "bar negative" : "bar", style: `width: ${share}%; ${side}` });
    return made("td", {}, made("span", { class: "lane", "aria-hidden": "true" }, bar), made("span", {}, shown(value)));
  }

  function table(title, id, found, probabilities) {
    const head = ["class", "softmax", "label", "downhill"].map((name) => made("th", { scope: "col" }, name));
    const columns = [
      probabilities ? column(probabilities, 1) : [made("td", {}, "–")],
      column(found.label, 1),
      column(found.gradient.map((slope) => -slope), 0.5, true),
    ];
    const rows = found.label.map((_, k) =>
      made("tr", {}, made("th", { scope: "row" }, String(k + 1)), ...columns.map((cells) => cells[k])),
    );
    return made(
      "table",
      { id },
      made("caption", {}, made("strong", {}, title), ` objective ${shown(found.objective)}`),
      made("thead", {}, made("tr", {}, ...head)),
      made("tbody", {}, ...rows),
    );
  }

  // Both objectives while the first logit goes from end to end, each scaled to its own range.
  function curve() {
    const [width, height, edge] = [Math.min(640, root.clientWidth), 190, 28];
    const places = Array.from({ length: 121 }, (_, k) => -LIMIT + (2 * LIMIT * k) / 120);
    const values = (name, option) =>
      places.map((x) => studied(name, [x, ...state.h.slice(1)], option).objective);
    const svg = (tag, facts, text = "") => {
      const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
      for (const [name, value] of Object.entries(facts)) element.setAttribute(name, value);
      element.textContent = text;
      return element;
    };
    const across = (x) => edge + ((x + LIMIT) / (2 * LIMIT)) * (width - 2 * edge);
    const picture = svg("svg", {
      viewBox: `0 0 ${width} ${height}`,
      role: "img",
      "aria-label": "Both objectives against the first logit, each in its own scale",
    });
    const lines = [
      ["entropy", values("cross-entropy")],
      ["chosen", values(state.loss, state.option)],
    ];
    for (const [kind, found] of lines) {
      const [low, high] = [Math.min(...found), Math.max(...found)];
      const up = (value) => height - edge - ((value - low) / (high - low || 1)) * (height - 2 * edge);
      const points = found.map((value, k) => `${across(places[k]).toFixed(1)},${up(value).toFixed(1)}`);
      picture.append(svg("polyline", { class: kind, points: points.join(" ") }));
    }
    const here = across(state.h[0]);
    picture.append(svg("line", { class: "here", x1: here, x2: here, y1: edge / 2, y2: height - edge }));
    for (const x of [-LIMIT, 0, LIMIT])
      picture.append(svg("text", { x: across(x), y: height - 8, "text-anchor": "middle" }, String(x)));
    return picture;
  }

  function draw() {
    const single = chosen().scores === 1;
    const own = table(chosen().title, "chosen", studied(state.loss, state.h, state.option), single ? null : softmax(state.h));
    const beside = table("Entropy (TENT)", "entropy", studied("cross-entropy", state.h), softmax(state.h));
    const key = made(
      "figcaption",
      {},
      made("span", { class: "key chosen" }, chosen().title),
      " and ",
      made("span", { class: "key entropy" }, "entropy"),
      " while the first logit moves; each line in its own scale, the upright line is where you are.",
    );
    root.querySelector(".results").replaceChildren(own, beside, made("figure", {}, curve(), key));
  }

  function build() {
    root.replaceChildren(controls(), made("div", { class: "results" }));
    draw();
  }

  build();
})();
