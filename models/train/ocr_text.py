"""Text for the pictures: words, invented words, random letter strings, names, dates, prices, numbers, sentences, receipts, tables.

All is printable ASCII. A model that only guesses likely English does badly on it, because much of it is no English at all.
"""
import hashlib, random, string
from wordlists import CITIES, COLORS, EVENTS, JOBS, MONTHS, NAMES, ROOMS, WEEKDAYS, WORDS

COMMON = """
the of and to in a is that for it as was with be by on not he his but at are this have from or had an they which one you were all her she there
would their we him been has when who will no more if out so up said what its about than into them can only other time new some could these two may
first then do any like my now over such our man me even most made after also did many off before must well back through years much where your way down
should because long each just state those people too mr how little good world make very year still see own work men day get here old between both
life being under three never know same last another while us might great go come since against right came take used himself few house american use
place during high without again home around small however found mrs thought went say part once general upon school every does got united left number
course war until always away something fact public hand though less put almost better took head far system city think set told nothing night end
business company service order price total amount delivery address customer account payment invoice balance number received quality product model
report section project office market value result change group problem question answer example information development government international
available possible important different national university community following according including between without through because together
quick brown jumps lazy quiet question zero exact maximum size extra box mix quartz jazz fuzzy whiskey vex waltz nymph query unique require liquid
kitchen morning afternoon weather travel station ticket platform journey luggage passport airport receipt refund discount coupon voucher membership
please thank welcome open closed hours monday enquiry telephone mobile email website street avenue road square floor suite building department
""".split()
LISTED = WORDS + JOBS + COLORS + EVENTS + ROOMS
ONSETS = "b bl br c ch cl cr d dr f fl fr g gl gr h j k kl l m n p ph pl pr qu r s sc sh sk sl sm sn sp st str sw t th tr tw v w wh x y z".split()
VOWELS = "a e i o u a e i o u ai au ea ee ie io oa oo ou y".split()
CODAS = ["", "", "", "", "b", "ck", "d", "f", "g", "l", "ll", "m", "n", "nd", "ng", "nt", "p", "r", "rd", "rm", "rn", "rt", "s", "ss", "st", "t", "tt", "x", "z", "ff", "lk", "mp"]
SURNAME_ENDS = ["son", "man", "berg", "stein", "ley", "ton", "field", "ford", "wood", "er", "ez", "ini", "ov", "sen", "ski", "elli"]
PRODUCTS = """coffee espresso cappuccino tea juice water bread butter cheese milk eggs ham salad soup pasta pizza burger fries rice chicken beef fish
apples bananas tomatoes onions potatoes carrots yogurt cereal sugar flour oil salt pepper chocolate cookies cake muffin croissant bagel sandwich wrap
soap shampoo toothpaste towel batteries cable charger adapter notebook pen pencil stapler tape paper folder envelope stamps lamp bulb candle vase
shirt socks jeans jacket gloves scarf hat belt shoes ticket parking service cleaning repair delivery rental""".split()
SIZES = ["", "", "", " S", " M", " L", " XL", " 250g", " 500g", " 1kg", " 330ml", " 0.5l", " 2x", " x3", " #4", " 12pk", " No.5"]
PUNCTUATION = string.punctuation


def invented(r):
    return "".join(r.choice(ONSETS) + r.choice(VOWELS) + r.choice(CODAS) for _ in range(r.choice((1, 2, 2, 3, 3, 4))))


def random_string(r):
    alphabet = r.choice((string.ascii_lowercase, string.ascii_uppercase, string.ascii_letters, string.ascii_letters + string.digits,
                         string.ascii_uppercase + string.digits, string.digits, string.ascii_letters + string.digits + PUNCTUATION))
    return "".join(r.choices(alphabet, k=r.randint(1, 10)))


def cased(r, w):
    u = r.random()
    return w if u < 0.74 else w.capitalize() if u < 0.9 else w.upper()


def word(r):
    u = r.random()
    if u < 0.4: return r.choice(COMMON)
    if u < 0.55: return r.choice(LISTED)
    if u < 0.8: return invented(r)
    if u < 0.94: return cased(r, r.choice(COMMON) + r.choice(("s", "ed", "ing", "ly", "er", "ness", "'s", "-" + r.choice(COMMON))))
    return random_string(r)


