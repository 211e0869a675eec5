"use strict";
// The streams of a service and their health over time. All text goes through textContent: names are not markup.
(() => {
  const SECONDS = 2;
  const SIGNALS = [
    ["confidence", "confidence", 0, 1],
    ["entropy", "entropy, nats", 0, null],
    ["classes", "classes in use", 0, null],
    ["agreement", "agreement with the source", 0, 1],
  ];
  const HEIGHTS = { healthy: 6, suspect: 4, collapsed: 2 };
  const find = (selector) => document.querySelector(selector);
  let token = sessionStorage.getItem("token") || "";
  let chosen = "";

  function made(tag, attributes, ...children) {
    const space = ["svg", "path", "rect", "title"].includes(tag) ? "http://www.w3.org/2000/svg" : "http://www.w3.org/1999/xhtml";
    const element = document.createElementNS(space, tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  }

  const topOf = (course, signal, high) => high ?? Math.max(1e-9, ...course.map((point) => point[signal] ?? 0));

  // One line over the points that have a value, and below it one bar per point, as high as its verdict is good.
  function drawn(course, signal, low, high, label) {
    const svg = made("svg", { viewBox: "0 0 100 40", preserveAspectRatio: "none", role: "img", "aria-label": label });
    const known = course.filter((point) => point[signal] !== null);
    const top = topOf(course, signal, high);
    const step = 100 / Math.max(1, course.length - 1);
    const at = (point) => [course.indexOf(point) * step, 1 + 30 * (1 - (point[signal] - low) / (top - low))];
    const path = known.map((point, place) => (place ? "L" : "M") + at(point).map((x) => x.toFixed(2)).join(" ")).join("");
    if (known.length > 1) svg.append(made("path", { class: "line", d: path }));
    const width = 100 / Math.max(1, course.length);
    course.forEach((point, place) => {
      const height = HEIGHTS[point.verdict] || 0;
      svg.append(made("rect", {
        class: point.verdict, x: (place * width).toFixed(2), y: 40 - height, width: (0.8 * width).toFixed(2), height,
      }));
    });
    return svg;
  }

  function row(stream) {
    const name = made("button", { type: "button" }, stream.stream);
    name.addEventListener("click", () => { chosen = stream.stream; refresh(); });
    const course = stream.course || [];
    const last = course.length ? course[course.length - 1].confidence : null;
    const spark = drawn(course, "confidence", 0, 1, "confidence over time, now " + (last === null ? "unknown" : last.toFixed(2)));
    spark.setAttribute("class", "spark");
    const numbers = ["batches", "samples", "updates", "resets"].map((key) => made("td", {}, stream[key].toLocaleString("en")));
    return made("tr", {},
      made("td", { class: "name" }, name),
      made("td", { class: "name" }, made("span", { class: "verdict " + stream.verdict }, stream.verdict)),
      made("td", { class: "name" }, spark), ...numbers);
  }

  function show(streams) {
    const stream = streams.find((each) => each.stream === chosen);
    find("#course").hidden = !stream;
    if (!stream) return;
    find("#course h2").textContent = stream.stream;
    find("#course .reason").textContent = stream.verdict + ": " + stream.reason;
    const charts = SIGNALS.map(([signal, label, low, high]) => {
      const known = stream.course.filter((point) => point[signal] !== null);
      const now = known.length ? known[known.length - 1][signal].toFixed(2) : "unknown";
      const first = stream.course.length ? stream.course[0].batch : 0;
      const final = stream.course.length ? stream.course[stream.course.length - 1].batch : 0;
      return made("figure", { class: "chart" },
        made("figcaption", {}, made("b", {}, label), made("span", {}, "now " + now)),
        drawn(stream.course, signal, low, high, label + ", now " + now),
        made("figcaption", { class: "soft" }, made("span", {}, "batch " + first),
          made("span", {}, `${low} to ${topOf(stream.course, signal, high).toFixed(2)}`), made("span", {}, "batch " + final)));
    });
    find("#course .charts").replaceChildren(...charts);
  }

  async function refresh() {
    const headers = token ? { Authorization: "Bearer " + token } : {};
    let answer;
    try {
      answer = await fetch("/v1/streams?limit=100", { headers, cache: "no-store" });
    } catch {
      find("#said").textContent = "The service does not answer. Asking again …";
      return;
    }
    find("#token").hidden = answer.status !== 401;
    if (!answer.ok) {
      find("#said").textContent = answer.status === 401 ? "" : "The service says: " + answer.status;
      return;
    }
    const told = await answer.json();
    const up = told.replicas.filter(Boolean).length;
    find("#said").textContent = `${told.known} streams, ${up} of ${told.replicas.length} replicas answer. Every ${SECONDS} seconds this is asked anew.`;
    find("#empty").hidden = told.streams.length > 0;
    const focused = document.activeElement.closest?.("#streams button")?.textContent;
    find("#streams tbody").replaceChildren(...told.streams.map(row));
    [...document.querySelectorAll("#streams button")].find((each) => each.textContent === focused)?.focus();
    show(told.streams);
  }

  find("#token").addEventListener("submit", (event) => {
    event.preventDefault();
    token = find("#secret").value;
    sessionStorage.setItem("token", token);
    refresh();
  });
  refresh();
  setInterval(refresh, 1000 * SECONDS);
})();
