#!/usr/bin/env python3
"""Generates the training and test data of the demonstration model: short questions with exactly one right answer.

A *kind* is one thing to compute (addition, sorting, ...) with several *forms* (wordings); kinds are grouped into seven tasks.
An example is (form, arguments). The split is by a hash of that pair: one pair in 32 is held out and never trained on. What is
hashed is the form with the arguments filled in, but for case and the final mark, so that what reads the same is on one side.
Forms listed under `unseen` are never trained on at all and are scored apart.

Everything follows from the seed: the same seed gives the same examples on every machine.
"""
import argparse, datetime, gzip, hashlib, itertools, json, random, re, sys
from wordlists import CITIES, COLORS, EVENTS, JOBS, MONTHS, NAMES, ROOMS, WEEKDAYS, WORDS
from chat import small_talk, system_prompt

HELD_OUT_SEED = 20251121
TASKS = {"arithmetic": 0.28, "sort": 0.12, "reverse": 0.06, "count": 0.15, "date": 0.15, "unit": 0.11, "json": 0.13}  # training shares
THINGS = "apples books cards coins cups eggs pencils stamps stones tickets".split()
PREFIXES = ["Hi! ", "Hello, ", "Quick question: ", "Please help. ", "Question: ", "Please answer: "]
SUFFIXES = [" Thanks!", " Thank you.", " Please.", " Answer briefly."]


def expand(template):
    """`<a|b> c` stands for the forms `a c` and `b c`."""
    parts = [p[1:-1].split("|") if p[0] == "<" else [p] for p in re.findall(r"<[^>]*>|[^<]+", template)]
    return ["".join(x) for x in itertools.product(*parts)]


class Kind:
    def __init__(self, task, name, sample, fields, forms, unseen, weight=1.0):
        self.task, self.name, self.sample, self.fields, self.weight = task, name, sample, fields, weight
        self.forms = [[(f"{name}/{i}.{j}", t) for j, t in enumerate(expand(f))] for i, f in enumerate(forms)]
        self.unseen = [[(f"{name}/u{i}.{j}", t) for j, t in enumerate(expand(f))] for i, f in enumerate(unseen)]

    def example(self, rng, unseen=False):
        form, template = rng.choice(rng.choice(self.unseen if unseen else self.forms))
        args = self.sample(rng)
        f = self.fields(*args)
        return dict(task=self.task, kind=self.name, form=form, prompt=template.format(**f), answer=f["answer"])


def key_of(e):
    """The form with its arguments, without what `decorate` may change."""
    return e["kind"] + "|" + e["prompt"].lower().rstrip(".?!")


def held_out(key):
    """True for one (form, arguments) pair in 32."""
    return hashlib.blake2b(key.encode(), digest_size=4).digest()[0] % 32 == 0


# ---- arithmetic ----
def operand(rng):
    return rng.randrange(10 ** rng.choice((1, 2, 3, 3)))