def name(r):
    first = r.choice(NAMES) if r.random() < 0.6 else invented(r).capitalize()
    last = (invented(r) + (r.choice(SURNAME_ENDS) if r.random() < 0.5 else "")).capitalize()
    return r.choice(("{f} {l}", "{f} {l}", "{f} {i}. {l}", "Mr. {l}", "Ms. {l}", "Dr. {f} {l}", "{l}, {f}")).format(f=first, l=last, i=r.choice(string.ascii_uppercase))


def date(r):
    y, m, d = r.randint(1950, 2049), r.randint(1, 12), r.randint(1, 28)
    return r.choice((f"{y}-{m:02}-{d:02}", f"{d:02}.{m:02}.{y}", f"{m:02}/{d:02}/{y}", f"{d:02}/{m:02}/{y % 100:02}", f"{MONTHS[m - 1]} {d}, {y}", f"{d} {MONTHS[m - 1]} {y}",
                     f"{MONTHS[m - 1][:3]} {d}", f"{r.choice(WEEKDAYS)}, {d} {MONTHS[m - 1]}", f"{d} {MONTHS[m - 1][:3]} {y}"))


def clock(r):
    h, m = r.randint(0, 23), r.randint(0, 59)
    return r.choice((f"{h:02}:{m:02}", f"{h:02}:{m:02}:{r.randint(0, 59):02}", f"{(h - 1) % 12 + 1}:{m:02} {r.choice(('AM', 'PM'))}"))


def number(r):
    n = r.randrange(10 ** r.randint(1, 7))
    return r.choice((str(n), str(n), f"{n:,}", f"{n / 100:.2f}", f"{n / 1000:.3f}", f"{r.randint(0, 100)}%", f"-{n}", f"+{n}", f"{n % 1000 / 10:.1f}", f"({n})", f"#{n}", f"No. {n}"))


def amount(r):
    n = r.randrange(10 ** r.randint(2, 6))
    return f"{n / 100:,.2f}"


def price(r):
    a = amount(r)
    return r.choice(("$" + a, "$" + a, a, a, a + " EUR", "USD " + a, a + " USD", "-" + a, "EUR " + a, a.replace(",", ";").replace(".", ",").replace(";", ".")))


def contact(r):
    a, b = invented(r), invented(r)
    return r.choice((f"{a}@{b}.{r.choice(('com', 'org', 'net', 'de', 'io'))}", f"www.{a}{b}.{r.choice(('com', 'org', 'net'))}", f"https://{a}.{r.choice(('com', 'io'))}/{b}?id={r.randrange(1000)}",
                     f"+{r.randint(1, 99)} {r.randint(100, 999)} {r.randrange(10 ** 6)}", f"({r.randint(200, 999)}) {r.randint(200, 999)}-{r.randint(1000, 9999)}",
                     f"{r.randint(1, 9999)} {a.capitalize()} {r.choice(('St.', 'Street', 'Ave.', 'Road', 'Lane'))}", f"{r.choice(CITIES)} {r.randint(10000, 99999)}", f"{a}_{b}", f"{a}/{b}.{r.choice(('txt', 'py', 'cc', 'pdf'))}"))


def atom(r):
    """A piece of a sentence: mostly words, some values."""
    u = r.random()
    if u < 0.86: return word(r)
    return r.choice((name, date, clock, number, price, contact, number, price))(r)


def sentence(r):
    words = [atom(r) for _ in range(r.randint(2, 14))]
    out = ""
    for i, w in enumerate(words):
        out += w
        if i + 1 < len(words):
            u = r.random()
            out += " " if u < 0.9 else r.choice((", ", ", ", "; ", ": ", " - ", " & ", "/", " + ", " = "))
    u = r.random()
    if u < 0.05: out = out.upper()
    elif u < 0.1: out = out.title()
    else: out = out[0].upper() + out[1:]
    u = r.random()
    if u < 0.04: out = '"' + out + '"'
    elif u < 0.07: out = "(" + out + ")"
    return out + r.choice((".", ".", ".", ".", "!", "?", "", "..."))


def paragraph(r, limit):
    """Sentences of up to `limit` characters in all; a word may be cut off at the end, whole words only."""
    out = sentence(r)
    while len(out) < limit: out += " " + sentence(r)
    if len(out) > limit: out = out[:limit + 1].rsplit(" ", 1)[0] if " " in out[:limit + 1] else out[:limit]
    return out.strip()


