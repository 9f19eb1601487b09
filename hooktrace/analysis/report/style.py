"""The page's style sheet: light or dark as the reader's system is, and fit to be printed."""

from __future__ import annotations

__all__ = ["STYLE"]

STYLE = """
:root{color-scheme:light dark;--bg:#f7f8fa;--card:#fff;--ink:#1b2330;--soft:#5b6675;--rule:#e2e6ec;
--accent:#1f6fd1;--good:#117a53;--bad:#c22f2f;--compress:#e0a21b;--queue:#a9b2be;--wait:#a8cdf5;
--wire:#2c7fdb;--decompress:#19998a;--hook:#8a63d2;--pending:#7d9cc0;--exposed:#f2b8a6;--lag:#d1451b;
--on-lag:#fff}
@media(prefers-color-scheme:dark){:root{--bg:#11151b;--card:#191f28;--ink:#e4e9f0;--soft:#98a4b3;
--rule:#2b3440;--accent:#6cabf5;--good:#4cc38a;--bad:#ff7b72;--compress:#d9a22b;--queue:#5d6875;
--wait:#2f5680;--wire:#4a97ee;--decompress:#2bb3a3;--hook:#a284e0;--pending:#6384ab;
--exposed:#6b3526;--lag:#ff7a45;--on-lag:#1d0f06}}
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.5 system-ui,
-apple-system,"Segoe UI",Roboto,"Helvetica Neue",sans-serif}
main{max-width:1120px;margin:0 auto;padding:28px 20px 60px}
h1{font-size:22px;margin:0}h2{font-size:19px;margin:44px 0 2px}h3{font-size:15px;margin:30px 0 6px}
.soft,figcaption,caption{color:var(--soft);font-size:13px}p{margin:4px 0}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:10px;margin:16px 0}
.tile,.finding,figure,.table,.missing{background:var(--card);border:1px solid var(--rule);
border-radius:10px}
.tile{padding:10px 14px}.tile b{display:block;font-size:21px;font-weight:650;white-space:nowrap}
.tile span{color:var(--soft);font-size:13px}
ol.findings{list-style:none;margin:10px 0;padding:0}
.finding{display:grid;grid-template-columns:112px 1fr;gap:0 16px;padding:13px 16px;margin:8px 0}
.gain{font-weight:650;font-size:17px;color:var(--good);white-space:nowrap}
.gain small{display:block;white-space:normal;line-height:1.3;
font-weight:400;font-size:12px;color:var(--soft)}
.meter{height:5px;border-radius:3px;background:var(--rule);margin-top:5px}
.meter i{display:block;height:5px;border-radius:3px;background:var(--good);min-width:2px}
.wrong{border-left:4px solid var(--bad)}.wrong .gain{color:var(--bad)}
.finding p{font-weight:600;margin:0}.finding ul{margin:5px 0 0;padding-left:17px;font-size:14px}
.finding ul li{color:var(--soft)}.remedy{margin-top:6px;font-size:14px}
.remedy::before{content:"\\2192\\00a0";color:var(--accent)}
figure{margin:8px 0;padding:12px 14px}.wide{overflow-x:auto}.wide svg{min-width:640px}
svg{display:block;width:100%;height:auto;font-family:inherit}
figcaption{margin-top:6px}.legend{display:flex;flex-wrap:wrap;gap:2px 16px;font-size:13px;
margin-bottom:6px}
.legend i{display:inline-block;width:11px;height:11px;border-radius:2px;margin-right:5px}
.table{overflow-x:auto;padding:6px 14px 10px}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;width:100%;font-size:14px}
th{text-align:right;font-weight:600;padding:6px 8px;border-bottom:1px solid var(--rule);
white-space:nowrap}
td{text-align:right;padding:3px 8px;white-space:nowrap}tbody tr:hover{background:var(--bg)}
caption{caption-side:bottom;text-align:left;padding-top:8px}
.missing{border-left:4px solid var(--compress);padding:8px 16px}.missing ul{margin:4px 0;
padding-left:18px}
.label{font-size:13px;fill:var(--ink)}.tick{font-size:12px;fill:var(--soft)}
.on-lag{font-size:12px;fill:var(--on-lag)}
.grid{stroke:var(--rule);stroke-width:1}.band{fill:var(--accent);fill-opacity:.18}
.line{fill:none;stroke:var(--accent);stroke-width:1.6;stroke-linejoin:round}
.compress{fill:var(--compress);background:var(--compress)}
.queue{fill:var(--queue);background:var(--queue)}.wait{fill:var(--wait);background:var(--wait)}
.wire{fill:var(--wire);background:var(--wire)}
.decompress{fill:var(--decompress);background:var(--decompress)}
.hook{fill:var(--hook);background:var(--hook)}
.pending{fill:var(--pending);background:var(--pending)}
.exposed{fill:var(--exposed);background:var(--exposed)}.lag{fill:var(--lag)}
.unknown{fill:none;stroke:var(--rule)}.tip{fill:transparent}.tip:hover{fill:var(--ink);
fill-opacity:.25}
.ended{stroke:var(--ink);stroke-width:1.5}
.legend .ended{width:2px;height:13px;background:var(--ink)}
.point{fill:var(--accent)}.whisker{stroke:var(--accent);stroke-width:2}
@media(max-width:560px){.finding{grid-template-columns:1fr}}
@media print{body{background:#fff}main{max-width:none}.tile,.finding,figure{break-inside:avoid}}
"""
