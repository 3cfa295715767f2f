#include "fullwatt/show/run_html_parts.hpp"

namespace fullwatt::show::html_parts {

/// Warm colours are time in which the GPU waits, cool ones are its work; the same part has the same colour everywhere.
const std::string_view kStyle = R"css(
:root { --shade: rgba(110, 118, 129, .12); --gain: #1a7f37; --on: #ffffff; --heat: 232, 89, 12; --word: #8250df; --string: #0a5a9c;
  --k-data-wait: #dd5a0f; --k-copy-wait: #b77f00; --k-sync-drain: #cf2f6c; --k-launch-bound: #9a4bc4; --k-python: #d03a34;
  --k-allocator: #96693c; --k-module-load: #7d6253; --k-garbage: #8f7a4a; --k-compile: #a8617a; --k-checkpoint: #7a8490;
  --k-forward: #4a6fd0; --k-backward: #3656b3; --k-optimizer: #6f86d6; --k-gpu-convolution: #1f8a4c; --k-gpu-matmul: #0b7f73;
  --k-gpu-attention: #0a7488; --k-gpu-elementwise: #5f8f1d; --k-gpu-reduction: #7c8b12; --k-gpu-normalisation: #2f9b86;
  --k-gpu-optimizer: #2a7fb0; --k-gpu-softmax: #2766ad; --k-gpu-embedding: #1593a8; --k-gpu-rnn: #0d6b57; --k-gpu-copy: #5a9bd0;
  --k-gpu-copy-h2d: #3f78b5; --k-gpu-copy-d2h: #5b8fc4; --k-gpu-communication: #5a4bb0; --k-gpu-other: #6d8f80; --k-unexplained: #8d96a0; }
@media (prefers-color-scheme: dark) {
  :root { --shade: rgba(139, 148, 158, .14); --gain: #3fb950; --heat: 240, 120, 40; --word: #c297ff; --string: #79c0ff;
    --k-data-wait: #e0702c; --k-copy-wait: #bf8c17; --k-sync-drain: #d9497f; --k-launch-bound: #a866d1; --k-python: #da5049;
    --k-gpu-convolution: #2f9e5d; --k-gpu-matmul: #1c9384; --k-gpu-elementwise: #6d9c2c; --k-gpu-normalisation: #33a08b;
    --k-gpu-optimizer: #358cbd; --k-forward: #5b7fdd; --k-backward: #4a69c4; --k-unexplained: #6e7681; }
}
body { max-width: 72rem; }
header { margin-bottom: 1.5rem; }
.eyebrow { margin: 0 0 .75rem; font-size: .8125rem; color: var(--soft); overflow-wrap: anywhere; }
h1 { font-size: 1.75rem; margin-bottom: .75rem; line-height: 1.25; letter-spacing: -.012em; text-wrap: balance; overflow-wrap: anywhere; }
h2 { font-size: 1.25rem; margin: 3rem 0 1rem; padding-top: .25rem; }
h3 { font-size: 1rem; margin: 2rem 0 .5rem; }
.lead { margin: 0 0 1rem; color: var(--soft); overflow-wrap: anywhere; }
.notice { border-left: 3px solid var(--warn); padding-left: .75rem; }
a { color: var(--note); text-decoration: none; } a:hover { text-decoration: underline; }
pre { user-select: all; } pre.command { background: var(--card); }
pre.command::before, .remedy pre::before { content: "$ "; color: var(--soft); user-select: none; }
small { font-size: .8125rem; }
.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.tiles { display: flex; flex-wrap: wrap; gap: 1px; margin: 0 0 1.25rem; background: var(--line); border: 1px solid var(--line);
  border-radius: 8px; overflow: hidden; }
.tiles div { flex: 1 1 9rem; background: var(--page); padding: .85rem 1rem; } .tiles dt { font-size: .8125rem; color: var(--soft); }
.tiles dd { margin: 0; font-size: 1.5rem; font-weight: 600; line-height: 1.35; font-variant-numeric: tabular-nums; }
.tiles small { display: block; font-weight: 400; color: var(--soft); min-height: 1.2em; }
nav { display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; font-size: .875rem; border-bottom: 1px solid var(--line); padding-bottom: .75rem; }
.k-data-wait { color: var(--k-data-wait); } .k-copy-wait { color: var(--k-copy-wait); } .k-sync-drain { color: var(--k-sync-drain); }
.k-launch-bound { color: var(--k-launch-bound); } .k-python { color: var(--k-python); } .k-allocator { color: var(--k-allocator); }
.k-module-load { color: var(--k-module-load); } .k-garbage { color: var(--k-garbage); } .k-compile { color: var(--k-compile); }
.k-checkpoint, .k-evaluation, .k-fullwatt { color: var(--k-checkpoint); } .k-forward { color: var(--k-forward); }
.k-backward { color: var(--k-backward); } .k-optimizer { color: var(--k-optimizer); } .k-gpu-matmul { color: var(--k-gpu-matmul); }
.k-gpu-convolution { color: var(--k-gpu-convolution); } .k-gpu-attention { color: var(--k-gpu-attention); }
.k-gpu-elementwise { color: var(--k-gpu-elementwise); } .k-gpu-reduction { color: var(--k-gpu-reduction); }
.k-gpu-normalisation { color: var(--k-gpu-normalisation); } .k-gpu-optimizer { color: var(--k-gpu-optimizer); }
.k-gpu-softmax { color: var(--k-gpu-softmax); } .k-gpu-embedding { color: var(--k-gpu-embedding); } .k-gpu-rnn { color: var(--k-gpu-rnn); }
.k-gpu-copy { color: var(--k-gpu-copy); } .k-gpu-copy-h2d { color: var(--k-gpu-copy-h2d); }
.k-gpu-copy-d2h { color: var(--k-gpu-copy-d2h); } .k-gpu-communication { color: var(--k-gpu-communication); }
.k-gpu-other { color: var(--k-gpu-other); } .k-unexplained { color: var(--k-unexplained); }
svg { display: block; } svg text { font-size: 12px; }
.empty { fill: var(--shade); }
.bar { margin: 1rem 0 1.25rem; } .bar .parts text, .waterfall svg svg text { fill: var(--on); } .bar .parts text { font-weight: 600; }
.bar .parts text.length { font-weight: 400; }
.edge rect { stroke: var(--page); stroke-width: 1px; }
.brackets svg { overflow: visible; } .brackets text { fill: var(--soft); } .brackets line { stroke: var(--soft); }
.waterfall .lane { fill: var(--soft); } .waterfall .mark, .grid { stroke: var(--line); }
.axis { fill: var(--soft); font-size: 11px; font-variant-numeric: tabular-nums; }
.swatch { display: inline-block; width: .7em; height: .7em; margin-right: .55em; border-radius: 2px; background: currentColor; }
.scroll { overflow-x: auto; }
table { width: 100%; border-collapse: collapse; font-size: .9375rem; }
table th, table td { padding: .3rem 1.25rem .3rem 0; border-top: 1px solid var(--line); vertical-align: top; text-align: left; }
table td.n, table th.n { text-align: right; }
thead th { border-top: 0; font-size: .8125rem; font-weight: 400; color: var(--soft); white-space: nowrap; }
tbody th { font-weight: 400; }
.group th, .group td, .sum th, .sum td { font-weight: 600; }
.causes tr:not(.group):not(.sum) tbody th, .causes tbody tr:not(.group):not(.sum) th { padding-left: 1rem; white-space: nowrap; }
.sum th, .sum td { border-top: 2px solid var(--ink); }
.gain { color: var(--gain); }
.kernels th, .settings th { white-space: nowrap; }
.name { max-width: 22rem; }
.name code { display: block; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; color: var(--soft); }
.differs td:nth-child(3) code { color: var(--warn); font-weight: 700; } .differs th { box-shadow: inset 3px 0 var(--warn); }
.settings td:last-child { min-width: 12rem; } .settings tbody th, .settings th:first-child { padding-left: .75rem; }
.gauges { display: grid; grid-template-columns: repeat(auto-fill, minmax(20rem, 1fr)); gap: 1rem 2rem; margin: 0; }
.gauge dt { font-size: .9375rem; } .gauge dd { margin: 0; font-variant-numeric: tabular-nums; } .gauge b { margin-right: .5em; }
.meter { margin: .3rem 0 .35rem; } .meter.plain { color: var(--note); }
.gauge small { display: block; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(22rem, 100%), 1fr)); gap: 1.5rem 2rem; } .chart { margin: 0; }
.chart figcaption { display: flex; justify-content: space-between; font-size: .9375rem; color: var(--ink); margin-bottom: .35rem; }
.chart output { color: var(--soft); font-variant-numeric: tabular-nums; }
.chart .line { fill: none; stroke: currentColor; stroke-width: 1.75px; vector-effect: non-scaling-stroke; stroke-linejoin: round; }
.chart .area { fill: currentColor; opacity: .13; } .chart .cursor { stroke: var(--ink); stroke-dasharray: 2 2; }
.ends { display: flex; justify-content: space-between; margin: .2rem 0 0; font-size: 11px; color: var(--soft); }
.base { stroke: var(--soft); }
article { break-inside: avoid; scroll-margin-top: 1rem; }
article h3 { display: flex; justify-content: space-between; gap: 1rem; align-items: baseline; margin: 0 0 .15rem; }
.price { flex: none; color: var(--gain); font-variant-numeric: tabular-nums; } .price small { font-weight: 400; color: var(--soft); }
.price.plain { color: var(--soft); font-weight: 400; }
.origin { margin: 0 0 .75rem; font-size: .8125rem; color: var(--soft); overflow-wrap: anywhere; }
article p { margin: 0 0 .75rem; }
dl.seen { font-size: .875rem; } dl.seen dd .soft { margin-left: .5em; }
dl.seen div { display: grid; grid-template-columns: minmax(6rem, 12rem) 1fr; }
.aside { margin-top: 1.5rem; } .aside article { margin-top: 1rem; }
dl.facts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(26rem, 100%), 1fr)); gap: 0 2.5rem; margin: 0;
  font-size: .9375rem; }