def line(r, limit):
    """One line of up to `limit` characters, of any kind."""
    u = r.random()
    if u < 0.5: out = paragraph(r, limit)
    elif u < 0.65: out = " ".join(word(r) if r.random() < 0.7 else cased(r, word(r)) for _ in range(r.randint(1, 6)))
    elif u < 0.71: out = " ".join(random_string(r) for _ in range(r.randint(1, 5)))
    elif u < 0.95: out = r.choice((name, date, clock, number, price, contact))(r)
    else: out = r.choice(("Total", "Date", "Name", "Invoice", "Order", "Ref", "Tel", "ID", "Qty", "Page")) + ": " + r.choice((name, date, number, price))(r)
    return out[:limit].strip()


def shop(r):
    return r.choice(("{}", "{} & Sons", "The {}", "{} Market", "{} Cafe", "{} Store", "{} GmbH", "Hotel {}", "{} Ltd.", "{} Bakery")).format(invented(r).capitalize())


def receipt(r, limit=10 ** 9):
    """Rows of a receipt: ("center" | "pair" | "left" | "rule", texts, emphasis)."""
    rows = [("center", (shop(r),), 1)]
    for _ in range(r.randint(0, 2)): rows.append(("center", (contact(r),), 0))
    if r.random() < 0.7: rows.append(("pair", (date(r), clock(r)), 0) if r.random() < 0.5 else ("center", (date(r) + " " + clock(r),), 0))
    if r.random() < 0.4: rows.append(("left", (r.choice(("Receipt ", "Table ", "Order #", "Cashier: ", "Invoice No. ")) + str(r.randrange(10 ** r.randint(1, 6))),), 0))
    if r.random() < 0.6: rows.append(("rule", (), 0))
    for _ in range(r.randint(1, 9)):
        if r.random() < 0.75: item = (r.choice(PRODUCTS).capitalize() if r.random() < 0.6 else invented(r).capitalize()) + (" " + word(r) if r.random() < 0.3 else "") + r.choice(SIZES)
        else: item = f"{r.randint(1, 12)} x {r.choice(PRODUCTS)}"
        rows.append(("pair", (item.upper() if r.random() < 0.15 else item, amount(r) if r.random() < 0.75 else price(r)), 0))
    if r.random() < 0.6: rows.append(("rule", (), 0))
    for label in r.sample(("Subtotal", "Tax 7%", "VAT 19%", "Discount", "Tip", "Service"), r.randint(0, 2)): rows.append(("pair", (label, amount(r)), 0))
    rows.append(("pair", (r.choice(("Total", "TOTAL", "Amount due", "SUM", "Total USD", "Total EUR")), price(r)), 1))
    if r.random() < 0.4: rows.append(("pair", (r.choice(("Cash", "Card", "VISA", "Change", "Paid")), amount(r)), 0))
    if r.random() < 0.5: rows.append(("center", (r.choice(("Thank you!", "Thank you for your visit!", "Please come again", "Have a nice day!", "*** COPY ***", "Keep this receipt.")),), 0))
    while sum(len(" ".join(t)) + 1 for _, t, _ in rows) > limit and len(rows) > 3: rows.pop(r.randrange(1, len(rows) - 1))
    return rows


def table(r, limit=10 ** 9):
    """Rows of cells and whether the first row is a heading."""
    columns, rows = r.randint(2, 5), r.randint(2, 10)
    kinds = [r.choice((lambda r: cased(r, word(r)), lambda r: word(r).capitalize() + " " + word(r), number, amount, amount, price, lambda r: str(r.randrange(1000)), date, name, random_string)) for _ in range(columns)]
    if r.random() < 0.6: kinds[0] = r.choice((lambda r: word(r).capitalize(), name, lambda r: r.choice(PRODUCTS)))
    head = r.random() < 0.7
    out = [[word(r).capitalize() for _ in range(columns)]] if head else []
    while len(out) < rows: out.append([k(r) for k in kinds])
    while sum(len(" ".join(x)) + 1 for x in out) > limit and len(out) > 2: out.pop()
    return out, head


def held_out(text):
    """True for one text in 32: those are never trained on."""
    return hashlib.blake2b(("ocr|" + text).encode(), digest_size=4).digest()[0] % 32 == 0


if __name__ == "__main__":
    r = random.Random(1)
    for f in (line, line, line, paragraph): print(repr(f(r, 120)))
    print(receipt(r)); print(table(r))
