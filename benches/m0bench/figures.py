"""Figures in prose: spans that are filled from artifacts, and a check for figures that stand without a source.

A span is an HTML comment, the figure, and a closing comment:

    <!--num layer-split/3.14t m0serve-pool:hello:rps / granian-bt4:hello:rps | .1f-->2.9<!--/num-->

SUITE/INTERPRETER, then ARM:CASE:METRIC (the median; METRIC@min and METRIC@max for the extremes), if need be two of
them with / or - between, in spaces because a case may be called threads/2, then a format after a bar: a format of
Python's, or k for thousands. Facts of the artifact have @ in front: `@distributions.granian`, `@machine.cpu`,
`@settings.rounds`. `ci/bench render` fills spans, `ci/bench check` refuses stale ones. A paragraph or table whose figures
come from elsewhere says from where in a comment of its own:

    <!--source: counted by tests/…-->
"""

import re

SPAN = re.compile(r"<!--num (?P<expression>.*?)-->(?P<value>.*?)<!--/num-->", re.S)
SOURCE = re.compile(r"<!--source: (?P<text>.+?)-->", re.S)
_REFERENCE = r"[\w.@-]+:[\w./-]+:[\w@]+|@[\w.-]+"
_EXPRESSION = re.compile(
    rf"^(?P<suite>[a-z0-9-]+)/(?P<interpreter>3\.\d+t?)\s+(?P<left>{_REFERENCE})"
    rf"(?:\s+(?P<operator>[/-])\s+(?P<right>{_REFERENCE}))?(?:\s*\|\s*(?P<format>[\w.,+%]+))?$"
)
# A number with the unit of a measurement. Settings and limits (KiB, s, ms of a time-out) are not figures of this kind.
_FIGURE = re.compile(
    r"(?<![\w.])\d[\d.,]*\s?(?:k\s|k)?\s?(?:rps\b|req/s|requests?/s\b|requests (?:a|per) second|µs\b|×|x (?:faster|slower|less|more)|times (?:faster|slower|as (?:fast|many)))"
    r"|(?<![\w.])\d[\d.,]*\s?(?:ms|MB|MiB|KiB|%)\s(?:of (?:p99|RSS|throughput|CPU)|p99|RSS|PSS|faster|slower|less (?:CPU|memory)|more (?:CPU|memory))"
    r"|\bp(?:50|90|99)\s(?:of |is |= ?|≤ ?)?\d[\d.,]*"
)


class Unknown(Exception):
    """An expression that no artifact answers."""


def _fact(artifact, path):
    value = artifact
    for name in path.split("."):
        if isinstance(value, dict):
            lowered = {key.lower(): key for key in value}
            if name.lower() in lowered:
                value = value[lowered[name.lower()]]
                continue
        raise Unknown(f"the artifact has no {path}")
    return value


def _value(shelf, suite, interpreter, reference):
    artifact = shelf.get(suite, interpreter)
    if artifact is None:
        raise Unknown(f"no artifact of {suite} on {interpreter} that pages may show")
    if reference.startswith("@"):
        return _fact(artifact, reference[1:])
    arm, case, metric = reference.split(":")
    metric, _, which = metric.partition("@")
    row = shelf.row(suite, interpreter, arm, case)
    if row is None or row["summary"] is None:
        raise Unknown(f"{suite} on {interpreter} has no row {arm} {case}" + (f" (it failed: {row['failed']})" if row else ""))
    value = row["summary"][which or "median"].get(metric)
    if value is None:
        raise Unknown(f"row {arm} {case} has no {metric}")
    return value


def form(value, pattern=None):
    """A figure as prose has it: three digits that mean something, unless a format says otherwise."""
    if isinstance(value, str):
        return value
    if pattern == "k":
        return f"{value / 1000:,.0f}k"
    if pattern:
        return format(value, pattern)
    size = abs(value)
    return f"{value:,.0f}" if size >= 100 or value == int(value) else f"{value:.1f}" if size >= 10 else f"{value:.2f}"


def evaluate(expression, shelf):
    """The number (or text) of an expression, without its format."""
    match = _EXPRESSION.match(" ".join(expression.split()))
    if not match:
        raise Unknown(f"no expression: {expression!r}")
    left = _value(shelf, match["suite"], match["interpreter"], match["left"])
    if not match["operator"]:
        return left
    right = _value(shelf, match["suite"], match["interpreter"], match["right"])
    if match["operator"] == "-":
        return left - right
    if not right:
        raise Unknown(f"{match['right']} is 0")
    return left / right


def text_of(expression, shelf):
    match = _EXPRESSION.match(" ".join(expression.split()))
    return form(evaluate(expression, shelf), match["format"] if match else None)


def fill(text, shelf):
    """(text with its spans filled, [(expression, why it can't be)])."""
    faults = []

    def one(match):
        try:
            value = text_of(match["expression"], shelf)
        except (Unknown, ValueError) as error:
            faults.append((match["expression"], str(error)))
            return match[0]
        return f"<!--num {match['expression']}-->{value}<!--/num-->"

    return SPAN.sub(one, text), faults


def _blocks(text):
    """(line number, paragraph) of everything outside of code fences and of generated blocks."""
    lines, start, block = text.splitlines(), 0, []
    fenced = generated = False
    for number, line in enumerate([*lines, ""], 1):
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
            line = ""
        if line.startswith("<!-- bench:begin"):
            generated = True
        if line.startswith("<!-- bench:end"):
            generated, line = False, ""
        if fenced or generated:
            line = ""
        if line.strip():
            if not block:
                start = number
            block.append(line)
        elif block:
            yield start, "\n".join(block)
            block = []


def sourceless(text, artifact_names):
    """[(line, figure)] of figures without a span or a source; a source that names an artifact must name one that exists."""
    faults = []
    for line, block in _blocks(text):
        sources = [match["text"] for match in SOURCE.finditer(block)]
        for source in sources:
            for name in re.findall(r"[\w.-]+\.json", source):
                if name not in artifact_names:
                    faults.append((line, f"source {name}, which is not in benches/results"))
        if sources:
            continue
        prose = re.sub(r"`[^`]*`", "", SPAN.sub("", block))
        faults += [(line + prose[: match.start()].count("\n"), match[0].strip()) for match in _FIGURE.finditer(prose)]
    return faults
