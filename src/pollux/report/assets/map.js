/* The map: samples are drawn into a pixel buffer by hand, which is as fast without a graphics card as with one. */

const createMap = (canvas, data, told) => {
  const { samples } = data;
  /* In units of the first view: from 0 to 1 both ways, and beyond where a few samples lie far from the others. */
  const maps = samples.maps.map((own) => ({
    ...own,
    x: new Float32Array(bytesOf(own.x)),
    y: new Float32Array(bytesOf(own.y)),
    whole: own.extent.every(([low, high]) => low === 0 && high === 1),
  }));
  for (const own of maps) own.grid = gridOf(own.x, own.y);
  let [shown] = maps;
  let { x, y, places } = shown;
  const label = new Uint16Array(bytesOf(samples.label));
  const sure = new Uint16Array(bytesOf(samples.p));
  const entropy = new Uint16Array(bytesOf(samples.entropy));
  const known = samples.class ? new Uint16Array(bytesOf(samples.class)) : null;
  const outlier = samples.outlier ? new Uint8Array(bytesOf(samples.outlier)) : null;
  const context = canvas.getContext("2d", { alpha: false });
  const calm = matchMedia("(prefers-reduced-motion: reduce)");
  /* Stretch is how much more y is enlarged than in the first view: that of everything may have another shape. */
  const first = { zoom: 1, stretch: 1, x: 0.5, y: 0.5 };
  const view = { ...first };
  let everything = first;
  let atEverything = shown.whole;
  const size = { width: 0, height: 0, ratio: 1 };
  const fit = { x: 1, y: 1 };
  let image = null;
  let buffer = null;
  let mode = "cluster";
  /* Which samples are marked, or null for all; the clusters that are picked. */
  let marked = null;
  let picked = [];
  let hovered = -1;
  let cross = false;
  let theme = null;
  let onPaper = false;
  let waiting = 0;
  let layer = "cluster";
  let written = [];
  let stroll = 0;

  const codesOf = {
    cluster: () => label,
    group: () => Uint16Array.from(label, (cluster) => data.groups.of[cluster]),
    class: () => known,
    confidence: () => Uint8Array.from(sure, (p) => {
      const share = (p / FULL - data.least) / (1 - data.least || 1);
      return Math.max(0, Math.min(RAMP - 1, Math.floor(share * RAMP)));
    }),
    entropy: () => Uint8Array.from(entropy, (h) => Math.min(RAMP - 1, Math.floor((1 - h / FULL) * RAMP))),
  };
  let codes = label;

  const coloursOf = () => {
    if (mode === "cluster") return theme.clusters.map(pixel);
    if (mode === "group") return theme.groups.map(pixel);
    if (mode === "class") return theme.classes.map(pixel);
    return Array.from({ length: RAMP }, (_, at) => {
      const share = at / (RAMP - 1);
      return pixel(share < 0.5
        ? mixed(theme.low, theme.middle, 2 * share)
        : mixed(theme.middle, theme.high, 2 * share - 1));
    });
  };

  const scaleX = () => fit.x * view.zoom;
  const scaleY = () => fit.y * view.zoom * view.stretch;
  const screenX = (at) => size.width / 2 + (at - view.x) * scaleX();
  const screenY = (at) => size.height / 2 - (at - view.y) * scaleY();
  const radius = () => {
    const base = Math.min(4.5, Math.max(1.5, 11 / Math.max(1, samples.n) ** 0.18));
    return Math.min(6, base * Math.max(1, view.zoom) ** 0.3);
  };

  const measure = () => {
    const box = canvas.getBoundingClientRect();
    size.ratio = Math.min(window.devicePixelRatio || 1, 3);
    size.width = Math.max(1, box.width);
    size.height = Math.max(1, box.height);
    canvas.width = Math.round(size.width * size.ratio);
    canvas.height = Math.round(size.height * size.ratio);
    image = context.createImageData(canvas.width + 2 * MARGIN * 2, canvas.height + 2 * MARGIN * 2);
    buffer = new Uint32Array(image.data.buffer);
    const room = {
      x: Math.max(20, size.width - (shown.axes ? Math.min(104, 0.2 * size.width) : 40)),
      y: Math.max(20, size.height - (shown.axes ? 84 : 40)),
    };
    const [extentX, extentY] = shown.extent;
    [fit.x, fit.y] = fitted(room, ...shown.span);
    const wide = extentX[1] - extentX[0];
    const high = extentY[1] - extentY[0];
    const [wideFit, highFit] = fitted(room, wide * shown.span[0], high * shown.span[1]);
    const [zoomX, zoomY] = [wideFit / wide / fit.x, highFit / high / fit.y];
    const middle = ([low, top]) => (low + top) / 2;
    everything = shown.whole ? first : { zoom: zoomX, stretch: zoomY / zoomX, x: middle(extentX), y: middle(extentY) };
    if (atEverything) Object.assign(view, everything);
    told.beyond(shown.whole ? [] : beyond());
  };
  /* Pixels for all of a width and of a height: distances mean the same in both directions, unless the samples would fill
     less than half of the frame. Where directions mean nothing it is filled at once, within reason. */
  const fitted = (room, width, height) => {
    const unit = { x: room.x / width, y: room.y / height };
    const least = Math.min(unit.x, unit.y);
    if (!shown.axes) return [Math.min(unit.x, 1.6 * least) * width, Math.min(unit.y, 1.6 * least) * height];
    return Math.max(unit.x, unit.y) <= 2 * least ? [least * width, least * height] : [room.x, room.y];
  };
  /* The samples that the first view leaves out. */
  const beyond = () => {
    const [halfX, halfY] = [size.width / 2 / fit.x, size.height / 2 / fit.y];
    const found = [];
    for (let i = 0; i < x.length; i++) if (Math.abs(x[i] - 0.5) > halfX || Math.abs(y[i] - 0.5) > halfY) found.push(i);
    return found;
  };

  const drawLines = (stride) => {
    const colour = pixel(theme.grid);
    const marks = { x: [], y: [] };
    if (!shown.axes) return marks;
    for (const [axis, extent, scale, index] of [["x", size.width, scaleX(), 0], ["y", size.height, scaleY(), 1]]) {
      const perUnit = scale / shown.span[index];
      const origin = shown.low[index];
      const centre = origin + view[axis] * shown.span[index];
      const half = extent / 2 / perUnit;
      const step = niceStep(2 * half, Math.max(2, extent / 110));
      for (let at = Math.ceil((centre - half) / step) * step; at <= centre + half; at += step) {
        const place = axis === "x" ? extent / 2 + (at - centre) * perUnit : extent / 2 - (at - centre) * perUnit;
        marks[axis].push([place, Math.abs(at) < step / 1e6 ? 0 : at, step]);
        const line = Math.round(place * size.ratio) + 2 * MARGIN;
        if (axis === "x") for (let row = 0; row < image.height; row++) buffer[row * stride + line] = colour;
        else buffer.fill(colour, line * stride, (line + 1) * stride);
      }
    }
    return marks;
  };

  /* Samples that are marked (1), or all others (0), or all, in their own colours or in one. */
  const drawDots = (stride, only, colours, single, dotRadius, opacity) => {
    const shapes = discs(dotRadius * size.ratio, opacity, stride);
    const ax = scaleX() * size.ratio;
    const ay = scaleY() * size.ratio;
    const bx = screenX(0) * size.ratio + 2 * MARGIN;
    const by = screenY(0) * size.ratio + 2 * MARGIN;
    const right = image.width - MARGIN - 4;
    const bottom = image.height - MARGIN - 4;
    const reach = MARGIN + 4;
    for (let i = 0; i < x.length; i++) {
      if (marked && marked[i] !== only) continue;
      const px = x[i] * ax + bx;
      const py = by - y[i] * ay;
      if (!(px > reach && py > reach && px < right && py < bottom)) continue;
      const ix = Math.floor(px);
      const iy = Math.floor(py);
      const { offsets, weights } = shapes[(px - ix >= 0.5 ? 1 : 0) | (py - iy >= 0.5 ? 2 : 0)];
      const at = iy * stride + ix;
      const colour = single || colours[codes[i]];
      const redBlue = colour & 0xff00ff;
      const green = colour & 0xff00;
      for (let t = 0; t < offsets.length; t++) {
        const spot = at + offsets[t];
        const weight = weights[t];
        const below = buffer[spot];
        const rest = 256 - weight;
        buffer[spot] = 0xff000000
          | (((Math.imul(redBlue, weight) + Math.imul(below & 0xff00ff, rest)) >>> 8) & 0xff00ff)
          | (((Math.imul(green, weight) + Math.imul(below & 0xff00, rest)) >>> 8) & 0xff00);
      }
    }
  };

  const writeMarks = (marks) => {
    context.font = `11px ${theme.font}`;
    context.fillStyle = theme.quiet;
    const digits = (value, step) => {
      const places = Math.max(0, Math.min(8, -Math.floor(Math.log10(step) + 1e-9)));
      const big = Math.abs(value) >= 1e7 || (step < 1e-6);
      const fraction = { minimumFractionDigits: places, maximumFractionDigits: places };
      return (big ? value.toExponential(2) : value.toLocaleString("en-GB", fraction)).replace("-", "−").replace("+", "");
    };
    context.textBaseline = "alphabetic";
    context.textAlign = "center";
    if (!shown.axes) return;
    const [across, up] = shown.axes;
    for (const [place, value, step] of marks.x) {
      if (place > 44 && place < size.width - 30) context.fillText(digits(value, step), place, size.height - 24);
    }
    context.textAlign = "left";
    for (const [place, value, step] of marks.y) {
      if (place > 36 && place < size.height - 46) context.fillText(digits(value, step), 8, place + 4);
    }
    context.fillStyle = theme.ink;
    context.font = `12px ${theme.font}`;
    context.textAlign = "right";
    context.fillText(`${across} →`, size.width - 10, size.height - 8, size.width - 20);
    context.textAlign = "left";
    context.fillText(`↑ ${up}`, 8, 18, size.width - 70);
  };

  /* At most 34 characters of a name. Its first statement, of a column, is cut in the middle, as the value is at its end. */
  const shortened = (name) => {
    if (name.length <= 34) return name;
    const first = name.split(", ")[0];
    return first.length < 34 ? `${name.slice(0, 33).trimEnd()}…` : `${first.slice(0, 15).trimEnd()}…${first.slice(-18).trimStart()}`;
  };
  /* A name in the first of some spots, (dx, dy) from a place, that nothing covers; or null. */
  const findRoom = (name, place, spots, taken, bounded) => {
    const text = shortened(name);
    const width = context.measureText(text).width + 8;
    const free = spots(width).map(([dx, dy]) => [place.x + dx, place.y + dy, width, 17]).find(
      ([cx, cy]) => (!bounded || (cx - width / 2 > 2 && cx + width / 2 < size.width - 2 && cy > 12 && cy < size.height - 12))
        && taken.every(([ox, oy, wide, high]) => Math.abs(cx - ox) >= (width + wide) / 2 - 1 || Math.abs(cy - oy) >= (17 + high) / 2 - 1),
    );
    if (free) taken.push(free);
    return free ? [text, ...free] : null;
  };
  const tagsOf = (visible) => {
    context.font = `600 12px ${theme.font}`;
    const tags = places[0].map(([cluster, qx, qy]) => (
      { cluster, x: screenX(qx), y: screenY(qy), width: context.measureText(cluster).width + 13 }
    )).filter((tag) => !visible || (tag.x > 8 && tag.y > 8 && tag.x < size.width - 8 && tag.y < size.height - 8));
    moveApart(tags);
    return [tags, tags.map((tag) => [tag.x, tag.y, tag.width + 2, 22])];
  };
  /* Names of clusters below, above or beside the number; those of groups of them near the middle. */
  const fonts = { cluster: "500 12px", group: "650 15px" };
  const besideTag = (tag) => (width) => [[0, 20], [0, -20], [(width + tag.width) / 2, 0], [-(width + tag.width) / 2, 0]];
  const nearMiddle = () => [[0, 0], ...[22, 44, 66].flatMap((far) => [[0, far], [0, -far], [far, 0], [-far, 0]])];
  /* Whether names of groups stand: where those of all clusters have no room. It depends on the zoom, not on the frame. */
  const hasGroups = () => {
    if (!data.groups || !data.groups.names.some(Boolean) || marked) return false;
    const [tags, taken] = tagsOf(false);
    context.font = `${fonts.cluster} ${theme.font}`;
    return !tags.every((tag) => !data.names[tag.cluster] || findRoom(data.names[tag.cluster], tag, besideTag(tag), taken, false));
  };

  /* Numbers at the heart of their clusters, moved apart where they would cover each other, and names where there is room. */
  const writeNumbers = () => {
    context.textAlign = "center";
    context.textBaseline = "middle";
    layer = hasGroups() ? "group" : "cluster";
    const [tags, taken] = tagsOf(true);
    const isDim = (cluster) => (picked.length > 0 && !picked.includes(cluster)) || (marked && !picked.length);
    context.font = `600 12px ${theme.font}`;
    for (const tag of tags) {
      context.globalAlpha = isDim(tag.cluster) ? 0.3 : 1;
      context.fillStyle = theme.paper;
      context.strokeStyle = mode === "cluster" ? theme.clusters[tag.cluster]
        : mode === "group" ? theme.groups[data.groups.of[tag.cluster]] : theme.quiet;
      context.lineWidth = 1.75;
      context.beginPath();
      context.roundRect(tag.x - tag.width / 2, tag.y - 10, tag.width, 20, 10);
      context.fill();
      context.stroke();
      context.fillStyle = theme.ink;
      context.fillText(tag.cluster, tag.x, tag.y + 0.5);
    }
    context.globalAlpha = 1;
    context.font = `${fonts[layer]} ${theme.font}`;
    context.lineWidth = 4;
    context.lineJoin = "round";
    context.strokeStyle = theme.paper;
    written = layer === "group"
      ? places[1].map(([group, qx, qy]) => findRoom(data.groups.names[group], { x: screenX(qx), y: screenY(qy) }, nearMiddle, taken, true))
      : tags.map((tag) => (data.names[tag.cluster] && !isDim(tag.cluster)
        ? findRoom(data.names[tag.cluster], tag, besideTag(tag), taken, true) : null));
    written = written.filter(Boolean);
    for (const [text, cx, cy] of written) {
      context.strokeText(text, cx, cy);
      context.fillText(text, cx, cy);
    }
  };

  const draw = () => {
    waiting = 0;
    const stride = image.width;
    buffer.fill(pixel(theme.paper));
    const marks = drawLines(stride);
    const colours = coloursOf();
    const dot = radius();
    const opacity = samples.n > 20000 ? 0.62 : samples.n > 3000 ? 0.72 : 0.85;
    if (marked) drawDots(stride, 0, colours, pixel(theme.all), dot, 0.55);
    drawDots(stride, 1, colours, 0, dot, marked ? Math.min(1, opacity + 0.1) : opacity);
    const inset = 2 * MARGIN;
    context.setTransform(1, 0, 0, 1, 0, 0);
    if (onPaper) {
      /* What is printed is the drawing told again, and pixels that were put are not told: an image is. */
      const picture = new OffscreenCanvas(canvas.width, canvas.height);
      picture.getContext("2d").putImageData(image, -inset, -inset, inset, inset, canvas.width, canvas.height);
      context.drawImage(picture, 0, 0);
    } else {
      context.putImageData(image, -inset, -inset, inset, inset, canvas.width, canvas.height);
    }
    context.setTransform(size.ratio, 0, 0, size.ratio, 0, 0);
    writeMarks(marks);
    if (outlier) {
      context.strokeStyle = theme.ink;
      context.lineWidth = 1;
      context.beginPath();
      for (let i = 0; i < x.length; i++) {
        if (!outlier[i] || (marked && !marked[i])) continue;
        const [px, py] = [screenX(x[i]), screenY(y[i])];
        context.moveTo(px + dot + 2, py);
        context.arc(px, py, dot + 2, 0, 2 * Math.PI);
      }
      context.stroke();
    }
    writeNumbers();
    if (cross) {
      context.strokeStyle = theme.quiet;
      context.lineWidth = 1;
      context.beginPath();
      context.moveTo(size.width / 2 - 9, size.height / 2);
      context.lineTo(size.width / 2 + 9, size.height / 2);
      context.moveTo(size.width / 2, size.height / 2 - 9);
      context.lineTo(size.width / 2, size.height / 2 + 9);
      context.stroke();
    }
    if (hovered >= 0) {
      context.strokeStyle = theme.ink;
      context.lineWidth = 2;
      context.beginPath();
      context.arc(screenX(x[hovered]), screenY(y[hovered]), dot + 3, 0, 2 * Math.PI);
      context.stroke();
    }
  };
  const redraw = () => {
    if (!waiting) waiting = requestAnimationFrame(draw);
  };

  const nearest = (px, py, reach) => {
    const qx = view.x + (px - size.width / 2) / scaleX();
    const qy = view.y - (py - size.height / 2) / scaleY();
    let best = -1;
    let closest = reach * reach;
    for (let row = cellOf(qy - reach / scaleY()); row <= cellOf(qy + reach / scaleY()); row++) {
      for (let column = cellOf(qx - reach / scaleX()); column <= cellOf(qx + reach / scaleX()); column++) {
        const at = row * CELLS + column;
        for (let m = shown.grid.starts[at]; m < shown.grid.starts[at + 1]; m++) {
          const i = shown.grid.members[m];
          if (marked && !marked[i]) continue;
          const dx = (x[i] - qx) * scaleX();
          const dy = (y[i] - qy) * scaleY();
          const distance = dx * dx + dy * dy;
          if (distance < closest) { closest = distance; best = i; }
        }
      }
    }
    return best;
  };

  const hover = (sample) => {
    if (sample === hovered) return;
    hovered = sample;
    told.hover(sample, sample < 0 ? null : [screenX(x[sample]), screenY(y[sample])]);
    redraw();
  };

  const within = (zoom) => Math.max(0.8 * everything.zoom, Math.min(MOST_ZOOM, zoom));
  const settle = () => {
    view.zoom = within(view.zoom);
    for (const [at, axis] of ["x", "y"].entries()) {
      view[axis] = Math.max(shown.extent[at][0], Math.min(shown.extent[at][1], view[axis]));
    }
    canvas.classList.toggle("zoomed", view.zoom > 1.05);
    const near = (name) => Math.abs(view[name] - everything[name]) <= 1e-6 * Math.abs(everything[name]);
    atEverything = Object.keys(view).every(near);
    told.shown(atEverything && !shown.whole);
    redraw();
  };
  const zoomAt = (factor, px, py) => {
    const before = { x: scaleX(), y: scaleY() };
    view.zoom = within(view.zoom * factor);
    view.x += (px - size.width / 2) * (1 / before.x - 1 / scaleX());
    view.y -= (py - size.height / 2) * (1 / before.y - 1 / scaleY());
    settle();
  };
  const moveBy = (dx, dy) => {
    view.x -= dx / scaleX();
    view.y += dy / scaleY();
    settle();
  };
  /* A short glide, so that the eye can follow. */
  const glide = (goal, after = () => {}) => {
    cancelAnimationFrame(stroll);
    const from = { ...view };
    const began = performance.now();
    const duration = calm.matches ? 0 : 160;
    const step = (now) => {
      const share = duration ? Math.min(1, Math.max(0, (now - began) / duration)) : 1;
      const eased = 1 - (1 - share) ** 3;
      view.zoom = from.zoom * (goal.zoom / from.zoom) ** eased;
      view.stretch = from.stretch * (goal.stretch / from.stretch) ** eased;
      view.x = from.x + (goal.x - from.x) * eased;
      view.y = from.y + (goal.y - from.y) * eased;
      settle();
      if (share < 1) stroll = requestAnimationFrame(step);
      else after();
    };
    step(duration ? began : began + 1);
  };
  const zoomBy = (factor, after) => glide({ ...view, zoom: within(view.zoom * factor) }, after);
  /* Everything; and from there back to the first view. */
  const reset = (after) => glide(atEverything ? first : everything, after);

  /* Another map: the samples go from where they are to where it has them. */
  const showMap = (index) => {
    hover(-1);
    cancelAnimationFrame(stroll);
    const [goal, before, at] = [maps[index], [scaleX(), scaleY()], { ...view }];
    const from = { x, y, places };
    shown = goal;
    Object.assign(view, first);
    atEverything = goal.whole;
    measure();
    /* Where they are now, in the units of the other map. */
    const nowX = (value) => 0.5 + (value - at.x) * before[0] / fit.x;
    const nowY = (value) => 0.5 + (value - at.y) * before[1] / fit.y;
    const began = performance.now();
    const duration = calm.matches ? 0 : 600;
    const step = (now) => {
      const share = duration ? Math.min(1, Math.max(0, (now - began) / duration)) : 1;
      const eased = share * share * (3 - 2 * share);
      const between = (a, b) => a + (b - a) * eased;
      if (share < 1) {
        x = goal.x.map((value, i) => between(nowX(from.x[i]), value));
        y = goal.y.map((value, i) => between(nowY(from.y[i]), value));
        places = goal.places.map((own, at) => own.map(([k, px, py], i) => [
          k, between(nowX(from.places[at][i][1]), px), between(nowY(from.places[at][i][2]), py),
        ]));
        stroll = requestAnimationFrame(step);
      } else ({ x, y, places } = goal);
      settle();
    };
    step(duration ? began : began + 1);
  };

  listen();

  function listen() {
    const fingers = new Map();
    let start = null;
    let travelled = 0;
    const place = (event) => {
      const box = canvas.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    canvas.addEventListener("wheel", (event) => {
      const factor = Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0016));
      /* Beyond the whole picture the wheel moves the page again. */
      if (factor < 1 && view.zoom <= 0.8001 * everything.zoom) return;
      event.preventDefault();
      hover(-1);
      zoomAt(factor, ...place(event));
    }, { passive: false });
    canvas.addEventListener("pointerdown", (event) => {
      if (event.button) return;
      cross = false;
      cancelAnimationFrame(stroll);
      fingers.set(event.pointerId, place(event));
      start = place(event);
      travelled = fingers.size > 1 ? 99 : 0;
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      const now = place(event);
      if (!fingers.has(event.pointerId)) {
        cross = false;
        hover(nearest(...now, 14));
        return;
      }
      const before = fingers.get(event.pointerId);
      if (fingers.size === 2) {
        const [other] = [...fingers].filter(([id]) => id !== event.pointerId).map(([, spot]) => spot);
        const apart = (spot) => Math.max(12, Math.hypot(spot[0] - other[0], spot[1] - other[1]));
        zoomAt(apart(now) / apart(before), (now[0] + other[0]) / 2, (now[1] + other[1]) / 2);
        moveBy((now[0] - before[0]) / 2, (now[1] - before[1]) / 2);
      } else {
        travelled = Math.max(travelled, Math.hypot(now[0] - start[0], now[1] - start[1]));
        if (travelled > 4) {
          hover(-1);
          canvas.classList.add("moving");
          moveBy(now[0] - before[0], now[1] - before[1]);
        }
      }
      fingers.set(event.pointerId, now);
    });
    const lift = (event) => {
      const held = fingers.delete(event.pointerId);
      canvas.classList.remove("moving");
      if (!held || event.type !== "pointerup" || travelled > 4) return;
      const sample = nearest(...place(event), event.pointerType === "touch" ? 24 : 14);
      hover(sample);
      if (event.pointerType !== "touch" && sample >= 0) told.choose(label[sample]);
    };
    canvas.addEventListener("pointerup", lift);
    canvas.addEventListener("pointercancel", lift);
    canvas.addEventListener("pointerleave", (event) => {
      if (event.pointerType !== "touch") hover(-1);
    });
    canvas.addEventListener("dblclick", () => { hover(-1); reset(); });
    canvas.addEventListener("blur", () => { cross = false; hover(-1); redraw(); });
    canvas.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const stride = 0.12 * Math.min(size.width, size.height);
      const read = () => hover(nearest(size.width / 2, size.height / 2, 40));
      const moves = { ArrowLeft: [stride, 0], ArrowRight: [-stride, 0], ArrowUp: [0, stride], ArrowDown: [0, -stride] };
      hover(-1);
      if (moves[event.key]) {
        cross = true;
        const [dx, dy] = moves[event.key];
        glide({ ...view, x: view.x - dx / scaleX(), y: view.y + dy / scaleY() }, read);
      } else if (event.key === "+" || event.key === "=") zoomBy(1.5);
      else if (event.key === "-" || event.key === "−") zoomBy(1 / 1.5);
      else if (event.key === "0") reset();
      else if (event.key === "Enter" && cross) {
        const sample = nearest(size.width / 2, size.height / 2, 40);
        if (sample >= 0) told.choose(label[sample]);
      } else return;
      event.preventDefault();
    });
    new ResizeObserver(() => { if (theme) { measure(); hover(-1); draw(); } }).observe(canvas);
  }

  return {
    zoomBy,
    reset,
    dress(next, printed) { theme = next; onPaper = printed; measure(); draw(); },
    colourBy(next) { mode = next; codes = codesOf[mode](); redraw(); },
    mark(samples, clusters) { marked = samples; picked = clusters; hover(-1); redraw(); },
    showMap,
    screen: (sample) => [screenX(x[sample]), screenY(y[sample])],
    state: () => ({ ...view, mode, hovered, everything: atEverything, map: maps.indexOf(shown), layer, written, marked: marked ? marked.reduce((sum, one) => sum + one, 0) : samples.n }),
    size,
  };
};
