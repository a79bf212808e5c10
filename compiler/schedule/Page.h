//===- Page.h - the frame of the HTML page ----------------------*- C++ -*-===//
//
// One self-contained page; @DATA@ is replaced by the schedule as JSON. Plain
// canvas drawing, because a large schedule has a hundred thousand tasks.
//
//===----------------------------------------------------------------------===//
#pragma once

namespace pipec::schedule {

inline constexpr const char *kPage = R"page(<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>pipec schedule</title><style>
:root{color-scheme:light dark;--ink:#1c2330;--paper:#fff;--soft:#6b7686;--line:#d8dee8}
@media(prefers-color-scheme:dark){:root{--ink:#e6eaf2;--paper:#12161d;--soft:#93a0b4;--line:#2a3240}}
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:75rem;padding:0 1rem;color:var(--ink);background:var(--paper)}
h1{font-size:1.5rem;margin:0}h2{font-size:1.05rem;margin:2rem 0 .5rem}p{margin:.3rem 0;color:var(--soft)}
table{border-collapse:collapse}td,th{padding:.15rem .9rem .15rem 0;text-align:right;border-bottom:1px solid var(--line)}
td:first-child,th:first-child{text-align:left}canvas{width:100%;display:block;border:1px solid var(--line);border-radius:4px;cursor:grab}
#tip{position:fixed;pointer-events:none;background:var(--ink);color:var(--paper);padding:.2rem .5rem;border-radius:4px;font-size:13px;display:none}
.key i{display:inline-block;width:.9em;height:.9em;margin:0 .3em 0 1em;vertical-align:-.1em;border-radius:2px}
</style></head><body>
<h1 id="name"></h1><p id="sizes"></p>
<h2>Figures</h2><table id="figures"></table>
<h2>Timeline</h2><p class="key" id="key"></p><canvas id="time"></canvas>
<p>Wheel: zoom. Drag: move. Double click: everything.</p>
<h2>Memory after each task</h2><canvas id="memory"></canvas>
<h2>Devices</h2><table id="devices"></table>
<div id="tip"></div>
<script type="application/json" id="data">@DATA@</script>
<script>
"use strict";
const S=JSON.parse(document.getElementById("data").textContent);
const $=id=>document.getElementById(id),kinds=["F","B","I","W"];
const names=["forward","backward","input gradient","weight gradient"];
const colors=[["#2f6fde","#7ba7f0"],["#e0812b","#f0b27b"],["#e0812b","#f0b27b"],["#2f9e58","#83cf9f"]];
const short=x=>Number(x.toPrecision(6)).toString(),percent=x=>(100*x).toFixed(2)+" %";
document.title=S.name+" · pipec schedule";$("name").textContent=S.name;
$("sizes").textContent=`${S.devices} devices, ${S.stages} stages, ${S.microbatches} microbatches`;
function row(t,cells,head){const r=t.insertRow();for(const c of cells){const d=document.createElement(head?"th":"td");d.textContent=c;r.append(d)}}
row($("figures"),["makespan (last end − first start)",short(S.makespan),"bubble "+percent(S.bubble_makespan)+" of it",percent(S.bubble_ideal)+" of the work"]);
row($("figures"),["span (longest device, own start to own end)",short(S.span),"bubble "+percent(S.bubble_span)+" of it",""]);
row($("figures"),["work of the busiest device",short(S.work),"",""]);
row($("devices"),["device","busy","peak memory","limit"],true);
S.peak.forEach((p,d)=>row($("devices"),[d,percent(S.busy[d]/S.makespan),short(p),S.limit.length?short(S.limit[d]):"none"]));
const used=new Set(S.tasks.flatMap(t=>t.map(a=>a[2])));
$("key").innerHTML=[...used].sort().map(k=>`<i style="background:${colors[k][0]}"></i>${kinds[k]} ${names[k]}`).join("")+(S.stages>S.devices?" (lighter: odd chunks)":"");
const first=Math.min(...S.tasks.filter(t=>t.length).map(t=>t[0][0])),last=Math.max(...S.tasks.filter(t=>t.length).map(t=>t[t.length-1][1]));
const chunk=S.tasks.map(t=>{const s=[...new Set(t.map(a=>a[3]))].sort((a,b)=>a-b);return Object.fromEntries(s.map((x,i)=>[x,i]))});
let from=first,to=last;const left=44,rowHeight=Math.max(14,Math.min(34,560/S.devices));
function setup(c,height){const w=c.clientWidth,q=devicePixelRatio||1;c.style.height=height+"px";c.width=w*q;c.height=height*q;const g=c.getContext("2d");g.scale(q,q);g.font="11px system-ui,sans-serif";g.textBaseline="middle";return[g,w]}
const ink=()=>getComputedStyle(document.body).color;
function visible(t){let a=0,b=t.length;while(a<b){const m=a+b>>1;t[m][1]<from?a=m+1:b=m}const r=[];for(;a<t.length&&t[a][0]<=to;a++)r.push(t[a]);return r}
function drawTime(){const[g,w]=setup($("time"),S.devices*rowHeight+24),x=t=>left+(t-from)/(to-from)*(w-left);
 for(let d=0;d<S.devices;d++){const y=d*rowHeight+2,h=rowHeight-3;g.fillStyle=ink();g.fillText(d,6,y+h/2);
  for(const a of visible(S.tasks[d])){const l=Math.max(left,x(a[0])),r=x(a[1]);if(r<=left)continue;g.fillStyle=colors[a[2]][chunk[d][a[3]]%2];g.fillRect(l,y,Math.max(.4,r-l-(r-l>3?1:0)),h);
   const text=a[4]+"";if(r-l>7*text.length+4){g.fillStyle="#fff";g.fillText(text,(l+r)/2-3*text.length,y+h/2)}}}
 g.fillStyle=ink();for(let i=0;i<=6;i++){const t=from+(to-from)*i/6,s=short(t-first);g.fillText(s,Math.min(w-7*s.length,x(t)),S.devices*rowHeight+14)}}
function drawMemory(){const h=180,[g,w]=setup($("memory"),h+20),x=t=>left+(t-from)/(to-from)*(w-left);const top=1.05*Math.max(...S.peak,...S.limit),y=m=>h-(h-8)*m/(top||1);
 g.fillStyle=ink();g.fillText(short(Math.max(...S.peak)),2,y(Math.max(...S.peak)));g.fillText("0",2,y(0));
 S.tasks.forEach((t,d)=>{g.strokeStyle=`hsl(${360*d/S.devices} 60% 50%)`;g.beginPath();let begun=false,before=0;for(const a of visible(t)){const X=Math.max(left,x(a[1]));if(!begun){g.moveTo(X,y(a[5]));begun=true}else{g.lineTo(X,y(before));g.lineTo(X,y(a[5]))}before=a[5]}g.stroke()});
 if(S.limit.length){g.setLineDash([5,4]);g.strokeStyle=ink();for(const l of new Set(S.limit)){g.beginPath();g.moveTo(left,y(l));g.lineTo(w,y(l));g.stroke()}}}
function draw(){drawTime();drawMemory()}
const c=$("time"),at=e=>{const r=c.getBoundingClientRect();return from+(e.clientX-r.left-left)/(r.width-left)*(to-from)};
c.addEventListener("wheel",e=>{e.preventDefault();const t=at(e),f=Math.exp(e.deltaY*.0015);from=Math.max(first,t-(t-from)*f);to=Math.min(last,t+(to-t)*f);draw()},{passive:false});
let drag=null;c.addEventListener("pointerdown",e=>{drag=[at(e),e.clientX];c.setPointerCapture(e.pointerId)});c.addEventListener("pointerup",()=>drag=null);
c.addEventListener("dblclick",()=>{from=first;to=last;draw()});
c.addEventListener("pointermove",e=>{if(drag){let s=drag[0]-at(e);s=Math.max(first-from,Math.min(last-to,s));from+=s;to+=s;draw();return}
 const r=c.getBoundingClientRect(),d=Math.floor((e.clientY-r.top)/rowHeight),t=at(e),a=d>=0&&d<S.devices&&S.tasks[d].find(a=>a[0]<=t&&t<a[1]);const tip=$("tip");
 if(!a){tip.style.display="none";return}tip.textContent=`${a[3]}${kinds[a[2]]}${a[4]} · stage ${a[3]}, microbatch ${a[4]}, ${names[a[2]]} · ${short(a[0]-first)} to ${short(a[1]-first)} · memory after ${short(a[5])}`;tip.style.display="block";tip.style.left=Math.min(e.clientX+12,innerWidth-360)+"px";tip.style.top=e.clientY+14+"px"});
c.addEventListener("pointerleave",()=>$("tip").style.display="none");addEventListener("resize",draw);draw();
</script></body></html>
)page";

} // namespace pipec::schedule
