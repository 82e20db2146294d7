"""Plots for pages and for metadata, as SVG text: gap, times, ratios, history. Drawn by Altair and vl-convert, offline.

Takes plain payloads as the ledger stores them, ranks and decides nothing. Altair and vl-convert are imported when a
plot is drawn and not before. Times are µs on a logarithmic axis: only there are floor and reference both to be seen.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

Plain = Mapping[str, Any]
Marks = Mapping[str, tuple[str, str]]

# Okabe and Ito: told apart with any kind of colour blindness; shapes differ as well.
BLACK, GREY, SKY, BLUE = "#222222", "#8A8A8A", "#56B4E9", "#0072B2"
ORANGE, RED, PINK, GREEN = "#E69F00", "#D55E00", "#CC79A7", "#009E73"
BAR = "M-0.3,-2.1H0.3V2.1H-0.3Z"  # upright, so that it shows behind a dot at the same place
WIDTH, ROW = 620, 26
NAMED = 15

GAP_MARKS = {
    "memory": (SKY, "triangle-right"),
    "arithmetic": (ORANGE, "square"),
    "exponentials": (PINK, "diamond"),
    "launch": (GREEN, "triangle-up"),
    "chain": (BLUE, "triangle-down"),
    "official": (RED, BAR),
    "queued": (BLACK, "circle"),
}
TIME_FIELDS = {"plan": "official_us", "best peer": "best_peer_us", "reference": "reference_us"}
TIME_MARKS = {"plan": (BLACK, "circle"), "best peer": (ORANGE, "diamond"), "reference": (SKY, "square")}
OUTCOME_MARKS = {
    "confirmed": (GREEN, "circle"),
    "promoted, not confirmed": (SKY, "diamond"),
    "uncertain": (ORANGE, "square"),
    "rejected": (RED, "cross"),
}


def gap_plot(gap_payload: Plain) -> str:
    """SVG: per case the floor's terms and the measured times, µs; a bar spans the gap, labelled with it.

    Takes a `gap` payload. A case without a gap shows its floor's terms, and its times where it has any.
    """
    dots, spans, order = [], [], []
    for row in gap_payload["cases"]:
        order.append(_case(row))
        found = {**row["floors"], "official": row["official_us"], "queued": row["queued_us"]}
        dots += [{"case": order[-1], "what": what, "us": us} for what, us in found.items() if us]
        if row["gap"] is not None:
            figure = row["gap"] * row["floor_us"]
            text = f"{_us(figure)} = {row['gap']:.3g} × {_us(row['floor_us'])}"
            right = max(row["official_us"] or 0.0, row["queued_us"] or 0.0, row["floor_us"])
            spans.append({"case": order[-1], "us": row["floor_us"], "figure": figure, "right": right, "text": text})
    if not dots:
        return _nothing("No case has a floor or a time yet")
    alt = _altair()
    bars = alt.Chart(_data(spans)).mark_bar(height=9, color="#E3E3E3")
    bars = bars.encode(x=_log(alt, dots), x2="figure:Q", y=_rows(alt, order))
    layers = [bars] if spans else []
    layers += [_points(alt, dots, order, GAP_MARKS), _texts(alt, spans, order)]
    mode = gap_payload["cases"][0]["mode"]
    about = f"Grey: from the reachable floor to the {mode} time, labelled time = gap × floor"
    return _svg(_finished(alt, layers, f"Gap per case, {gap_payload['contract_name']}", about, len(order)))


def times_plot(rows: Iterable[Plain]) -> str:
    """SVG: plan, best peer and reference per case, µs.

    Rows hold case, plan, official_us, best_peer_us and reference_us (each may be None), as the cases of a `holders`
    payload do.
    """
    dots, texts, order = [], [], []
    for row in rows:
        order.append(_case(row))
        found = {name: row.get(field) for name, field in TIME_FIELDS.items()}
        dots += [{"case": order[-1], "what": name, "us": us} for name, us in found.items() if us]
        if measured := [us for us in found.values() if us]:
            text = " · ".join(_figure(us) if us else "–" for us in found.values())
            texts.append({"case": order[-1], "right": max(measured), "text": f"{text} µs"})
    if not dots:
        return _nothing("No case has a time yet")
    alt = _altair()
    layers = [_points(alt, dots, order, TIME_MARKS), _texts(alt, texts, order)]
    return _svg(_finished(alt, layers, "Time per case, official", f"Labels: {' · '.join(TIME_FIELDS)}", len(order)))


def ratio_plot(decision: Plain) -> str:
    """SVG: incumbent ÷ challenger per case and over all, with its 95 % interval, and where a promotion begins.

    Takes a `decision` payload. Right of the dashed line at 1 + m the challenger is faster by more than the margin.
    """
    if not decision.get("ratio"):
        return _nothing(f"No ratio to show: {decision.get('outcome', 'no decision')}")
    measured = [row for row in decision.get("cases") or [] if row.get("ratio")]
    rows = [_ratio_row("all cases", decision), *(_ratio_row(f"case {row['case']}", row) for row in measured)]
    alt, order = _altair(), [row["case"] for row in rows]
    edge = 1.0 + (decision.get("margin") or 0.0)
    low, high = min(0.99, *(row["low"] for row in rows)), max(edge, *(row["high"] for row in rows))
    low, high = low / (high / low) ** 0.05, high * (high / low) ** 0.05
    scale = alt.Scale(type="log", domain=[low, high * (high / low) ** 0.4], nice=False)
    axis = alt.X("low:Q", title="incumbent ÷ challenger", scale=scale, axis=_ticks(alt, low, high))
    colour = alt.condition("datum.case == 'all cases'", alt.value(BLUE), alt.value(BLACK))
    base = alt.Chart(_data(rows)).encode(y=_rows(alt, order))
    layers = [
        alt.Chart(_data([{"at": 1.0}])).mark_rule(color=GREY).encode(x="at:Q"),
        alt.Chart(_data([{"at": edge}])).mark_rule(color=RED, strokeDash=[5, 4]).encode(x="at:Q"),
        base.mark_rule(strokeWidth=2).encode(x=axis, x2="high:Q", color=colour),
        base.mark_point(filled=True, size=60, opacity=1).encode(x="ratio:Q", color=colour),
        _texts(alt, rows, order),
    ]
    title = f"{decision['challenger']} against {decision['incumbent']}: {decision['outcome']}"
    about = f"{decision['mode']}, bars are 95 % intervals; dashed: 1 + m = {edge:.3f}, beyond which a promotion lies"
    return _svg(_finished(alt, layers, title, about, len(order)))


def history_plot(decisions: Iterable[Plain]) -> str:
    """SVG: what every challenger took over time (geometric mean by weight, µs), and the best confirmed as a line.

    Takes `decision` payloads of one contract and scope; `utc` beside the fields of the decision where known, else when
    the last of its sessions started. Screens and invalid ones are left out: they measured less than all cases, or none.
    """
    dots, line, mode = [], [], "official"
    for when, decision in sorted(((_when(one), one) for one in decisions), key=lambda pair: pair[0]):
        outcome, us = _outcome(decision), decision.get("challenger_us")
        if not when or outcome is None or not us:
            continue
        mode = decision.get("mode", mode)
        best = outcome == "confirmed" and (not line or us < line[-1]["us"])
        text = f"{decision['challenger']} {_us(us)}"
        dots.append({"utc": when, "us": us, "what": outcome, "text": text, "below": best})
        if best:
            line.append({"utc": when, "us": us})
    if not dots:
        return _nothing("No decision yet")
    if line:
        line.append({"utc": dots[-1]["utc"], "us": line[-1]["us"]})
    alt = _altair()
    low, high = min(dot["us"] for dot in dots) / 1.3, max(dot["us"] for dot in dots) * 1.3
    scale = alt.Scale(type="log", domain=[low, high], nice=False)
    y = alt.Y("us:Q", title="µs, geometric mean by weight", axis=_ticks(alt, low, high), scale=scale)
    dates = alt.Axis(format="%Y-%m-%d %H:%M", tickCount=4, labelOverlap=True, grid=False)
    x = alt.X("utc:T", title="UTC", scale=alt.Scale(type="utc", padding=130), axis=dates)
    shown = alt.Chart(_data(dots)).encode(x=x, y=y)
    named = "true" if len(dots) <= NAMED else "datum.below"  # of many only those on the line
    layers = [shown.mark_point(filled=True, size=90, opacity=1).encode(**_legend(alt, OUTCOME_MARKS, dots))]
    for below in (False, True):  # a line comes from above: its own labels stand below
        words = shown.transform_filter(f"datum.below == {str(below).lower()} && {named}")
        layers.append(words.mark_text(dy=17 if below else -14, color=BLACK).encode(text="text:N"))
    if line:
        step = alt.Chart(_data(line)).mark_line(interpolate="step-after", color=GREEN, strokeWidth=2)
        layers.insert(0, step.encode(x=x, y=y))
    return _svg(_finished(alt, layers, f"Challengers over time, {mode}", "Line: the best that was confirmed", 11))


def as_markdown(svg: str) -> str:
    """The plot as a Markdown image that holds its own data: nothing is fetched to show it."""
    return f"![](data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()})"


def _case(row: Plain) -> str:
    """ "case 7, v003": the case, and by its number the plan that was measured on it."""
    return f"case {row['case']}, {str(row['plan']).split('_')[0]}" if row.get("plan") else f"case {row['case']}"


def _ratio_row(label: str, row: Plain) -> dict[str, Any]:
    text = f"{row['ratio']:.3f} = {_us(row['incumbent_us'])} ÷ {_us(row['challenger_us'])}"
    interval = {name: row[name] for name in ("ratio", "low", "high")}
    return {"case": label, **interval, "right": row["high"], "text": text}


def _when(decision: Plain) -> str:
    started = [session["started"] for session in decision.get("sessions") or [] if session.get("started")]
    return str(decision.get("utc") or max(started, default=""))


def _outcome(decision: Plain) -> str | None:
    if decision["outcome"] == "promote":
        return "confirmed" if decision.get("confirmed") else "promoted, not confirmed"
    return {"reject": "rejected", "uncertain": "uncertain"}.get(decision["outcome"])


def _points(alt: Any, dots: Sequence[Plain], order: Sequence[str], marks: Marks) -> Any:
    chart = alt.Chart(_data(sorted(dots, key=lambda dot: list(marks).index(dot["what"]))))
    chart = chart.mark_point(filled=True, size=70, opacity=1)
    return chart.encode(x=_log(alt, dots), y=_rows(alt, order), **_legend(alt, marks, dots))


def _texts(alt: Any, rows: Sequence[Plain], order: Sequence[str]) -> Any:
    """Labels to the right of what is farthest right in their row."""
    chart = alt.Chart(_data(rows)).mark_text(align="left", dx=10, color=BLACK)
    return chart.encode(x="right:Q", y=_rows(alt, order), text="text:N")


def _legend(alt: Any, marks: Marks, dots: Sequence[Plain]) -> dict[str, Any]:
    """Colour and shape in one legend, below the plot where nothing else is; only what occurs."""
    names = [name for name in marks if any(dot["what"] == name for dot in dots)]
    legend = alt.Legend(orient="bottom", title=None, columns=len(names), symbolSize=80, symbolOpacity=1)
    colours = alt.Scale(domain=names, range=[marks[name][0] for name in names])
    shapes = alt.Scale(domain=names, range=[marks[name][1] for name in names])
    return {
        "color": alt.Color("what:N", scale=colours, legend=legend),
        "shape": alt.Shape("what:N", scale=shapes, legend=legend),
    }


def _log(alt: Any, dots: Sequence[Plain]) -> Any:
    """A logarithmic axis over the dots' µs with a third more to the right, for labels."""
    low, high = min(dot["us"] for dot in dots) / 1.4, max(dot["us"] for dot in dots) * 1.4
    scale = alt.Scale(type="log", domain=[low, high * (high / low) ** 0.35], nice=False)
    return alt.X("us:Q", title="µs", scale=scale, axis=_ticks(alt, low, high))