.facts div { display: flex; gap: 1rem; border-top: 1px solid var(--line); padding: .4rem 0; }
.facts dt { flex: 0 0 9.5rem; color: var(--soft); } .facts dd { margin: 0; overflow-wrap: anywhere; }
.file h3 .soft { font-weight: 400; } .file h3 { margin-bottom: .5rem; overflow-wrap: anywhere; }
.code { border: 1px solid var(--line); border-radius: 6px; overflow: hidden; font-size: 13px; }
.row { display: grid; grid-template-columns: 4.25rem 3rem minmax(0, 1fr) minmax(0, max-content); line-height: 1.55; scroll-margin-top: 4rem; }
.row:target { outline: 2px solid var(--note); outline-offset: -2px; }
.row code { font-size: 12.5px; line-height: inherit; white-space: pre-wrap; overflow-wrap: anywhere; padding-left: .75rem; }
.ms, .no { text-align: right; font: 12px/inherit ui-monospace, "SF Mono", Menlo, Consolas, monospace; line-height: inherit;
  font-variant-numeric: tabular-nums; }
.ms { padding-right: .6rem; font-weight: 600; border-right: 1px solid var(--line); }
.no { color: var(--soft); padding-right: .5rem; }
.what { max-width: 26rem; padding: 0 .75rem; text-align: right; color: var(--soft); font-size: 12px; }
.heat1 .ms { background: rgba(var(--heat), .08); } .heat2 .ms { background: rgba(var(--heat), .16); }
.heat3 .ms { background: rgba(var(--heat), .26); } .heat4 .ms { background: rgba(var(--heat), .36); }
.heat5 .ms { background: rgba(var(--heat), .48); } .heat6 .ms { background: rgba(var(--heat), .6); }
.heat7 .ms { background: rgba(var(--heat), .74); } .heat8 .ms { background: rgba(var(--heat), .88); }
.heat3, .heat4 { background: rgba(var(--heat), .04); } .heat5, .heat6 { background: rgba(var(--heat), .07); }
.heat7, .heat8 { background: rgba(var(--heat), .1); }
.hc { color: var(--soft); font-style: italic; }
.hk { color: var(--word); }
.hs { color: var(--string); }
details.fold { margin: 0; }
.fold > summary, p.fold { margin: 0; padding: .15rem .75rem .15rem 8rem; background: var(--card); color: var(--soft); font-weight: 400;
  font-size: 12px; }
