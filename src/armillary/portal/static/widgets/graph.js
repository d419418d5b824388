// Vertices and edges on a canvas: colour by label, size by degree; drag, zoom with the wheel, click for properties. The
// same vertices are a list, for the keyboard.

import { html, useEffect, useRef, useState } from "../vendor/core.js";
import { plural } from "../text/numbers.js";
import { isMotionReduced } from "../data/preferences.js";
import { SERIES, prepared, themed, useDrawing } from "./colours.js";
import { JsonText } from "./json.js";

const STEPS = 300;

/** @param {{graph: {vertices: any[], edges: any[]}}} props */
export function GraphCanvas({ graph }) {
  const ref = useRef(/** @type {HTMLCanvasElement | null} */ (null));
  const state = useRef(/** @type {any} */ ({ nodes: [], links: [], scale: 1, x: 0, y: 0, held: null }));
  const [chosen, setChosen] = useState(/** @type {any} */ (null));
  const labels = [...new Set(graph.vertices.map((each) => each.label))];
  const colour = (/** @type {string} */ label) => SERIES[labels.indexOf(label) % SERIES.length];
  const draw = () => {
    if (!ref.current) return;
    const { context, width, height } = prepared(ref.current);
    const { nodes, links, scale, x, y } = state.current;
    context.translate(width / 2 + x, height / 2 + y);
    context.scale(scale, scale);
    context.strokeStyle = themed("edge");
    context.lineWidth = 1 / scale;
    context.beginPath();
    for (const link of links) {
      context.moveTo(link.source.x, link.source.y);
      context.lineTo(link.target.x, link.target.y);
    }
    context.stroke();
    context.font = "10px system-ui, sans-serif";
    for (const node of nodes) {
      context.beginPath();
      context.arc(node.x, node.y, node.radius, 0, 2 * Math.PI);
      context.fillStyle = colour(node.vertex.label);
      context.fill();
      if (chosen && node.vertex.id === chosen.id) {
        context.strokeStyle = themed("fg");
        context.lineWidth = 3 / scale;
        context.stroke();
      }
      if (nodes.length <= 80) {
        context.fillStyle = themed("fg");
        context.fillText(String(node.vertex.id).slice(0, 16), node.x + node.radius + 2, node.y + 3);
      }
    }
  };
  useEffect(() => {
    let isGone = false;
    /** @type {any} */ let simulation = null;
    void import("../vendor/graph.js").then((force) => {
      if (isGone) return;
      const degrees = new Map();
      for (const edge of graph.edges) for (const id of [edge.outV, edge.inV]) degrees.set(String(id), (degrees.get(String(id)) ?? 0) + 1);
      const nodes = graph.vertices.map((vertex) => ({ id: String(vertex.id), vertex, radius: 4 + Math.min(10, Math.sqrt(degrees.get(String(vertex.id)) ?? 0) * 2) }));
      const links = graph.edges.map((edge) => ({ source: String(edge.outV), target: String(edge.inV), edge }));
      simulation = force.forceSimulation(nodes).force("charge", force.forceManyBody().strength(-60)).force("link", force.forceLink(links).id((/** @type {any} */ node) => node.id).distance(45))
        .force("x", force.forceX()).force("y", force.forceY()).force("collide", force.forceCollide(10));
      state.current = { ...state.current, nodes, links };
      if (isMotionReduced()) simulation.stop().tick(STEPS);
      else simulation.on("tick", draw).on("end", draw);
      draw();
      if (ref.current) Object.assign(ref.current.dataset, { drawn: nodes.length, edges: links.length });
    });
    return () => {
      isGone = true;
      simulation?.stop();
    };
  }, [graph.vertices.length, graph.edges.length]);
  useDrawing(ref, draw);
  const at = (/** @type {MouseEvent} */ event) => {
    const { scale, x, y } = state.current;
    const canvas = /** @type {HTMLCanvasElement} */ (ref.current);
    return [(event.offsetX - canvas.clientWidth / 2 - x) / scale, (event.offsetY - canvas.clientHeight / 2 - y) / scale];
  };
  const found = (/** @type {MouseEvent} */ event) => {
    const [x, y] = at(event);
    return state.current.nodes.find((/** @type {any} */ node) => Math.hypot(node.x - x, node.y - y) <= node.radius + 3);
  };
  const down = (/** @type {MouseEvent} */ event) => {
    const node = found(event);
    state.current.held = { node, fromX: event.offsetX, fromY: event.offsetY, x: state.current.x, y: state.current.y };
    if (node) setChosen(node.vertex);
  };
  const move = (/** @type {MouseEvent} */ event) => {
    const { held } = state.current;
    if (!held) return;
    if (held.node) [held.node.x, held.node.y] = at(event);
    else Object.assign(state.current, { x: held.x + event.offsetX - held.fromX, y: held.y + event.offsetY - held.fromY });
    draw();
  };
  const zoom = (/** @type {WheelEvent} */ event) => {
    event.preventDefault();
    state.current.scale = Math.min(8, Math.max(0.1, state.current.scale * (event.deltaY < 0 ? 1.15 : 0.87)));
    draw();
  };
  const scale = (/** @type {number} */ factor) => {
    state.current.scale *= factor;
    draw();
  };
  return html`<canvas ref=${ref} class="graph" role="img" data-test="graph" aria-label=${`${plural(graph.vertices.length, "vertex", "vertices")} and ${plural(graph.edges.length, "edge")}; labels ${labels.join(", ")}`}
      onMouseDown=${down} onMouseMove=${move} onMouseUp=${() => (state.current.held = null)} onMouseLeave=${() => (state.current.held = null)} onWheel=${zoom}></canvas>
    <p class="tools">${labels.slice(0, 12).map((label) => html`<span key=${label}><span class="swatch" style=${{ background: colour(label) }}></span>${label}</span>`)}
      <button type="button" class="quiet" onClick=${() => scale(1.25)} aria-label="Larger">+</button><button type="button" class="quiet" onClick=${() => scale(0.8)} aria-label="Smaller">−</button>
      <label>Vertex <select value=${chosen ? String(chosen.id) : ""} onChange=${(/** @type {any} */ event) => setChosen(graph.vertices.find((each) => String(each.id) === event.currentTarget.value) ?? null)}><option value="">–</option>${graph.vertices.map((each) => html`<option key=${each.id} value=${String(each.id)}>${String(each.id)}</option>`)}</select></label></p>
    ${chosen && html`<div data-test="vertex"><${JsonText} text=${JSON.stringify(chosen, null, 2)} label="Vertex" /></div>`}`;
}
