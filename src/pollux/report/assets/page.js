/* One cluster is picked, or none; everything on the page follows. */

const data = JSON.parse(document.getElementById("data").textContent);
const root = document.documentElement;
const every = (selector, within = document) => [...within.querySelectorAll(selector)];
root.classList.add("scripted");

const samples = data.samples;
const rows = new Uint32Array(bytesOf(samples.row));
const labels = new Uint16Array(bytesOf(samples.label));
const following = new Uint16Array(bytesOf(samples.next));
const sureness = new Uint16Array(bytesOf(samples.p));
const nextSureness = new Uint16Array(bytesOf(samples.nextP));
const entropies = new Uint16Array(bytesOf(samples.entropy));
const classCodes = samples.class ? new Uint16Array(bytesOf(samples.class)) : null;
const which = samples.which ? new Uint8Array(bytesOf(samples.which)) : null;
const values = samples.values ? new Float32Array(bytesOf(samples.values)) : null;
const classes = data.classes.length ? data.classes[0] : null;
const canvas = document.querySelector("#map canvas");
const tip = document.getElementById("tip");
const said = document.getElementById("said");
/* The clusters that are picked: one, or those below a node of their tree. */
let picked = [];

const percent = (share) => {
  const shown = 100 * share;
  if (shown === 0 || shown === 100) return `${shown}%`;
  if (shown < 0.05) return "<0.1%";
  if (shown > 99.95) return ">99.9%";
  return `${shown.toFixed(1)}%`;
};
const written = (value) => {
  if (!Number.isFinite(value)) return "missing";
  const size = Math.abs(value);
  const text = size && (size < 1e-4 || size >= 1e9)
    ? value.toExponential(3)
    : value.toLocaleString("en-GB", { maximumSignificantDigits: size >= 1e5 ? 7 : 5 });
  return text.replace("-", "−");
};
/* Dates are in years, and years have no comma. */
const writtenAs = (value, form) => {
  if (!Number.isFinite(value) || !form) return written(value);
  if (form === "date") return new Date((value - 1970) * 365.2425 * 864e5).toISOString().slice(0, 10);
  return Math.abs(value) >= 1000 && Math.abs(value) < 3000 ? value.toFixed(0) : written(value);
};
const element = (name, text, kind) => {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (kind) made.className = kind;
  return made;
};
const chip = (cluster) => {
  const made = element("i", undefined, "chip");
  made.style.setProperty("--c", `var(--k${cluster})`);
  return made;
};
const nameOf = (sample) => (samples.names ? samples.names[sample] : `Sample ${rows[sample]}`);

/* What is known of a sample: pairs of a name and a value. */
const factsOf = (sample) => {
  const cluster = labels[sample];
  const facts = [[`Cluster ${cluster}`, percent(sureness[sample] / 65535), cluster]];
  if (nextSureness[sample] && following[sample] !== cluster) {
    facts.push([`Next, ${following[sample]}`, percent(nextSureness[sample] / 65535)]);
  }
  facts.push(["Entropy", written(Number((entropies[sample] / 65535 * data.highest).toPrecision(3)))]);
  /* The code of a class that is not known has no name. */
  if (classCodes && classCodes[sample] < classes.names.length) facts.push(["Class", classes.names[classCodes[sample]]]);
  for (let at = 0; values && at < samples.width; at++) {
    const place = sample * samples.width + at;
    const feature = samples.columns[cluster][which ? which[place] : at];
    if (feature === undefined) continue;
    /* A share that the sample has is told as its column and its value. */
    const [name, share] = samples.features[feature];
    facts.push([name, share === undefined ? writtenAs(values[place], samples.forms[feature]) : share]);
  }
  return facts;
};

