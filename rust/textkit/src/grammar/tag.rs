//! Choices and structural tags as Lark grammars.

use serde_json::Value;

use super::compile::Limits;
use super::gbnf;
use super::{Error, Res};

/// Turns a schema into the form that is enforced; the second argument says where it stands.
pub type Prepare<'a> = dyn FnMut(&Value, &str) -> Res<Value> + 'a;

/// Groups of regexes and grammars are nested no deeper than `depth`.
pub fn check_nesting(text: &str, depth: usize) -> Res<()> {
    let (mut level, mut deepest, mut escaped) = (0usize, 0usize, false);
    for b in text.bytes() {
        match b {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'(' | b'[' | b'{' => level += 1,
            b')' | b']' | b'}' => level = level.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(level);
    }
    if deepest > depth {
        return Err(Error::TooLarge(format!("the grammar is nested deeper than {depth} levels")));
    }
    Ok(())
}

/// A string literal of Lark.
pub fn literal(text: &str) -> String {
    serde_json::Value::from(text).to_string().replace('\u{7f}', "\\u007f")
}

pub fn choice(value: &Value) -> Res<String> {
    let fail = || Error::Invalid("a choice is a list of texts that are not empty".into());
    let list = value.as_array().filter(|l| !l.is_empty()).ok_or_else(fail)?;
    let mut texts = Vec::with_capacity(list.len());
    for v in list {
        texts.push(literal(v.as_str().filter(|t| !t.is_empty()).ok_or_else(fail)?));
    }
    Ok(format!("start: CHOICE\nCHOICE: {}\n", texts.join(" | ")))
}

/// Any text in which none of `texts` is found, with `suffix` (a regex) behind it.
fn text_without(texts: &[&str], suffix: &str) -> String {
    let alternatives = texts.iter().map(|t| quoted(t)).collect::<Vec<_>>().join("|");
    match suffix.is_empty() {
        true => format!("/(?s:.*)/ & ~/(?s:.*)({alternatives})(?s:.*)/"),
        // Nothing may be found but what ends the whole.
        false => format!("/(?s:.*)({suffix})/ & ~/(?s:.*)({alternatives})(?s:.+)/"),
    }
}

/// The text as a regex that stands between slashes.
fn quoted(text: &str) -> String {
    text.chars().map(|c| if c.is_alphanumeric() { c.to_string() } else { format!("\\u{{{:X}}}", c as u32) }).collect()
}

pub fn structural(value: &Value, special: &[(String, u32)], prepare: &mut Prepare, limits: &Limits) -> Res<String> {
    let mut w = Writer { special, prepare, rules: Vec::new(), limits };
    let start = match value.get("format") {
        Some(format) => w.format(format, "/format", true)?,
        None => {
            let list = value.get("structures").and_then(Value::as_array);
            let list = list.ok_or_else(|| wrong("", "has neither \"format\" nor \"structures\""))?;
            let mut tags = Vec::new();
            for (i, s) in list.iter().enumerate() {
                let at = format!("/structures/{i}");
                let schema = s.get("schema").unwrap_or(&Value::Bool(true));
                let (begin, end) = (text(s, "begin", &at)?, text(s, "end", &at)?);
                tags.push(Tag { begin, body: Body::Schema(schema, format!("{at}/schema")), end });
            }
            w.triggered(&texts(value, "triggers", "")?, &tags, "", false, false)?
        }
    };
    Ok(format!("start: {start}\n{}", w.rules.concat()))
}

fn wrong(at: &str, why: &str) -> Error {
    Error::Invalid(format!("the structural tag{}{at} {why}", if at.is_empty() { "" } else { " at " }))
}

fn text(v: &Value, key: &str, at: &str) -> Res<String> {
    let text = v.get(key).and_then(Value::as_str);
    text.map(str::to_string).ok_or_else(|| wrong(at, &format!("has no text \"{key}\"")))
}

fn texts(v: &Value, key: &str, at: &str) -> Res<Vec<String>> {
    let fail = || wrong(at, &format!("has no list of texts \"{key}\""));
    let list = v.get(key).and_then(Value::as_array).filter(|l| !l.is_empty()).ok_or_else(fail)?;
    list.iter().map(|t| t.as_str().filter(|t| !t.is_empty()).map(str::to_string).ok_or_else(fail)).collect()
}

struct Tag<'v> {
    begin: String,
    body: Body<'v>,
    end: String,
}

