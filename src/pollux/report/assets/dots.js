/* What the map is drawn with. */

const bytesOf = (text) => {
  const binary = atob(text);
  const bytes = new Uint8Array(binary.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = binary.charCodeAt(i);
  return bytes.buffer;
};

const FULL = 65535;
const MARGIN = 16;
const CELLS = 96;
const RAMP = 64;
const MOST_ZOOM = 400;

/* 0xAABBGGRR, as the buffer of a canvas holds it. */
const pixel = (colour) => {
  const value = parseInt(colour.slice(1), 16);
  return (0xff000000 | ((value & 255) << 16) | (value & 0xff00) | (value >> 16)) >>> 0;
};

const mixed = (from, to, share) => {
  let text = "#";
  for (let at = 1; at < 7; at += 2) {
    const a = parseInt(from.slice(at, at + 2), 16);
    const b = parseInt(to.slice(at, at + 2), 16);
    text += Math.round(a + (b - a) * share).toString(16).padStart(2, "0");
  }
  return text;
};

/* Coverage of a disc, for four positions within a pixel: offsets into the buffer and weights up to 256. */
const discs = (radius, opacity, stride) => {
  const reach = Math.ceil(radius + 1);
  return [0, 1, 2, 3].map((quarter) => {
    const cx = quarter & 1 ? 0.25 : -0.25;
    const cy = quarter & 2 ? 0.25 : -0.25;
    const offsets = [];
    const weights = [];
    for (let dy = -reach; dy <= reach; dy++) {
      for (let dx = -reach; dx <= reach; dx++) {
        const cover = Math.min(1, Math.max(0, radius + 0.5 - Math.hypot(dx - cx, dy - cy)));
        const weight = Math.round(256 * cover * opacity);
        if (weight > 0) {
          offsets.push(dy * stride + dx);
          weights.push(weight);
        }
      }
    }
    return { offsets: Int32Array.from(offsets), weights: Int32Array.from(weights) };
  });
};

/* The column or row of a grid over the first view, from 0 to 1; its outermost ones hold what lies beyond. */
const cellOf = (at) => Math.max(0, Math.min(CELLS - 1, Math.floor(at * CELLS)));

/* Which samples lie in which cell of a square grid: those of cell c are members[starts[c]] up to starts[c + 1]. */
const gridOf = (x, y) => {
  const cell = (i) => cellOf(y[i]) * CELLS + cellOf(x[i]);
  const starts = new Uint32Array(CELLS * CELLS + 1);
  for (let i = 0; i < x.length; i++) starts[cell(i) + 1]++;
  for (let c = 0; c < CELLS * CELLS; c++) starts[c + 1] += starts[c];
  const next = starts.slice();
  const members = new Uint32Array(x.length);
  for (let i = 0; i < x.length; i++) members[next[cell(i)]++] = i;
  return { starts, members };
};

const niceStep = (span, most) => {
  const rough = span / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  return power * [1, 2, 5, 10].find((step) => step * power >= rough);
};

/* Tags {x, y, width} are moved apart where they would cover each other. */
const moveApart = (tags) => {
  for (let round = 0; round < 24; round++) {
    let moved = false;
    for (let i = 0; i < tags.length; i++) {
      for (let j = 0; j < i; j++) {
        const [a, b] = [tags[i], tags[j]];
        const across = (a.width + b.width) / 2 + 2 - Math.abs(a.x - b.x);
        const down = 22 - Math.abs(a.y - b.y);
        if (across <= 0 || down <= 0) continue;
        moved = true;
        if (down < across) {
          const push = (a.y < b.y ? -down : down) / 2;
          a.y += push; b.y -= push;
        } else {
          const push = (a.x < b.x ? -across : across) / 2;
          a.x += push; b.x -= push;
        }
      }
    }
    if (!moved) break;
  }
};