def _ticks(alt: Any, low: float, high: float) -> Any:
    """Round ticks between the two: powers of ten over many decades, 1-2-5 over a few, even steps within one."""
    if high / low < 5:
        step = 10 ** math.floor(math.log10(high - low))
        step *= next(factor for factor in (0.1, 0.2, 0.5, 1, 2) if (high - low) / (factor * step) <= 8)
        values = [round(n * step, 9) for n in range(math.ceil(low / step), math.floor(high / step) + 1)]
    else:
        factors = (1, 2, 5) if high / low < 5e3 else (1,)
        decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        values = [factor * 10.0**power for power in decades for factor in factors]
    return alt.Axis(values=[value for value in values if low <= value <= high], format=",.6~f")


def _rows(alt: Any, order: Sequence[str]) -> Any:
    return alt.Y("case:N", sort=order, title=None, scale=alt.Scale(domain=order), axis=alt.Axis(grid=True, ticks=False))


def _finished(alt: Any, layers: Sequence[Any], title: str, about: str, rows: int) -> Any:
    chart = alt.layer(*layers).properties(
        width=WIDTH, height=ROW * rows, background="white", padding=14, title=alt.Title(title, subtitle=about)
    )
    chart = chart.configure_title(anchor="start", fontSize=15, subtitleFontSize=12, subtitleColor="#555555", offset=12)
    chart = chart.configure_axis(labelFontSize=12, titleFontSize=12, gridColor="#EFEFEF", domainColor="#BBBBBB")
    return chart.configure_legend(labelFontSize=12, offset=8, columnPadding=18).configure_view(stroke=None)


def _nothing(sentence: str) -> str:
    """A plot that says why there is none."""
    text = _altair().Chart(_data([{"text": sentence}])).mark_text(fontSize=14, color="#555555").encode(text="text:N")
    return _svg(text.properties(width=WIDTH, height=80, background="white").configure_view(stroke=None))


def _svg(chart: Any) -> str:
    import vl_convert

    return vl_convert.vegalite_to_svg(json.dumps(chart.to_dict()))


def _altair() -> Any:
    import altair

    return altair


def _data(rows: Sequence[Plain]) -> Any:
    return _altair().Data(values=[dict(row) for row in rows])


def _us(value: float) -> str:
    return f"{_figure(value)} µs"


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