const showTip = (sample, place) => {
  tip.hidden = sample < 0;
  if (sample < 0) return;
  tip.replaceChildren();
  const pictured = Boolean(data.thumbs) && sample < data.thumbs[0];
  tip.classList.toggle("pictured", pictured);
  if (pictured) {
    const [, across, down] = data.thumbs;
    const thumb = element("i", undefined, "thumb");
    const share = (at, most) => (most > 1 ? 100 * at / (most - 1) : 0);
    thumb.style.backgroundPosition = `${share(sample % across, across)}% ${share(Math.floor(sample / across), down)}%`;
    tip.append(thumb);
  }
  const title = element("b");
  title.append(element("bdi", nameOf(sample)));
  const list = element("dl");
  for (const [name, value, cluster] of factsOf(sample)) {
    const term = element("dt");
    if (cluster !== undefined) term.append(chip(cluster));
    term.append(element("bdi", name));
    const told = element("dd");
    told.append(element("bdi", value));
    list.append(term, told);
  }
  tip.append(title, list);
  tip.dataset.row = rows[sample];
  const box = tip.getBoundingClientRect();
  const left = place[0] + 16 + box.width > map.size.width - 4 ? place[0] - 16 - box.width : place[0] + 16;
  const top = Math.max(4, Math.min(map.size.height - box.height - 4, place[1] - box.height / 2));
  tip.style.transform = `translate(${Math.round(Math.max(4, Math.min(map.size.width - box.width - 4, left)))}px, ${Math.round(top)}px)`;
  if (document.activeElement === canvas) {
    said.textContent = `${nameOf(sample)}: ${factsOf(sample).map(([name, value]) => `${name} ${value}`).join(", ")}`;
  }
};

const pick = (...clusters) => {
  picked = String(clusters) === String(picked) ? [] : clusters;
  root.classList.toggle("has-pick", picked.length > 0);
  every("[data-pick]").forEach((button) => button.setAttribute("aria-pressed", String(button.dataset.pick === picked.join(" "))));
  every("[data-cluster]").forEach((part) => part.classList.toggle("on", picked.includes(+part.dataset.cluster)));
  every("[data-of]").forEach((part) => part.classList.toggle("on", picked.includes(+part.dataset.of)));
  document.getElementById("picked").hidden = !picked.length;
  if (picked.length) {
    const called = `Cluster${picked.length > 1 ? "s" : ""} ${picked.join(", ")}`;
    const size = picked.reduce((sum, cluster) => sum + data.sizes[cluster], 0);
    document.getElementById("picked-name").replaceChildren(...picked.map(chip), called);
    said.textContent = `${called} picked: ${size.toLocaleString("en-GB")} samples.`;
  } else {
    said.textContent = "All clusters are shown.";
  }
  listMembers();
};

