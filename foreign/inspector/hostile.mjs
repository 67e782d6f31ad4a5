// Texts that would run a script, load a resource, or deceive the reader, if the page inserted them as anything but text.

/** All texts; they would load from `elsewhere`, an address where the test listens. */
export const hostileTexts = (elsewhere) => [
  "<script>window.__hit=1</script>",
  "<img src=x onerror=\"window.__hit=2\">",
  "\"><svg onload=window.__hit=3>",
  "javascript:window.__hit=4",
  `[click](javascript:window.__hit=5) ![image](${elsewhere}/track.png)`,
  "<iframe srcdoc=\"<script>parent.__hit=6</script>\"></iframe>",
  `<iframe src="${elsewhere}/frame"></iframe><object data="${elsewhere}/object"></object><video poster="${elsewhere}/poster" src="${elsewhere}/video"></video>`,
  `<frameset><frame src="${elsewhere}/frameset"></frameset>`,
  `<div><template shadowrootmode="open"><link rel="preconnect" href="${elsewhere}"><link rel="stylesheet" href="${elsewhere}/style"><iframe src="${elsewhere}/shadow"></iframe></template></div>`,
  "<a href=\"java\tscript:window.__hit=7\" style=\"position:fixed;inset:0\">x</a>",
  "data:text/html,<script>window.__hit=8</script>",
  "</code></pre><script>window.__hit=9</script><pre><code>",
  "```\"onmouseover=window.__hit=10\nx\n```",
  `<svg xmlns="http://www.w3.org/2000/svg"><script>parent.__hit=11</script><image href="${elsewhere}/x"/></svg>`,
  `<style>*{display:none}@import '${elsewhere}/x.css'</style><link rel=stylesheet href=${elsewhere}/y.css>`,
  "<math><mtext><table><mglyph><style><!--</style><img title=\"--&gt;&lt;img src=1 onerror=window.__hit=12&gt;\">",
  `<link rel=preconnect href=${elsewhere}><link rel=dns-prefetch href=${elsewhere}><link rel=prefetch href=${elsewhere}/p><p>hint</p>`,
  `<form action=${elsewhere}/><input name=password><button>go</button></form>`,
  `<base href=${elsewhere}/><meta http-equiv=refresh content="0;url=${elsewhere}/">`,
  "{{constructor.constructor('window.__hit=13')()}} ${window.__hit=14} <%= window.__hit=15 %>",
  "invoice\u202Egnp.exe \u0007\u001b[2J\u200b hidden",
  "__proto__",
];