footer { margin-top: 3rem; border-top: 1px solid var(--line); padding-top: 1rem; } footer p { margin: .25rem 0; font-size: .875rem; }
@media (max-width: 40rem) {
  .parts svg:not(.wide) text, .waterfall svg svg text { display: none; }
  article h3 { flex-direction: column; gap: 0; }
  dl.seen div { grid-template-columns: 1fr; }
  body { padding: 1.25rem .9rem 3rem; }
  h1 { font-size: 1.35rem; }
  .row { grid-template-columns: 3.5rem 2.25rem minmax(0, 1fr); }
  .what { grid-column: 3; max-width: none; text-align: left; }
  .fold > summary, p.fold { padding-left: 6.5rem; }
  .gauges { grid-template-columns: 1fr; }
  .facts div { flex-direction: column; gap: 0; } .facts dt { flex: none; }
  article { padding: .85rem .9rem; }
  .causes thead, .causes tbody { display: block; }
  .causes tr { display: grid; grid-template-columns: minmax(0, 1fr) 3.4rem 3.2rem 3.8rem; column-gap: .5rem;
    border-top: 1px solid var(--line); }
  .causes th, .causes td { border: 0; padding-right: 0; } .causes thead th { white-space: normal; }
  .causes tbody tr:not(.group):not(.sum) th { padding-left: 0; white-space: normal; }
  .causes .sum { border-top-width: 2px; border-color: var(--ink); }
  .causes tr > :nth-child(5), .causes thead th:last-child, .causes td:empty:last-child { display: none; }
  .causes td:last-child { grid-column: 1 / -1; padding: 0 0 .35rem 1.25rem; }
  .tiles dd { font-size: 1.25rem; }
}
@media print {
  :root { --ink: #1b1f24; --soft: #59636e; --line: #d7dce1; --page: #ffffff; --card: #f6f8fa; --word: #8250df; --string: #0a5a9c; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  body { max-width: none; padding: 0; font-size: 12px; }
  nav { display: none; }
  h2 { break-after: avoid; }
  .chart, tr, .row { break-inside: avoid; }
}
)css";