enum Body<'v> {
    Schema(&'v Value, String),
    Format(&'v Value, String),
}

enum Piece<'t> {
    Text(&'t str),
    Special(u32),
}

struct Writer<'w, 'p> {
    special: &'w [(String, u32)],
    prepare: &'w mut Prepare<'p>,
    rules: Vec<String>,
    limits: &'w Limits,
}

impl Writer<'_, '_> {
    fn rule(&mut self, body: &str) -> String {
        let name = format!("r{}", self.rules.len());
        self.rules.push(format!("{name}: {body}\n"));
        name
    }

    fn terminal(&mut self, body: &str) -> String {
        let name = format!("T{}", self.rules.len());
        self.rules.push(format!("{name}: {body}\n"));
        name
    }

    /// The text cut at special tokens, which no other tokens can spell.
    fn pieces<'t>(&self, text: &'t str) -> Vec<Piece<'t>> {
        let (mut out, mut from, mut at) = (Vec::new(), 0, 0);
        while at < text.len() {
            let here = self.special.iter().filter(|(name, _)| text.as_bytes()[at..].starts_with(name.as_bytes()));
            let Some((name, id)) = here.max_by_key(|(name, _)| name.len()) else {
                at += 1;
                continue;
            };
            if from < at {
                out.push(Piece::Text(&text[from..at]));
            }
            out.push(Piece::Special(*id));
            at += name.len();
            from = at;
        }
        if from < text.len() {
            out.push(Piece::Text(&text[from..]));
        }
        out
    }

    fn constant(&self, text: &str) -> String {
        let pieces = self.pieces(text);
        let each = pieces.iter().map(|p| match p {
            Piece::Text(t) => literal(t),
            Piece::Special(id) => format!("<[{id}]>"),
        });
        each.collect::<Vec<_>>().join(" ")
    }

    fn schema(&mut self, schema: &Value, at: &str) -> Res<String> {
        let prepared = (self.prepare)(schema, at)?;
        Ok(format!("%json {prepared}"))
    }

    /// `last`: nothing follows it but the end of the answer.
    fn format(&mut self, f: &Value, at: &str, last: bool) -> Res<String> {
        let kind = text(f, "type", at)?;
        let flag = |key: &str| f.get(key).and_then(Value::as_bool).unwrap_or(false);
        match kind.as_str() {
            "const_string" => Ok(format!("({})", self.constant(&text(f, "value", at)?))),
            "json_schema" => {
                let schema = f.get("json_schema").ok_or_else(|| wrong(at, "has no \"json_schema\""))?;
                let body = self.schema(schema, &format!("{at}/json_schema"))?;
                Ok(self.rule(&body))
            }
            "regex" => {
                let pattern = text(f, "pattern", at)?;
                check_nesting(&pattern, self.limits.depth)?;
                let body = format!("/{}/", llguidance::regex_to_lark(&pattern, ""));
                Ok(self.terminal(&body))
            }
            "grammar" => {
                let grammar = gbnf::to_lark(&text(f, "grammar", at)?, self.limits)?;
                Ok(self.rule(&format!("%lark {{\n{grammar}\n}}")))
            }
            "any_text" if last => Ok(self.terminal("/(?s:.*)/")),
            "any_text" => Err(Error::Unsupported(format!("free text at {at} has no end that could be told from it"))),
            "sequence" | "or" => {
                let list = f.get("elements").and_then(Value::as_array).filter(|l| !l.is_empty());
                let list = list.ok_or_else(|| wrong(at, "has no \"elements\""))?;
                let mut parts = Vec::new();
                for (i, element) in list.iter().enumerate() {
                    let ends = last && (kind == "or" || i + 1 == list.len());
                    parts.push(self.format(element, &format!("{at}/elements/{i}"), ends)?);
                }
                Ok(self.rule(&parts.join(if kind == "or" { " | " } else { " " })))
            }
            "tag" => {
                let tag = self.tag(f, at)?;
                self.whole(&tag)
            }
            "triggered_tags" => {
                let tags = self.tags(f, at)?;
                self.triggered(&texts(f, "triggers", at)?, &tags, at, flag("at_least_one"), flag("stop_after_first"))
            }
            "tags_with_separator" => {
                let tags = self.tags(f, at)?;
                let each = tags.iter().map(|t| self.whole(t)).collect::<Res<Vec<_>>>()?;
                let one = self.rule(&each.join(" | "));
                let separator = f.get("separator").and_then(Value::as_str).unwrap_or_default();
                let separator = self.constant(separator);
                let many = if flag("stop_after_first") { one } else { format!("{one} ({separator} {one})*") };
                Ok(self.rule(&if flag("at_least_one") { many } else { format!("({many})?") }))
            }
            _ => Err(Error::Unsupported(format!("the structural tag at {at} has the type \"{kind}\", which is not known"))),
        }
    }

    fn tag<'v>(&self, f: &'v Value, at: &str) -> Res<Tag<'v>> {
        let content = f.get("content").ok_or_else(|| wrong(at, "has no \"content\""))?;
        let body = Body::Format(content, format!("{at}/content"));
        Ok(Tag { begin: text(f, "begin", at)?, body, end: text(f, "end", at)? })
    }

    fn tags<'v>(&self, f: &'v Value, at: &str) -> Res<Vec<Tag<'v>>> {
        let list = f.get("tags").and_then(Value::as_array).filter(|l| !l.is_empty());
        let list = list.ok_or_else(|| wrong(at, "has no \"tags\""))?;
        list.iter().enumerate().map(|(i, t)| self.tag(t, &format!("{at}/tags/{i}"))).collect()
    }

    fn whole(&mut self, tag: &Tag) -> Res<String> {
        let begin = self.constant(&tag.begin);
        let rest = self.inside(tag)?;
        Ok(self.rule(&format!("{begin} {rest}")))
    }

    /// What stands behind the begin of a tag, its end included.
    fn inside(&mut self, tag: &Tag) -> Res<String> {
        let end = self.constant(&tag.end);
        let (format, at) = match &tag.body {
            Body::Schema(schema, at) => {
                let body = self.schema(schema, at)?;
                return Ok(format!("{} {end}", self.rule(&body)));
            }
            Body::Format(format, at) => (format, at),
        };
        if format.get("type").and_then(Value::as_str) != Some("any_text") {
            return Ok(format!("{} {end}", self.format(format, at, false)?));
        }
        // Free text goes to where the end begins.
        match &self.pieces(&tag.end)[..] {
            [Piece::Text(t)] => {
                let body = text_without(&[t], &quoted(t));
                Ok(self.terminal(&body))
            }
            [Piece::Special(_), ..] => Ok(format!("{} {end}", self.terminal("/(?s:.*)/"))),
            _ => Err(Error::Unsupported(format!("free text at {at} has no end that could be told from it"))),
        }
    }

    /// Free text in which a trigger is only found where one of its tags begins.
    fn triggered(&mut self, triggers: &[String], tags: &[Tag], at: &str, some: bool, once: bool) -> Res<String> {
        let plain: Vec<&str> =
            triggers.iter().filter(|t| matches!(self.pieces(t)[..], [Piece::Text(_)])).map(String::as_str).collect();
        let free = match plain.is_empty() {
            true => self.terminal("/(?s:.*)/"),
            false => self.terminal(&text_without(&plain, "")),
        };
        let mut each = Vec::new();
        let mut used = 0;
        for trigger in triggers {
            let mut rests = Vec::new();
            for tag in tags.iter().filter(|t| t.begin.starts_with(trigger.as_str())) {
                let behind = self.constant(&tag.begin[trigger.len()..]);
                let inside = self.inside(tag)?;
                rests.push(self.rule(&format!("{behind} {inside}")));
                used += 1;
            }
            if rests.is_empty() {
                return Err(wrong(at, &format!("has the trigger {trigger:?}, with which no tag begins")));
            }
            let lead = match &self.pieces(trigger)[..] {
                [Piece::Text(t)] => self.terminal(&text_without(&plain, &quoted(t))),
                [Piece::Special(_), ..] => format!("{free} {}", self.constant(trigger)),
                _ => return Err(wrong(at, &format!("has the trigger {trigger:?}, which has a special token inside"))),
            };
            each.push(self.rule(&format!("{lead} ({})", rests.join(" | "))));
        }
        if used < tags.len() {
            return Err(wrong(at, "has a tag that begins with no trigger"));
        }
        let one = self.rule(&each.join(" | "));
        let tail = if once { String::new() } else { format!(" {free}") };
        let body = match (some, once) {
            (true, true) => one,
            (true, false) => format!("{one}+{tail}"),
            (false, true) => format!("{one} | {free}"),
            (false, false) => format!("{one}*{tail}"),
        };
        Ok(self.rule(&body))
    }
}
