"""The page's template. Kept in Python so that it is packaged like everything else."""

PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Bench of {{ bench.model.name }}</title>
<style>
:root { --ink: #1f2328; --soft: #57606a; --line: #d8dee4; --pale: #f6f8fa; --blue: #1f6feb; --green: #1a7f37; }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1180px; padding: 28px 24px 60px; color: var(--ink); background: #fff;
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 26px; margin: 0 0 4px; } h2 { font-size: 19px; margin: 40px 0 6px; }
p.soft, .soft { color: var(--soft); } p { margin: 6px 0 12px; }
.headline { font-size: 17px; border-left: 4px solid var(--blue); background: var(--pale); padding: 12px 16px; margin: 16px 0; }
.cards { display: flex; flex-wrap: wrap; gap: 12px; margin: 18px 0; }
.card { flex: 1 1 150px; border: 1px solid var(--line); border-radius: 8px; padding: 12px 14px; }
.card .length { color: var(--soft); font-size: 13px; } .card .gain { font-size: 28px; font-weight: 650; color: var(--green); line-height: 1.25; }
.card .name { font-weight: 600; overflow-wrap: anywhere; } .card .detail { color: var(--soft); font-size: 13px; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: 6px 10px; border-bottom: 1px solid var(--line); white-space: nowrap; vertical-align: top; }
th { font-weight: 600; border-bottom-width: 2px; } th.left, td.left { text-align: left; } td.wrap { white-space: normal; }
td .detail { display: block; color: var(--soft); font-size: 12px; }
td.best { outline: 2px solid var(--green); outline-offset: -2px; font-weight: 700; } td.below { color: #cf222e; font-weight: 600; }
.dot { display: inline-block; width: 9px; height: 9px; border-radius: 50%; margin-right: 7px; }
.torch { background: #8a8f98; } .onnxruntime { background: #d9822b; } .openvino { background: #1f6feb; }
figure { margin: 0; } figure svg { max-width: 100%; height: auto; font-family: inherit; }
code { font: 13px ui-monospace, SFMono-Regular, Menlo, monospace; }
ul { padding-left: 20px; margin: 6px 0; }
@media print { body { max-width: none; padding: 0; } h2 { break-after: avoid; } figure, tr { break-inside: avoid; } }
</style>
</head>
<body>
<h1>Bench of {{ bench.model.name }}</h1>
<p class="soft">{{ bench.machine.cpu }} · {{ bench.settings.threads }} thread{{ "" if bench.settings.threads == 1 else "s" }} ·
batch {{ bench.settings.batch }} · {{ bench.model.task }}</p>
<div class="headline">{{ headline }}</div>
{% for text in asides %}
<p>{{ text }}</p>
{% endfor %}
<div class="cards">
{% for card in winners %}
<div class="card"><div class="length">{{ card.length }} tokens</div>
{% if card.name %}
<div class="gain">{{ card.gain }}</div><div class="name">{{ card.name }}</div>
<div class="detail">{{ card.seconds }} a call · cosine {{ card.cosine }}</div>
{% else %}
<div class="gain">–</div><div class="detail">nothing within the bound</div>
{% endif %}
</div>
{% endfor %}
</div>

<h2>Every rung</h2>
<p class="soft">How many times faster than {{ bench.baseline }}, with the median of a call below; outlined: the fastest that numaserve
serves within mean cosine {{ bench.bound }}. Point at a number for its tail, n and quartiles.</p>
<div class="scroll"><table>
<tr><th class="left">rung</th>{% for length in bench.lengths %}<th>{{ length }} tokens</th>{% endfor %}<th>mean cosine</th><th>worst cosine</th><th>peak memory</th></tr>
{% for row in rows %}
<tr><td class="left"><span class="dot {{ row.runtime }}"></span>{{ row.name }}</td>
{% for cell in row.cells %}
<td style="background: {{ cell.colour }}" title="{{ cell.hint }}"{% if cell.best %} class="best"{% endif %}>{{ cell.text }}<span class="detail">{{ cell.detail }}</span></td>
{% endfor %}
<td{% if row.below %} class="below"{% endif %}>{{ row.mean }}</td><td>{{ row.worst }}</td><td>{{ row.memory }}</td></tr>
{% endfor %}
</table></div>

<h2>Speed-up by length</h2>
<p class="soft">Median over rounds in which both ran; whiskers are quartiles; the dashed line is {{ bench.baseline }}; bold: fastest within the bound.</p>
<figure>{{ plots.speedups }}</figure>

<h2>Latency by length</h2>
<p class="soft">Median of a call, both axes logarithmic: lower is better, and a steeper line is attention growing with the square of the length.</p>
<figure>{{ plots.latency }}</figure>

{% if plots.trade %}
<h2>Accuracy against speed</h2>
<p class="soft">Up and left is better. The red area is below mean cosine {{ bench.bound }}. Drifts under 1e-9 are drawn there.</p>
<figure>{{ plots.trade }}</figure>
{% endif %}

<h2>Memory</h2>
<figure>{{ plots.memory }}</figure>

{% if executed %}
<h2>What was executed</h2>
<p class="soft">Read back from the runtime: a precision that was asked is not always the one that runs. Everything is in bench.json.</p>
<div class="scroll"><table>
<tr><th class="left">rung</th><th class="left">precision</th><th>threads</th><th class="left">heavy operations</th></tr>
{% for row in executed %}
<tr><td class="left">{{ row.name }}</td><td class="left">{{ row.precision }}</td><td>{{ row.threads }}</td>
<td class="left wrap"><code>{{ row.kernels }}</code>{% if row.note %}<span class="detail">{{ row.note }}</span>{% endif %}</td></tr>
{% endfor %}
</table></div>
{% endif %}

{% if missing %}
<h2>Not measured</h2>
<ul>
{% for name, reason in missing %}
<li><b>{{ name }}</b>: {{ reason }}</li>
{% endfor %}
</ul>
{% endif %}

<h2>Conditions</h2>
<ul>
{% for text in conditions %}
<li>{{ text }}</li>
{% endfor %}
</ul>
</body>
</html>
"""
