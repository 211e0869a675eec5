// What is wrong with a page as it is shown now: a sentence for each fault.
() => {
  const faults = [];
  const told = (element) => `${element.tagName} "${(element.textContent || "").trim().slice(0, 50)}"`;
  const shown = (element) => element.checkVisibility() && element.getBoundingClientRect().width > 0;
  const content = document.querySelector("article") ?? document.body;

  const width = document.documentElement.clientWidth;
  const page = document.documentElement.scrollWidth;
  if (page > width) faults.push(`the page is ${page} wide in a window of ${width}`);

  const headings = [...content.querySelectorAll("h1, h2, h3, h4, h5, h6")].filter(shown);
  const levels = headings.map((heading) => Number(heading.tagName[1]));
  if (levels.filter((level) => level === 1).length !== 1) faults.push(`${levels.filter((l) => l === 1).length} h1`);
  levels.forEach((level, k) => {
    if (k > 0 && level > levels[k - 1] + 1) faults.push(`h${levels[k - 1]} is followed by ${told(headings[k])}`);
  });

  for (const image of document.querySelectorAll("img")) {
    if (!(image.getAttribute("alt") ?? "").trim()) faults.push(`no alt text: ${image.src}`);
    if (!image.complete || image.naturalWidth === 0) faults.push(`not loaded: ${image.src}`);
  }
  for (const field of content.querySelectorAll("input, select"))
    if (shown(field) && !field.labels?.length && !field.getAttribute("aria-label")) faults.push(`no label: ${told(field)}`);

  const numbers = (color) => (color.match(/[\d.]+/g) ?? []).map(Number);
  const over = (front, back) => {
    const alpha = front[3] ?? 1;
    return [0, 1, 2].map((k) => front[k] * alpha + back[k] * (1 - alpha));
  };
  const behind = (element) => {
    const layers = [];
    for (let at = element; at; at = at.parentElement) layers.push(numbers(getComputedStyle(at).backgroundColor));
    return layers.reverse().reduce((back, layer) => over(layer, back), [255, 255, 255]);
  };
  const luminance = (color) =>
    [0.2126, 0.7152, 0.0722].reduce((total, weight, k) => {
      const value = color[k] / 255;
      return total + weight * (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4);
    }, 0);

  const seen = new Map();
  for (const element of document.querySelectorAll("article *, header *, nav *, footer *")) {
    if (element.closest("svg") || !shown(element)) continue;
    if (![...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim())) continue;
    const style = getComputedStyle(element);
    if (Number(style.opacity) === 0 || style.visibility === "hidden") continue;
    if (element.matches(".headerlink")) continue; // shown while the mouse is over its heading
    const back = behind(element);
    const color = over(numbers(style.color), back);
    const key = `${color} ${back} ${style.fontSize} ${style.fontWeight}`;
    if (seen.has(key)) continue;
    const [light, dark] = [luminance(color), luminance(back)].sort((a, b) => b - a);
    const ratio = (light + 0.05) / (dark + 0.05);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.6 && Number(style.fontWeight) >= 700);
    seen.set(key, ratio);
    if (ratio < (large ? 3 : 4.5)) faults.push(`contrast ${ratio.toFixed(2)}: ${told(element)} ${style.color} on ${back.map(Math.round)}`);
  }
  return faults;
}
