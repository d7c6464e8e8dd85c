"use strict";
// Draws a draft tree from left to right: a column per depth, a row per leaf.
const drawTree = (() => {
  const [WIDTH, HEIGHT, GAP, ROW] = [104, 30, 26, 38];
  const SVG = "http://www.w3.org/2000/svg";

  const make = (name, attributes, text) => {
    const element = document.createElementNS(SVG, name);
    Object.entries(attributes).forEach(([key, value]) => element.setAttribute(key, value));
    if (text !== undefined) element.textContent = text;
    return element;
  };

  // Parents stand before their children, so one pass gives depths and one backwards gives rows.
  const layout = (tree) => {
    const nodes = tree.parents.map((parent, index) => ({ parent, index, depth: 0, rows: [] }));
    nodes.forEach((node) => { if (node.parent >= 0) node.depth = nodes[node.parent].depth + 1; });
    const children = nodes.map((node) => nodes.filter((other) => other.parent === node.index));
    let leaves = 0;
    const place = (node) => {
      const below = children[node.index];
      below.forEach(place);
      node.row = below.length ? below[0].row : leaves++;
    };
    nodes.filter((node) => node.parent < 0).forEach(place);
    return { nodes, leaves };
  };

  // To what a node has room for; the tooltip has it all.
  const shorten = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

  // `name` gives the shown text of a node, `source` its proposer, `tint` a colour for it.
  return (tree, { name, source, tint }) => {
    const { nodes, leaves } = layout(tree);
    const depth = Math.max(...nodes.map((node) => node.depth)) + 1;
    const kept = new Set(tree.path);
    const left = (node) => node.depth * (WIDTH + GAP) + 4;
    const top = (node) => node.row * ROW + 4;
    const [width, height] = [depth * (WIDTH + GAP), leaves * ROW + 4];
    const label = `${nodes.length} nodes, ${kept.size} kept`;
    const svg = make("svg", { width, height, role: "img", "aria-label": label });
    nodes.filter((node) => node.parent >= 0).forEach((node) => {
      const from = nodes[node.parent];
      const [x, y] = [left(from) + WIDTH, top(from) + HEIGHT / 2];
      const [u, v] = [left(node), top(node) + HEIGHT / 2];
      const isKept = kept.has(node.index) && kept.has(node.parent);
      const d = `M${x} ${y}C${x + GAP / 2} ${y} ${u - GAP / 2} ${v} ${u} ${v}`;
      svg.append(make("path", { d, class: isKept ? "edge kept" : "edge" }));
    });
    nodes.forEach((node) => {
      const isKept = kept.has(node.index);
      const group = make("g", { class: isKept ? "node kept" : "node" });
      const [x, y] = [left(node), top(node)];
      const box = make("rect", { x, y, width: WIDTH, height: HEIGHT, rx: 4 });
      box.style.fill = tint(node.index);
      const proposer = source(node.index);
      group.append(
        make("title", {}, `node ${node.index}: ${name(node.index)}${proposer ? ` (${proposer})` : ""}`),
        box,
        make("text", { x: x + 6, y: y + 13 }, (isKept ? "✓ " : "") + shorten(name(node.index), 12)),
        make("text", { x: x + 6, y: y + 25, class: "source" }, shorten(proposer || "pending", 16)),
      );
      svg.append(group);
    });
    return svg;
  };
})();
