"""What the two scorers share: the character error rate, the bars and the table."""

# Rows of the table with the highest error rate allowed; None is only reported.
BARS = {
    "lines": 0.015,
    "receipts": 0.015,
    "blocks": 0.015,
    "pages": 0.03,
    "tables": 0.03,
    "fonts": 0.06,
    "small": None,
    "otsl": None,
}


def normalise(text):
    """Runs of blanks count as one, blanks at the ends of lines and empty lines as none; line breaks are characters."""
    return "\n".join(x for x in (" ".join(line.split()) for line in text.split("\n")) if x)


def distance(a, b):
    """Levenshtein distance, bit-parallel (Myers 1999 in the form of Hyyro 2003)."""
    if not a:
        return len(b)
    where, last, full = {}, 1 << (len(a) - 1), (1 << len(a)) - 1
    for i, c in enumerate(a):
        where[c] = where.get(c, 0) | 1 << i
    pv, mv, d = full, 0, len(a)
    for c in b:
        eq = where.get(c, 0)
        xv, xh = eq | mv, (((eq & pv) + pv) ^ pv) | eq
        ph, mh = mv | (full & ~(xh | pv)), pv & xh
        d += bool(ph & last) - bool(mh & last)
        ph, mh = (ph << 1) | 1, mh << 1
        pv, mv = (mh | ~(xv | ph)) & full, ph & xv & full
    return d


class Table:
    def __init__(self):
        self.rows = {}

    def add(self, row, answer, got):
        a, g = normalise(answer), normalise(got)
        n = self.rows.setdefault(row, [0, 0, 0, 0])
        for i, x in enumerate((1, len(a), distance(a, g), a == g)):
            n[i] += x

    def scores(self):
        return {
            k: dict(pictures=n, characters=c, errors=e, error_rate=round(e / c, 5), exact=round(x / n, 4), bar=BARS.get(k))
            for k, (n, c, e, x) in self.rows.items()
        }

    def print(self):
        print(f"{'row':10} {'pictures':>8} {'characters':>10} {'errors':>7} {'error rate':>10} {'exact':>7}   bar")
        for k, s in self.scores().items():
            bar = s["bar"]
            print(
                f"{k:10} {s['pictures']:8} {s['characters']:10} {s['errors']:7} {100 * s['error_rate']:9.2f}% {100 * s['exact']:6.1f}%   "
                + ("-" if bar is None else f"{100 * bar:.1f}% {'met' if s['error_rate'] <= bar else 'MISSED'}")
            )

    def met(self):
        return all(s["bar"] is None or s["error_rate"] <= s["bar"] for s in self.scores().values())