/// Shows the value under the pointer in all charts at once. Without it the page lacks nothing else.
const std::string_view kScript = R"js(
(() => {
  const charts = [...document.querySelectorAll(".chart")].map((figure) => {
    const svg = figure.querySelector("svg[data-x]");
    const output = figure.querySelector("output");
    return { svg, output, cursor: svg.querySelector(".cursor"), usual: output.textContent, unit: svg.dataset.unit,
             x: svg.dataset.x.split(",").map(Number), y: svg.dataset.y.split(",").map(Number) };
  });
  const clock = (s) => Math.floor(s / 60) + ":" + String(Math.floor(s % 60)).padStart(2, "0");
  const show = (time) => charts.forEach((chart) => {
    const first = chart.x[0], length = chart.x[chart.x.length - 1] - first;
    let near = 0;
    chart.x.forEach((x, i) => { if (Math.abs(x - time) < Math.abs(chart.x[near] - time)) near = i; });
    const at = (chart.x[near] - first) / length * 100 + "%";
    chart.cursor.setAttribute("x1", at);
    chart.cursor.setAttribute("x2", at);
    chart.output.textContent = clock(chart.x[near] - first) + " · " + chart.y[near].toPrecision(3) + " " + chart.unit;
  });
  const hide = () => charts.forEach((chart) => {
    chart.cursor.setAttribute("x1", "-9");
    chart.cursor.setAttribute("x2", "-9");
    chart.output.textContent = chart.usual;
  });
  charts.forEach((chart) => {
    chart.svg.addEventListener("pointermove", (event) => {
      const box = chart.svg.getBoundingClientRect();
      const share = Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
      show(chart.x[0] + share * (chart.x[chart.x.length - 1] - chart.x[0]));
    });
    chart.svg.addEventListener("pointerleave", hide);
  });
})();
)js";

}  // namespace fullwatt::show::html_parts