/* Members: those whose name holds what is searched for, of the picked cluster, in the order of the data. */
const MOST_LISTED = 200;
const inOrder = [...rows.keys()].sort((a, b) => rows[a] - rows[b]);
const searches = every("input[type=search]");
const called = (cluster) => data.names[cluster] || "";
const findMembers = () => {
  const wanted = searches[0].value.trim().toLowerCase();
  return inOrder.filter((sample) => (!picked.length || picked.includes(labels[sample]))
    && (!wanted || nameOf(sample).toLowerCase().includes(wanted) || String(rows[sample]) === wanted
      || called(labels[sample]).toLowerCase().includes(wanted)));
};
const listMembers = () => {
  const found = findMembers();
  const all = found.length === samples.n;
  const marked = all ? null : new Uint8Array(samples.n);
  if (!all) for (const sample of found) marked[sample] = 1;
  map.mark(marked, picked);
  const body = document.getElementById("listed");
  body.replaceChildren(...found.slice(0, MOST_LISTED).map((sample) => {
    const row = element("tr");
    const head = element("th");
    head.scope = "row";
    head.append(element("bdi", nameOf(sample)));
    const cluster = element("td");
    cluster.append(chip(labels[sample]), String(labels[sample]), " ", element("bdi", called(labels[sample]), "word"));
    row.append(head, cluster, element("td", percent(sureness[sample] / 65535)));
    return row;
  }));
  const count = found.length.toLocaleString("en-GB");
  const many = `${count} sample${found.length === 1 ? "" : "s"}`;
  document.getElementById("found").textContent = found.length > MOST_LISTED
    ? `${many}, of which the first ${MOST_LISTED} are shown` : many;
  document.getElementById("found-on-map").textContent = searches[0].value.trim() ? many : "";
};
for (const search of searches) {
  search.addEventListener("input", () => {
    for (const other of searches) other.value = search.value;
    listMembers();
  });
}
document.getElementById("download").addEventListener("click", () => {
  /* A spreadsheet would run a text that begins so. */
  const cell = (value) => `"${(/^[=+\-@\t\r]/.test(value) ? `'${value}` : value).replaceAll('"', '""')}"`;
  const lines = findMembers().map((sample) => [
    rows[sample], cell(nameOf(sample)), labels[sample], cell(called(labels[sample])), (sureness[sample] / 65535).toFixed(4),
  ].join(","));
  const link = element("a");
  link.href = URL.createObjectURL(new Blob([["row,name,cluster,cluster_name,probability", ...lines].join("\n"), "\n"], { type: "text/csv" }));
  link.download = "members.csv";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
});

/* What lies beyond the first view of the map, and how it is shown. */
const tellBeyond = (beyond) => {
  const note = document.getElementById("map-beyond");
  note.hidden = !beyond.length;
  const left = new Map();
  for (const sample of beyond) left.set(labels[sample], (left.get(labels[sample]) || 0) + 1);
  const drawn = new Map();
  for (const cluster of left.size ? labels : []) drawn.set(cluster, (drawn.get(cluster) || 0) + 1);
  const gone = [...left.keys()].filter((cluster) => left.get(cluster) === drawn.get(cluster)).sort((a, b) => a - b);
  const among = gone.length ? `, all of cluster${gone.length > 1 ? "s" : ""} ${gone.join(", ")} among them` : "";
  const rest = data.sizes.reduce((sum, size) => sum + size, 0) > samples.n;
  const written = (number) => number.toLocaleString("en-GB");
  note.querySelector("span").textContent = `${written(beyond.length)} of ${written(samples.n)} samples${rest ? " drawn" : ""} `
    + `${beyond.length === 1 ? "lies" : "lie"} outside the first view, far from the others${among}.`;
};
const tellShown = (everything) => {
  const name = everything ? "Back to the first view" : "Show everything";
  for (const button of every("[data-zoom=reset]")) {
    if (button.title) {
      button.title = name;
      button.setAttribute("aria-label", name);
      button.textContent = everything ? "⤡" : "⤢";
    } else button.textContent = name;
  }
};

const map = createMap(canvas, data, { hover: showTip, choose: pick, beyond: tellBeyond, shown: tellShown });

/* Colours are those of the style sheet, so that the drawing follows a dark or light setting, and paper. */
const dress = (light) => {
  const style = getComputedStyle(root);
  const printed = light || matchMedia("print").matches;
  const dark = !printed && matchMedia("(prefers-color-scheme: dark)").matches;
  const tone = dark ? "dark" : "light";
  const named = (name) => style.getPropertyValue(`--${name}`).trim();
  const names = ["paper", "ink", "quiet", "grid", "all", "low", "middle", "high"];
  const theme = Object.fromEntries(names.map((name) => [name, named(name)]));
  theme.clusters = data.colours[tone];
  theme.groups = data.groups ? data.groups.colours[tone] : [];
  theme.classes = classes ? [...classes.colours[tone], named("all-edge")] : [];
  theme.font = getComputedStyle(document.body).fontFamily;
  every("[data-class]").forEach((part) => part.style.setProperty("--c", theme.classes[+part.dataset.class]));
  every("[data-colour]").forEach((part) => part.style.setProperty("--c", theme.groups[+part.dataset.colour]));
  map.dress(theme, printed);
};
dress(false);
for (const query of ["(prefers-color-scheme: dark)", "print"]) {
  matchMedia(query).addEventListener("change", () => dress(false));
}
addEventListener("beforeprint", () => dress(true));
addEventListener("afterprint", () => dress(false));

listMembers();
every("[data-pick]").forEach((button) => button.addEventListener("click", () => pick(...button.dataset.pick.split(" ").map(Number))));
document.querySelector("[data-clear]").addEventListener("click", () => { pick(...picked); canvas.focus({ preventScroll: true }); });
every("[data-step]").forEach((button) => button.addEventListener("click", () => {
  const used = data.sizes.flatMap((size, cluster) => (size ? [cluster] : []));
  pick(used[(used.indexOf(picked[0]) + +button.dataset.step + used.length) % used.length]);
}));
addEventListener("keydown", (event) => {
  if (event.key === "Escape" && picked.length) pick(...picked);
});
every("[data-zoom]").forEach((button) => button.addEventListener("click", () => {
  if (button.dataset.zoom === "reset") map.reset();
  else map.zoomBy(button.dataset.zoom === "in" ? 1.5 : 1 / 1.5);
}));
every("input[name=colour]").forEach((input) => input.addEventListener("change", () => {
  every("[data-legend]").forEach((part) => { part.hidden = part.dataset.legend !== input.value; });
  map.colourBy(input.value);
}));
every("input[name=map]").forEach((input) => input.addEventListener("change", () => {
  every("[data-map]").forEach((part) => { part.hidden = part.dataset.map !== input.value; });
  map.showMap(+input.value);
}));
const chosen = document.querySelector("input[name=map]:checked");
if (chosen && chosen.value !== "0") chosen.dispatchEvent(new Event("change"));
const remembered = document.querySelector("input[name=colour]:checked");
if (remembered && remembered.value !== "cluster") remembered.dispatchEvent(new Event("change"));

every("[data-copy]").forEach((button) => button.addEventListener("click", async () => {
  const source = document.getElementById(button.dataset.copy);
  try {
    await navigator.clipboard.writeText(source.textContent);
  } catch {
    getSelection().selectAllChildren(source);
    document.execCommand("copy");
  }
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
}));

/* Curves are read together: the same epoch in all of them. */
const curves = every("[data-curve]").map((figure) => ({
  pairs: data.history[figure.dataset.curve],
  base: +figure.dataset.base,
  extent: +figure.dataset.extent,
  plot: figure.querySelector(".plot"),
  output: figure.querySelector("output"),
  rest: figure.querySelector("output").textContent,
  mark: element("i"),
}));
const lastEpoch = Math.max(2, ...curves.map(({ pairs }) => pairs[pairs.length - 1][0]));
const readCurves = (share) => {
  for (const { pairs, base, extent, plot, output, rest, mark } of curves) {
    if (share === null) {
      mark.remove();
      output.textContent = rest;
      continue;
    }
    const goal = 1 + share * (lastEpoch - 1);
    const [epoch, value] = pairs.reduce((best, pair) => (Math.abs(pair[0] - goal) < Math.abs(best[0] - goal) ? pair : best));
    mark.style.left = `${100 * (epoch - 1) / (lastEpoch - 1)}%`;
    mark.style.setProperty("--y", `${100 * (1 - (value - base) / extent)}%`);
    plot.append(mark);
    output.textContent = `${written(Number(value.toPrecision(4)))} at epoch ${epoch}`;
  }
};
for (const { plot } of curves) {
  plot.addEventListener("pointermove", (event) => {
    const box = plot.getBoundingClientRect();
    readCurves(Math.min(1, Math.max(0, (event.clientX - box.left) / box.width)));
  });
  plot.addEventListener("pointerleave", () => readCurves(null));
}

/* For scripts that read the page: where a row of the data lies on the screen, and what is shown. */
window.pollux = {
  state: () => ({ ...map.state(), picked: picked.length === 1 ? picked[0] : -1, group: picked }),
  locate(row) {
    const box = canvas.getBoundingClientRect();
    const [left, top] = map.screen(rows.indexOf(row));
    return [box.left + left, box.top + top];
  },
};
