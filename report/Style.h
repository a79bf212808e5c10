//===- Style.h - the page's style sheet -------------------------*- C++ -*-===//
#pragma once

namespace pipec::report {

/// Light by default, dark where the reader's system is dark. Forward, backward
/// and weight tasks differ in lightness too, for those who see few colors.
inline constexpr const char *kStyle = R"css(
:root {
  color-scheme: light dark;
  --page: #ffffff; --card: #f6f7f9; --ink: #1b1f24; --soft: #5d6670;
  --rule: #dfe3e8; --grid: #e6e9ed;
  --F: #3d74c7; --F2: #7fa6e0; --B: #e0912f; --B2: #edbb7a;
  --W: #2f8f63; --W2: #74bd99; --U: #8464c4; --onbox: #ffffff; --onB: #2a1a04;
  --weights: #3d74c7; --gradients: #6fa8dc; --optimizer: #8464c4;
  --stash: #e0912f; --workspace: #8a949e; --other: #c3cad1;
  --fixed: #cfd6de; --mark: #c2352b;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #14171a; --card: #1d2125; --ink: #e7eaed; --soft: #9aa4ae;
    --rule: #30363c; --grid: #2a3036;
    --F: #5b92e5; --F2: #3f6db0; --B: #e8a04a; --B2: #a8712d;
    --W: #4cb583; --W2: #33805b; --U: #a085dc; --onbox: #0c1116;
    --onB: #0c1116;
    --weights: #5b92e5; --gradients: #8dbbee; --optimizer: #a085dc;
    --stash: #e8a04a; --workspace: #7d8791; --other: #525b64;
    --fixed: #3a424a; --mark: #ff7468;
  }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
main { max-width: 1124px; margin: 0 auto; padding: 32px; }
h1 { font-size: 26px; line-height: 1.25; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 18px; margin: 40px 0 4px; }
h3 { font-size: 14px; margin: 18px 0 2px; font-weight: 600; }
p { margin: 4px 0 10px; max-width: 84ch; }
.note, header p { color: var(--soft); }
.tiles { display: grid; gap: 12px; margin: 22px 0 0;
  grid-template-columns: repeat(auto-fit, minmax(170px, 1fr)); }
.tile { background: var(--card); border-radius: 8px; padding: 12px 16px; }
.tile b { display: block; font-size: 24px; line-height: 1.3;
  font-weight: 600; white-space: nowrap; }
.tile span { color: var(--soft); font-size: 13px; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums;
  margin: 8px 0; font-size: 14px; }
th, td { text-align: left; padding: 5px 20px 5px 0; white-space: nowrap;
  border-bottom: 1px solid var(--rule); }
th { color: var(--soft); font-weight: 500; }
td.r, th.r { text-align: right; }
td.wrap { white-space: normal; overflow-wrap: anywhere; min-width: 18ch; }
tr.best td { font-weight: 600; }
svg { display: block; height: auto; max-width: 100%; min-width: 640px;
  margin: 6px 0; }
.grids { display: grid; gap: 8px 28px;
  grid-template-columns: repeat(auto-fit, minmax(310px, 1fr)); }
.grids svg { min-width: 0; width: 100%; }
svg text { font: 12px system-ui, "Segoe UI", Roboto, sans-serif;
  fill: var(--ink); font-variant-numeric: tabular-nums; }
svg .tick { fill: var(--soft); font-size: 11px; }
svg .label { fill: var(--soft); }
svg .inbox { fill: var(--onbox); font-size: 11px; pointer-events: none; }
.grid { stroke: var(--grid); }
.task.F { fill: var(--F); } .task.F.odd { fill: var(--F2); }
.task.B, .task.I { fill: var(--B); }
.task.B.odd, .task.I.odd { fill: var(--B2); }
.task.W { fill: var(--W); } .task.W.odd { fill: var(--W2); }
.task.U { fill: var(--U); }
.task.R, .task.T { fill: var(--workspace); }
.m-weights { fill: var(--weights); background: var(--weights); }
.m-gradients { fill: var(--gradients); background: var(--gradients); }
.m-optimizer { fill: var(--optimizer); background: var(--optimizer); }
.m-stash { fill: var(--stash); background: var(--stash); }
.m-workspace { fill: var(--workspace); background: var(--workspace); }
.m-other { fill: var(--other); background: var(--other); }
.m-fixed { fill: var(--fixed); background: var(--fixed); }
.k-F { background: var(--F); } .k-B { background: var(--B); }
.k-W { background: var(--W); } .k-U { background: var(--U); }
.k-R { background: var(--workspace); }
.k-mark { background: var(--mark); width: 3px !important; }
.measured { stroke: var(--mark); stroke-width: 3; }
.limit { stroke: var(--soft); stroke-dasharray: 3 3; }
.curve { fill: none; stroke: var(--F); stroke-width: 2;
  stroke-linejoin: round; }
.legend { display: flex; flex-wrap: wrap; gap: 2px 18px; font-size: 13px;
  color: var(--soft); margin: 6px 0; }
.legend i { display: inline-block; width: 12px; height: 12px;
  border-radius: 2px; margin-right: 6px; vertical-align: -1px; }
details { margin: 10px 0; }
summary { cursor: pointer; font-weight: 600; }
footer { margin-top: 44px; color: var(--soft); font-size: 13px;
  border-top: 1px solid var(--rule); padding-top: 10px; }
@media print { main { max-width: none; padding: 0; } svg { min-width: 0; } }
)css";

} // namespace pipec::report
