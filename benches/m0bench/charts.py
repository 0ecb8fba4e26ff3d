"""A suite's chart as SVG, made from an artifact: one bar for each row, the spread of its rounds as a whisker.

Text and colours follow the reader's light or dark scheme. No script, no font, nothing from outside.
"""

from html import escape

WIDTH = 760
BAR = 16
GAP = 6
LEFT = 190
RIGHT = 96
LABELS = {
    "rps": ("requests per second", "more is better"),
    "cpu_us": ("CPU per request, µs", "less is better"),
    "p99_ms": ("p99, ms", "less is better"),
    "ns": ("time, ns", "less is better"),
    "loaded_rss_mb": ("RSS after 100,000 requests, MB", "less is better"),
}
_STYLE = """
text{font:12px system-ui,sans-serif;fill:#24292f}.t{font-size:14px;font-weight:600}.s{fill:#57606a;font-size:11px}
.o{fill:#c2410c}.p{fill:#64748b}.f{fill:#a8a29e}.w{stroke:#24292f;stroke-width:1.2;fill:none}.g{stroke:#d0d7de;stroke-width:1}
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.s{fill:#9da7b3}.o{fill:#fb923c}.p{fill:#94a3b8}.f{fill:#57534e}.w{stroke:#e6edf3}.g{stroke:#30363d}}
""".strip()


def number(value):
    return f"{value / 1000:,.1f}k" if value >= 10_000 else f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def is_fraction_of(values):
    """Whether the longest bar would leave the others invisible: then the axis is logarithmic, and says so."""
    return min(values) > 0 and max(values) / min(values) > 60


def suite_chart(artifact, suite):
    """The chart of the suite's own metric; rows that failed have no bar."""
    import math

    metric = suite.chart
    cases = list(dict.fromkeys(row["case"] for row in artifact["rows"]))
    rows = [
        (row, row["summary"]["median"][metric], row["summary"]["min"][metric], row["summary"]["max"][metric])
        for row in artifact["rows"]
        if row["summary"] and row["summary"]["median"].get(metric) is not None
    ]
    title, sense = LABELS.get(metric, (metric, ""))
    height = 52 + len(rows) * (BAR + GAP) + (24 * len(cases) if len(cases) > 1 else 0) + 10
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img">',
        f"<title>{escape(suite.title)}, {artifact['interpreter']}</title><style>{_STYLE}</style>",
        f'<text x="8" y="20" class="t">{escape(suite.title)}: Python {artifact["interpreter"]}</text>',
    ]
    values = [value for _, value, *_ in rows]
    logarithmic = bool(values) and is_fraction_of(values)
    note = f"{title}; {sense}; median of {artifact['settings']['rounds']} rounds, whisker min to max"
    out.append(f'<text x="8" y="38" class="s">{escape(note)}{"; logarithmic" if logarithmic else ""}</text>')
    if rows:
        top = max(high for *_, high in rows)
        low = min(low for _, _, low, _ in rows if low > 0) / 2 if logarithmic else 0

        def x(value):
            if logarithmic:
                share = math.log(max(value, low) / low) / math.log(top / low)
            else:
                share = value / top if top else 0
            return LEFT + share * (WIDTH - LEFT - RIGHT)

        y = 50
        for case in cases:
            mine = [entry for entry in rows if entry[0]["case"] == case]
            if len(cases) > 1 and mine:
                out.append(f'<text x="8" y="{y + 15}" class="s">{escape(case)}</text><path class="g" d="M{LEFT} {y + 11}H{WIDTH - 8}"/>')
                y += 24
            for row, value, least, most in mine:
                arm = artifact["arms"][row["arm"]]
                kind = "o" if arm["ours"] else "f" if arm["serves"] == "body" else "p"
                middle = y + BAR / 2
                out.append(f'<text x="{LEFT - 8}" y="{middle + 4}" text-anchor="end">{escape(row["arm"])}</text>')
                out.append(f'<rect class="{kind}" x="{LEFT}" y="{y}" width="{max(1, x(value) - LEFT):.1f}" height="{BAR}" rx="2"/>')
                out.append(f'<path class="w" d="M{x(least):.1f} {middle}H{x(most):.1f}M{x(least):.1f} {middle - 3}v6M{x(most):.1f} {middle - 3}v6"/>')
                out.append(f'<text x="{max(x(value), x(most)) + 8:.1f}" y="{middle + 4}">{number(value)}</text>')
                y += BAR + GAP
    out.append("</svg>")
    return "\n".join(out) + "\n"