def sample_add(r): return operand(r), operand(r), r.choice(THINGS), r.choice(NAMES)
def sample_take(r): a, b = sorted((operand(r), operand(r))); return b, a, r.choice(THINGS), r.choice(NAMES)
def sample_times(r): return operand(r), r.randrange(10), r.choice(THINGS), r.choice(NAMES)
def sample_div(r): return operand(r), r.randrange(1, 10), r.choice(THINGS), r.choice(NAMES)
def arith(op): return lambda a, b, t, n: dict(a=a, b=b, t=t, n=n, answer=op(a, b))
def divide(a, b): return f"{a // b} remainder {a % b}" if a % b else str(a // b)

KINDS = [
    Kind("arithmetic", "add", sample_add, arith(lambda a, b: str(a + b)),
         ["{a} + {b}", "{a}+{b}", "{a} + {b} =", "{a}+{b}=?", "{a} plus {b}", "<What is|What's|How much is|What does> {a} <+|plus> {b}?", "<Calculate|Compute|Work out|Find|Evaluate|Solve> {a} <+|plus> {b}.",
          "What is {a}+{b}?", "Add {a} <and|to> {b}.", "<What is|Find|Compute|Give me> the <sum|total> of {a} and {b}.", "<What is|Can you compute|Could you calculate> {a} + {b}?",
          "{n} <has|had> {a} {t} and <gets|finds|buys|receives> {b} more. How many {t} does {n} have <now|in total>?",
          "There are {a} {t} in one <box|bag> and {b} {t} in another. How many {t} are there <in total|in all|together>?", "{n} bought {a} {t} and {b} more {t}. How many {t} is that?"],
         ["What do you get when you add {b} to {a}?", "Tell me the result of {a} + {b}."]),
    Kind("arithmetic", "subtract", sample_add, arith(lambda a, b: str(a - b)),
         ["{a} - {b}", "{a}-{b}", "{a} - {b} =", "{a}-{b}=?", "{a} minus {b}", "<What is|What's|How much is> {a} <-|minus> {b}?", "<Calculate|Compute|Work out|Find|Evaluate|Solve> {a} <-|minus> {b}.",
          "What is {a}-{b}?", "<Subtract|Deduct> {b} from {a}.", "<What is|Find|Compute|Give me> the difference {a} - {b}.", "<What remains|What is left> if you subtract {b} from {a}?"],
         ["Take {b} away from {a}.", "Tell me the result of {a} - {b}."], 0.8),
    Kind("arithmetic", "take", sample_take, arith(lambda a, b: str(a - b)),
         ["{n} has {a} {t} and <gives away|loses|sells|uses> {b}. How many {t} <are left|remain>?", "There are {a} {t} in a <box|bag|room>. {n} takes {b} of <them|the {t}>. How many {t} <are left|remain>?",
          "{n} had {a} {t} and <lost|sold|gave away> {b}. How many {t} does {n} have <now|left>?", "A shop has {a} {t} and sells {b} of them. How many <are left|remain>?"],
         ["Of {a} {t}, {b} were sold. How many {t} are left?"], 0.3),
    Kind("arithmetic", "times", sample_times, arith(lambda a, b: str(a * b)),
         ["{a} <*|x> {b}", "{b} <*|x> {a}", "{a}*{b}", "{a} * {b} =", "{a} times {b}", "<What is|What's|How much is> {a} <*|times|x|multiplied by> {b}?", "<What is|What's|How much is> {b} <*|times> {a}?",
          "<Calculate|Compute|Work out|Find|Evaluate|Solve> {a} <*|times|x> {b}.", "Multiply {a} <by|with> {b}.", "<What is|Find|Compute> the product of {a} and {b}.",
          "{n} <buys|has|owns> {b} <boxes|bags> with {a} {t} each. How many {t} <does {n} have|is that>?"],
         ["What do you get when you multiply {a} by {b}?", "Tell me the result of {a} * {b}."]),
    Kind("arithmetic", "divide", sample_div, arith(divide),
         ["{a} / {b}", "{a}/{b}", "{a} / {b} =", "<What is|What's|How much is> {a} <divided by|/> {b}?", "Divide {a} by {b}.", "<Calculate|Compute|Work out|Find|Evaluate|Solve> {a} <divided by|/> {b}.",
          "{a} divided by {b}", "<What is|Find|Compute> the quotient of {a} and {b}."], ["What do you get when you divide {a} by {b}?"]),
]


# ---- lists ----
def sample_words(low, high): return lambda r: (tuple(r.sample(WORDS, r.randint(low, high))),)
def listed(order): return lambda w: dict(l=", ".join(w), s=" ".join(w), answer=", ".join(order(w)))

NAMED = "<these words|the words|this list|the list|the following words|the following list>"
SORT_FORMS = [f"Sort {NAMED}: {{l}}", f"<Sort|Order|Arrange> {NAMED} <alphabetically|in alphabetical order|from A to Z>: {{l}}", "<Sort|Order|Arrange> <alphabetically|in alphabetical order>: {l}", "Sort: {l}",
              f"<Put|Write|Give me> {NAMED} in alphabetical order: {{l}}", "<Sort|Order|Arrange|Please sort|Can you sort> {l} <alphabetically|in alphabetical order>.", "Sort the list {l}.",
              "<Put|Write|Give me> {l} in alphabetical order.", "What is the alphabetical order of {l}?", "<Sort|Order|Arrange> <these words|the words>: {s}", "Here <is a list|are some words>: {l}. Sort <it|them>.",
              "{l}\n<Sort this list.|Sort these words.|Put these words in alphabetical order.|Sort alphabetically.>"]
KINDS += [
    Kind("sort", "sort", sample_words(2, 6), listed(sorted), SORT_FORMS, ["Please list {l} in alphabetical order.", "Alphabetize the following list: {l}"]),
    Kind("sort", "sort_down", sample_words(2, 6), listed(lambda w: sorted(w, reverse=True)),
         ["<Sort|Arrange> <these words|the words|the following words> from Z to A: {l}", "<Sort|Order|Arrange> in <reverse alphabetical|descending> order: {l}",
          f"<Sort|Put|Arrange> {NAMED} in <reverse alphabetical|descending> order: {{l}}", "<Sort|Arrange> {l} <in reverse alphabetical order|from Z to A|in descending order>."],
         ["Order this list from Z to A: {l}"], 0.35),
    Kind("reverse", "reverse", sample_words(2, 6), listed(lambda w: w[::-1]),
         [f"Reverse {NAMED}: {{l}}", "<Reverse|Please reverse|Can you reverse> {l}.", "Reverse: {l}", "<Reverse|Invert|Turn around|Change> the order of <these words|this list>: {l}", "Reverse the list {l}.",
          f"<Write|Say|List|Print|Repeat|Give me> {NAMED} <backwards|in reverse|in reverse order|back to front>: {{l}}", "Turn <this list|these words> around: {l}", "What is the reverse of {l}?",
          "<Write|Say|Print|Give me> {l} <backwards|in reverse|in reverse order>.", "Reverse <these words|the words>: {s}", "Here <is a list|are some words>: {l}. Reverse <it|them>.",
          "{l}\n<Reverse this list.|Reverse these words.|Write this list backwards.>"],
         ["List these words from last to first: {l}", "Flip this list: {l}"]),
]


# ---- counting ----
def sample_letters_or_words(r):
    items = r.sample(WORDS, 3) if r.random() < 0.5 else r.sample("abcdefghijklmnopqrstuvwxyz", 3)
    return r.choice(items), tuple(r.choice(items) for _ in range(r.randint(2, 9)))
def sample_range(r): a = operand(r); return a, a + r.randint(1, 9)
def sample_steps(r): step = r.choice((2, 3, 5, 10)); a = r.randrange(100) * (step if r.random() < 0.7 else 1); return a, step, r.randint(3, 7)
def seq(a, b, step=1): return ", ".join(map(str, range(a, b, step)))

KINDS += [
    Kind("count", "count_items", sample_words(1, 9), lambda w: dict(l=", ".join(w), s=" ".join(w), answer=str(len(w))),
         ["How many <words|items|entries|things> are <in this list|in the list|there|here>: {l}?", "Count <the|these> <words|items|entries>: {l}", "How many words are there in: {l}", "How many words: {s}",
          "<What is|Find> the <length|size> of <the list|this list:> {l}?", "Here is a list: {l}. How many <words|items|entries> <does it have|are there|are in it>?", "<Count|Find> the number of <words|items> in <this list:|the list> {l}."], ["Tell me the number of words in {l}."]),
    Kind("count", "count_word", sample_letters_or_words, lambda x, w: dict(x=x, l=", ".join(w), s=" ".join(w), answer=str(w.count(x))),
         ["How <many times|often> does {x} <appear|occur> in <this list:|the list> {l}?", "How <many times|often> does {x} <appear|occur> in {l}?", "Count {x} in <this list|the list>: {l}",
          "How <many times|often> is {x} in {s}?", "In <the|this> list {l}, how many are {x}?", "Count how <often|many times> {x} <appears|occurs>: {l}", "<Find|Count> the number of times {x} <is in|appears in> {l}."], ["Tell me the number of times {x} occurs in {l}."]),
    Kind("count", "count_up", sample_range, lambda a, b: dict(a=a, b=b, answer=seq(a, b + 1)),
         ["<Count|Count up|Please count|Can you count> from {a} to {b}.", "<List|Write|Print|Give me|Say> <the|all> numbers from {a} to {b}.", "<List|Write> the numbers {a} to {b}.", "What are the numbers from {a} to {b}?"],
         ["Start at {a} and count to {b}."], 0.6),
    Kind("count", "count_down", sample_range, lambda a, b: dict(a=a, b=b, answer=seq(b, a - 1, -1)),
         ["Count <down|backwards|back> from {b} to {a}.", "Count from {b} <down|back> to {a}.", "<List|Write|Print|Give me> the numbers from {b} down to {a}."], ["Start at {b} and count down to {a}."], 0.5),
    Kind("count", "count_steps", sample_steps, lambda a, k, n: dict(a=a, k=k, n=n, b=a + k * (n - 1), answer=seq(a, a + k * n, k)),
         ["<Count|Count up|Go> from {a} to {b} in steps of {k}.", "Count from {a} to {b} by {k}.", "<Starting at|Starting from|From> {a}, <list|write> {n} numbers in steps of {k}.", "List the numbers from {a} to {b}, adding {k} each time."], ["Begin with {a} and add {k} until you reach {b}."], 0.5),
]


# ---- dates and times ----
EPOCH = datetime.date(1950, 1, 1)
def sample_date(r): return (r.randrange(36500),)
def sample_shift(r): return r.randrange(36500), r.randint(1, 30)
def sample_minute(r): return (r.randrange(1440),)
def sample_weekday(r): return r.choice(WEEKDAYS), r.randint(1, 30)
def date_fields(answer):
    def fields(d, n=1):
        x = EPOCH + datetime.timedelta(d)
        f = dict(iso=x.isoformat(), long=f"{MONTHS[x.month - 1]} {x.day}, {x.year}", uk=f"{x.day} {MONTHS[x.month - 1]} {x.year}", us=f"{x.month:02}/{x.day:02}/{x.year}",
                 dot=f"{x.day:02}.{x.month:02}.{x.year}", after=(x + datetime.timedelta(n)).isoformat(), before=(x - datetime.timedelta(n)).isoformat(), n=n, d="day" if n == 1 else "days")
        return dict(f, answer=f[answer])
    return fields
def clock_fields(answer):
    def fields(m):
        h, m = divmod(m, 60)
        f = dict(h24=f"{h:02}:{m:02}", h12=f"{(h + 11) % 12 + 1}:{m:02} {'AM' if h < 12 else 'PM'}")
        return dict(f, answer=f[answer])
    return fields
def weekday_fields(sign): return lambda w, n: dict(w=w, n=n, d="day" if n == 1 else "days", answer=WEEKDAYS[(WEEKDAYS.index(w) + sign * n) % 7])

KINDS += [
    Kind("date", "iso_to_long", sample_date, date_fields("long"), ["<Write|Convert|Change|Turn> {iso} <to|into> a long date.", "<Write|Spell out> <{iso}|the date {iso}> in words.", "What <date|day> is {iso} in <long form|words>?",
         "Write {iso} as a long date.", "<Convert|Change> <{iso}|the date {iso}> to <long form|the form month day, year>."], ["Give me the long form of {iso}."], 0.7),
    Kind("date", "long_to_iso", sample_date, date_fields("iso"), ["Write <{long}|{uk}> <as an ISO date|as YYYY-MM-DD|in ISO format>.", "<Convert|Change> <{long}|{uk}> to <ISO format|an ISO date|YYYY-MM-DD>.",
         "What is <{long}|{uk}> <in ISO format|as an ISO date|as YYYY-MM-DD>?"], ["Give me the ISO form of {long}."], 0.7),
    Kind("date", "numeric_to_iso", sample_date, date_fields("iso"), ["<Convert|Change> <the US date {us}|the date {dot}|{dot}> to <ISO format|YYYY-MM-DD>.", "Write <the US date {us}|{dot}|the date {dot}> as <YYYY-MM-DD|an ISO date>.",
         "What is <the US date {us}|{dot}> in ISO format?"], ["Change {dot} into an ISO date."], 0.5),
    Kind("date", "days_after", sample_shift, date_fields("after"), ["<What|Which> date <is|comes> {n} {d} after {iso}?", "Add {n} {d} to {iso}.", "{iso} plus {n} {d}", "<What is|Find|Give me|Calculate> the date {n} {d} after {iso}."], ["Starting from {iso}, what is the date {n} {d} later?"]),
    Kind("date", "days_before", sample_shift, date_fields("before"), ["<What|Which> date <is|comes> {n} {d} before {iso}?", "Subtract {n} {d} from {iso}.", "{iso} minus {n} {d}", "<What is|Find|Give me|Calculate> the date {n} {d} before {iso}."], ["Starting from {iso}, what was the date {n} {d} earlier?"]),
    Kind("date", "weekday_after", sample_weekday, weekday_fields(1), ["<What day|What weekday|Which weekday|What day of the week> <is|comes> {n} {d} after {w}?", "Today is {w}. <What|Which> <day|weekday> <will it be|is it> in {n} {d}?",
         "If today is {w}, <what|which> day <is it|will it be> in {n} {d}?", "{w} plus {n} {d}"], ["It is {w} now. Which day is it {n} {d} from now?"], 0.5),
    Kind("date", "weekday_before", sample_weekday, weekday_fields(-1), ["<What day|What weekday|Which weekday|What day of the week> <is|comes|was> {n} {d} before {w}?", "Today is {w}. <What|Which> <day|weekday> was it {n} {d} ago?", "If today is {w}, what day was it {n} {d} ago?", "{w} minus {n} {d}"],
         ["It is {w} now. Which day was it {n} {d} earlier?"], 0.4),
    Kind("date", "to_12_hour", sample_minute, clock_fields("h12"), ["<Convert|Change> {h24} to <12-hour time|12-hour format|AM or PM>.", "Write {h24} <as 12-hour time|in 12-hour format|with AM or PM>.", "What <is|time is> {h24} <in 12-hour format|in 12-hour time|with AM or PM>?"],
         ["Change {h24} into 12-hour time."], 0.4),
    Kind("date", "to_24_hour", sample_minute, clock_fields("h24"), ["<Convert|Change> {h12} to <24-hour time|24-hour format>.", "Write {h12} <as 24-hour time|in 24-hour format|without AM or PM>.", "What <is|time is> {h12} in <24-hour format|24-hour time>?"],
         ["Change {h12} into 24-hour time."], 0.4),
]


# ---- units ----
UNITS = {"km": "kilometre", "m": "metre", "cm": "centimetre", "mm": "millimetre", "kg": "kilogram", "g": "gram", "l": "litre", "ml": "millilitre", "h": "hour", "min": "minute", "s": "second",
         "d": "day", "wk": "week", "yr": "year", "mo": "month", "ft": "foot", "in": "inch"}
UP = [("km", "m", 1000), ("m", "cm", 100), ("cm", "mm", 10), ("kg", "g", 1000), ("l", "ml", 1000), ("m", "mm", 1000)]
SMALL = [("h", "min", 60), ("min", "s", 60), ("d", "h", 24), ("wk", "d", 7), ("yr", "mo", 12), ("ft", "in", 12)]

def unit_name(u, plural):
    return {"foot": "feet", "inch": "inches"}.get(UNITS[u], UNITS[u] + "s") if plural else UNITS[u]
def decimal(n, factor):
    return str(n // factor) if n % factor == 0 else (str(n // factor) + "." + str(factor + n % factor)[1:]).rstrip("0")
def quantity(text, u, symbol): return f"{text} {u if symbol else unit_name(u, text != '1')}"
def sample_up(r): return r.choice(UP) + (r.randint(1, 999), r.random() < 0.5)
def sample_down(r): return r.choice(UP) + (r.randint(1, 10 ** r.choice((2, 3, 4)) - 1), r.random() < 0.5)
def sample_small(r): return r.choice(SMALL) + (r.randint(1, 60), False)
def sample_mixed(r): big, low, f = r.choice(SMALL); return big, low, f, r.randint(f + 1, min(999, 20 * f))
def convert_up(big, low, f, n, sym): return dict(x=quantity(str(n), big, sym), u=low if sym else unit_name(low, True), answer=quantity(str(n * f), low, sym))
def convert_down(big, low, f, n, sym): return dict(x=quantity(str(n), low, sym), u=big if sym else unit_name(big, True), answer=quantity(decimal(n, f), big, sym))
def convert_mixed(big, low, f, n):
    rest = " " + quantity(str(n % f), low, False) if n % f else ""
    return dict(x=quantity(str(n), low, False), u=f"{unit_name(big, True)} and {unit_name(low, True)}", answer=quantity(str(n // f), big, False) + rest)
def sample_temperature(r): return (5 * r.randint(-8, 40),)
def celsius(c): return dict(c=c, f=c * 9 // 5 + 32)

UNIT_FORMS = ["<Convert|Change|Turn> {x} <to|into> {u}.", "<What is|What's|How much is> {x} in {u}?", "How many {u} <are|is> {x}?", "How many {u} are <there in|in> {x}?", "<Express|Give me> {x} in {u}.", "{x} <in|to> {u}"]
KINDS += [
    Kind("unit", "unit_up", sample_up, convert_up, UNIT_FORMS, ["Write {x} in {u}.", "I have {x}. How much is that in {u}?"]),
    Kind("unit", "unit_down", sample_down, convert_down, UNIT_FORMS, ["Write {x} in {u}.", "I have {x}. How much is that in {u}?"]),
    Kind("unit", "unit_small", sample_small, convert_up, UNIT_FORMS, ["Write {x} in {u}."], 0.8),
    Kind("unit", "unit_mixed", sample_mixed, convert_mixed, ["<Convert|Change|Turn> {x} <to|into> {u}.", "<What is|What's|How much is> {x} in {u}?", "<Express|Give me> {x} in {u}.", "Split {x} into {u}.", "{x} <in|to> {u}"], ["Write {x} in {u}."]),
    Kind("unit", "to_fahrenheit", sample_temperature, lambda c: dict(celsius(c), answer=f"{c * 9 // 5 + 32} F"),
         ["Convert {c} C to F.", "What is {c} C in F?", "Convert {c} degrees Celsius to Fahrenheit.", "What is {c} degrees Celsius in Fahrenheit?", "{c} C in F"], ["Write {c} C in F."], 0.25),
    Kind("unit", "to_celsius", sample_temperature, lambda c: dict(celsius(c), answer=f"{c} C"),
         ["Convert {f} F to C.", "What is {f} F in C?", "Convert {f} degrees Fahrenheit to Celsius.", "What is {f} degrees Fahrenheit in Celsius?", "{f} F in C"], ["Write {f} F in C."], 0.25),
]

# ---- filling JSON from a sentence ----
def code(r): return f"{r.choice('ABCDEFGHKLMNPRSTUVWXYZ')}-{r.randrange(100, 1000)}"
def clock(r): return f"{r.randrange(24):02}:{r.randrange(60):02}"
def two(r, items): return r.sample(items, 2)
SCHEMAS = {  # name: (sampler of values, sentences, sentences never trained on)
    "person": (lambda r: dict(name=r.choice(NAMES), age=r.randint(5, 99), city=r.choice(CITIES), job=r.choice(JOBS)),
               ["{name} is {age} years old, lives in {city} and works as a {job}.", "{name} is a {job} from {city} and is {age} years old.", "I met {name}, a {job} aged {age}, in {city}.",
                "My friend {name} ({age}) works in {city} as a {job}.", "The {job} {name}, {age}, comes from {city}."], ["In {city} lives a {job} called {name}, who is {age}."]),
    "order": (lambda r: dict(customer=r.choice(NAMES), item=r.choice(WORDS), quantity=r.randint(1, 99), price=r.randint(1, 999)),
              ["{customer} ordered {quantity} pieces of {item} for {price} dollars.", "{quantity} pieces of {item} were sold to {customer} for {price} dollars.",
               "{customer} paid {price} dollars for {quantity} pieces of {item}.", "Order from {customer}: {item}, {quantity} pieces, {price} dollars."],
              ["For {price} dollars, {customer} bought {quantity} pieces of {item}."]),
    "event": (lambda r: dict(event=r.choice(EVENTS), day=r.choice(WEEKDAYS), time=clock(r), place=r.choice(ROOMS)),
              ["The {event} is on {day} at {time} in the {place}.", "On {day} at {time} there is a {event} in the {place}.", "Please come to the {place} at {time} on {day} for the {event}.",
               "The {event} starts at {time} on {day}; the place is the {place}."], ["We meet in the {place} on {day} at {time} for a {event}."]),
    "trip": (lambda r: dict(zip(("origin", "destination"), two(r, CITIES)), day=r.choice(WEEKDAYS), passengers=r.randint(1, 9)),
             ["{passengers} passengers travel from {origin} to {destination} on {day}.", "On {day} a car with {passengers} passengers goes from {origin} to {destination}.",
              "The trip from {origin} to {destination} is on {day} with {passengers} passengers.", "We leave {origin} on {day} for {destination}, {passengers} passengers in all."],
             ["A trip to {destination} from {origin} for {passengers} passengers starts on {day}."]),
    "product": (lambda r: dict(code=code(r), item=r.choice(WORDS), color=r.choice(COLORS), stock=r.randrange(1000)),
                ["Product {code} is a {color} {item}; {stock} are in stock.", "We have {stock} of the {color} {item} with code {code}.", "The {color} {item} has the code {code} and a stock of {stock}.",
                 "{item}, {color}, code {code}, stock {stock}."], ["There are {stock} pieces of {code}, a {color} {item}."]),
    "contact": (lambda r: (lambda n: dict(name=n, phone=f"{r.randrange(100, 1000)}-{r.randrange(1000, 10000)}", email=f"{n.lower()}{r.randrange(100)}@example.com"))(r.choice(NAMES)),
                ["You can reach {name} at {phone} or {email}.", "{name} has the phone number {phone} and the email address {email}.", "Call {name} at {phone} or write to {email}.",
                 "Contact: {name}, {phone}, {email}."], ["Write to {email} or call {phone} and ask for {name}."]),
}
REQUESTS = ["<Extract|Get|Find|Return> {k} <as|in> JSON: {s}", "{s}\n<Return|Write|Make|Give me> <JSON|a JSON object> with <the keys|the fields|keys> {k}.", "Fill <this|the> JSON from the <sentence|text>: {j}\n<Sentence|Text>: {s}",
            "<Write|Make|Create> a JSON object with <the keys |the fields |>{k} <for|from> this <sentence|text>: {s}", "<Text|Sentence>: {s}\n<Keys|Fields>: {k}\nJSON:", "Give me {k} from this <text|sentence> as JSON. {s}",
            "Convert this <sentence|text> to JSON with <the keys |the fields |>{k}: {s}"]
UNSEEN_REQUESTS = ["Turn this sentence into JSON with the fields {k}: {s}"]


def json_sampler(schema):
    values, keys_of_others = SCHEMAS[schema][0], sorted({"age", "price", "color", "email", "city", "place"})
    def sample(r):
        v = values(r)
        keys = r.sample(sorted(v), r.randint(2, len(v)))
        if r.random() < 0.12:  # a key that the sentence says nothing about is null
            keys.insert(r.randrange(len(keys) + 1), r.choice([k for k in keys_of_others if k not in v]))
        return tuple(v.items()), tuple(keys)
    return sample


def json_fields(template):
    def fields(items, keys):
        v = dict(items)
        return dict(k=", ".join(keys), j=json.dumps(dict.fromkeys(keys)), s=template.format(**v), answer=json.dumps({k: v.get(k) for k in keys}))
    return fields


for _schema, (_values, _seen, _unseen) in SCHEMAS.items():
    for _i, _t in enumerate(_seen):
        KINDS.append(Kind("json", f"json_{_schema}/{_i}", json_sampler(_schema), json_fields(_t), REQUESTS, UNSEEN_REQUESTS, 1 / len(_seen)))
    for _i, _t in enumerate(_unseen):
        KINDS.append(Kind("json", f"json_{_schema}/u{_i}", json_sampler(_schema), json_fields(_t), [], REQUESTS + UNSEEN_REQUESTS, 1.0))

BY_TASK = {t: [k for k in KINDS if k.task == t] for t in TASKS}
SEEN = {t: ([k for k in ks if k.forms], [k.weight for k in ks if k.forms]) for t, ks in BY_TASK.items()}


def decorate(rng, prompt, keep_case):
    """Sometimes polite words around the question, a small first letter, no final mark; none of this is part of the form."""
    if not keep_case and rng.random() < 0.05: prompt = prompt[0].lower() + prompt[1:]
    if rng.random() < 0.05: prompt = prompt.rstrip(".?!")
    if rng.random() < 0.06: prompt = rng.choice(PREFIXES) + prompt
    if rng.random() < 0.06 and prompt[-1] in ".?!": prompt += rng.choice(SUFFIXES)
    return prompt


def example(rng, split="train", task=None):
    """One example of `split`: train, held_out or unseen (forms that are never trained on)."""
    task = task or rng.choices(list(TASKS), TASKS.values())[0]
    while True:
        if split == "unseen":
            e = rng.choice(BY_TASK[task]).example(rng, unseen=True)
        else:
            e = rng.choices(*SEEN[task])[0].example(rng)
            if held_out(key_of(e)) != (split == "held_out"): continue
        e["key"] = key_of(e)
        e["prompt"] = decorate(rng, e["prompt"], e["task"] == "json")
        return e


def conversation(rng):
    """One training conversation as a list of messages: one turn mostly, up to five, sometimes under a system prompt."""
    messages, name = [], None
    if rng.random() < 0.2:
        text, name = system_prompt(rng)
        messages.append(dict(role="system", content=text))
    turns = 1 if rng.random() < 0.8 else rng.randint(2, 5)
    for _ in range(turns):
        if rng.random() < (0.05 if turns == 1 else 0.2): user, reply = small_talk(rng, *([name] if name else []))
        else: e = example(rng); user, reply = e["prompt"], e["answer"]
        messages += [dict(role="user", content=user), dict(role="assistant", content=reply)]
    return messages


def test_set(split, count, seed=HELD_OUT_SEED):
    """`count` distinct (form, arguments) pairs, the tasks in turn; one in five has a system prompt."""
    rng, seen, out = random.Random(f"{split}-{seed}"), set(), []
    while len(out) < count:
        e = example(rng, split, list(TASKS)[len(out) % len(TASKS)])
        if e["key"] in seen: continue
        seen.add(e["key"])
        system = system_prompt(rng)[0] if rng.random() < 0.2 else None
        messages = ([dict(role="system", content=system)] if system else []) + [dict(role="user", content=e["prompt"])]
        out.append(dict(id=f"{split}-{len(out):04}", task=e["task"], form=e["form"], messages=messages, answer=e["answer"]))
    return out


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("split", choices=("train", "held_out", "unseen"), help="what to write, one JSON object a line")
    ap.add_argument("--count", type=int, default=5000, help="number of examples (default %(default)s)")
    ap.add_argument("--seed", type=int, default=HELD_OUT_SEED, help="default %(default)s")
    ap.add_argument("--out", default="-", help="file, .gz to compress; standard output when absent")
    a = ap.parse_args()
    if a.split == "train":
        rng = random.Random(f"train-{a.seed}")
        rows = [dict(messages=conversation(rng)) for _ in range(a.count)]
    else: rows = test_set(a.split, a.count, a.seed)
    text = "".join(json.dumps(r) + "\n" for r in rows)
    if a.out == "-": sys.stdout.write(text)
    else:
        with (gzip.open(a.out, "wt") if a.out.endswith(".gz") else open(a.out, "w")) as f: f.write(text)
    print(f"{len(rows)} rows, SHA-256 {hashlib.sha256(text.encode()).hexdigest()}", file=sys.stderr)


if __name__ == "__main__": main()
