// The losses of the library as plain functions: for scores h, the conjugate label and the test-time objective.
// tests/site/test_conjugates.py compares every one of them with the library's own numbers.
"use strict";

const FENCHEL_LOSSES = (() => {
  const sum = (values) => values.reduce((total, value) => total + value, 0);
  const dot = (a, b) => sum(a.map((value, k) => value * b[k]));
  const softplus = (x) => Math.max(x, 0) + Math.log1p(Math.exp(-Math.abs(x)));
  const sigmoid = (x) => Math.exp(-softplus(-x));

  function logSoftmax(h) {
    const top = Math.max(...h);
    const total = Math.log(sum(h.map((value) => Math.exp(value - top)))) + top;
    return h.map((value) => value - total);
  }
  const softmax = (h) => logSoftmax(h).map(Math.exp);
  const normalised = (weights) => weights.map((value) => value / sum(weights));
  const entropy = (h) => -sum(logSoftmax(h).map((value) => value * Math.exp(value)));

  // A loss phi(z) of the true class's probability has the label -1/phi'(z), normalised.
  const trueClass = (phi, slope) => {
    const label = (h, option) => normalised(softmax(h).map((z) => -1 / slope(z, option)));
    const objective = (h, option) => dot(label(h, option), softmax(h).map((z) => phi(z, option)));
    return { label, objective };
  };

  function sparsemax(h) {
    const ordered = [...h].sort((a, b) => b - a);
    let total = 0;
    let threshold = 0;
    ordered.forEach((value, k) => {
      total += value;
      if ((k + 1) * value > total - 1) threshold = (total - 1) / (k + 1);
    });
    return h.map((value) => Math.max(value - threshold, 0));
  }

  function entmax15Root(h) {
    const x = h.map((value) => (value - Math.max(...h)) / 2);
    const ordered = [...x].sort((a, b) => b - a);
    let tau = 0;
    for (let size = 1; size <= x.length; size += 1) {
      const inside = ordered.slice(0, size);
      const mean = sum(inside) / size;
      const scatter = sum(inside.map((value) => (value - mean) ** 2));
      const candidate = mean - Math.sqrt(Math.max((1 - scatter) / size, 0));
      if (candidate <= ordered[size - 1]) tau = candidate;
    }
    return x.map((value) => Math.max(value - tau, 0));
  }

  const losses = [
    {
      name: "cross-entropy",
      title: "Cross-entropy",
      formula: "-log z_y",
      ...trueClass((z) => -Math.log(z), (z) => -1 / z),
    },
    {
      name: "label-smoothing",
      title: "Label smoothing",
      formula: "cross-entropy at (1 - s) y + s/C",
      option: { name: "smoothing", value: 0.1, low: 0, high: 0.5, step: 0.05 },
      label: (h, s) => softmax(h).map((z) => (z - s / h.length) / (1 - s)),
      objective: entropy,
    },
    {
      name: "poly",
      title: "PolyLoss",
      formula: "-log z_y + epsilon (1 - z_y)",
      option: { name: "epsilon", value: 6, low: 0, high: 10, step: 0.5 },
      ...trueClass((z, e) => -Math.log(z) + e * (1 - z), (z, e) => -1 / z - e),
    },
    {
      name: "focal",
      title: "Focal loss",
      formula: "-(1 - z_y)^gamma log z_y",
      option: { name: "gamma", value: 2, low: 0, high: 5, step: 0.5 },
      ...trueClass(
        (z, gamma) => -((1 - z) ** gamma) * Math.log(z),
        (z, gamma) =>
          -((1 - z) ** gamma) / z + (gamma === 0 ? 0 : gamma * (1 - z) ** (gamma - 1) * Math.log(z)),
      ),
    },
    {
      name: "generalized-cross-entropy",
      title: "Generalised cross-entropy",
      formula: "(1 - z_y^q) / q",
      option: { name: "q", value: 0.7, low: 0.1, high: 1, step: 0.1 },
      ...trueClass((z, q) => (1 - z ** q) / q, (z, q) => -(z ** (q - 1))),
    },
    {
      name: "squared",
      title: "Squared loss",
      formula: "½ ‖h - y‖²",
      label: (h) => [...h],
      objective: (h) => -dot(h, h) / 2,
    },
    {
      name: "binary-cross-entropy",
      title: "Binary cross-entropy",
      formula: "a sigmoid for every class",
      label: (h) => h.map(sigmoid),
      objective: (h) => sum(h.map((x) => sigmoid(x) * softplus(-x) + sigmoid(-x) * softplus(x))),
    },
    {
      name: "sparsemax",
      title: "Sparsemax",
      formula: "Fenchel-Young loss of ½ ‖p‖²",
      label: sparsemax,
      objective: (h) => -dot(sparsemax(h), sparsemax(h)) / 2,
    },
    {
      name: "entmax15",
      title: "1.5-entmax",
      formula: "Fenchel-Young loss of 4/3 Σ p^1.5",
      label: (h) => entmax15Root(h).map((root) => root ** 2),
      objective: (h) => (-4 / 3) * sum(entmax15Root(h).map((root) => root ** 3)),
    },
    {
      name: "exponential",
      title: "Exponential loss",
      formula: "exp(-y h), one score, labels -1 and +1",
      scores: 1,
      label: (h) => h.map(Math.tanh),
      objective: (h) => sum(h.map((x) => 1 / Math.cosh(x))),
    },
  ];

  // The gradient by central differences of fourth order: exact to ten digits at scores of this size.
  function gradient(objective, h, option) {
    const step = 1e-3;
    return h.map((_, k) => {
      const at = (shift) => objective(h.map((value, j) => (j === k ? value + shift : value)), option);
      return (8 * (at(step) - at(-step)) - (at(2 * step) - at(-2 * step))) / (12 * step);
    });
  }

  // Everything that the page shows of a loss at some scores.
  function studied(name, h, option) {
    const loss = losses.find((each) => each.name === name);
    const scores = h.slice(0, loss.scores ?? h.length);
    const value = option ?? loss.option?.value;
    return {
      label: loss.label(scores, value),
      objective: loss.objective(scores, value),
      gradient: gradient(loss.objective, scores, value),
    };
  }

  return { losses, softmax, studied };
})();
