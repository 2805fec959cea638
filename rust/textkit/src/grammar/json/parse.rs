//! From the keywords of a schema to alternatives.

use std::collections::{BTreeSet, HashMap};
use std::rc::Rc;

use serde_json::{Map, Value};

use super::super::compile::{Limits, Options};
use super::super::{Error, Res};
use super::keywords::{applies_in_place, FORMATS, IN_PLACE, NUMERIC, OF_ARRAYS, OF_OBJECTS, TEXTUAL};
use super::node::{any, every_type, never, trim_array, Alt, Arr, Bound, Node, Num};
use super::pattern::{from_ecma, Patterns};
use super::refs::Definition;
use super::strings::Str;
use super::{invalid, join, place, unsupported};

pub struct Context<'a> {
    pub document: &'a Value,
    pub options: Options,
    pub warnings: Vec<String>,
    pub patterns: Patterns,
    pub level: usize,
    pub definitions: Vec<Definition>,
    pub known: HashMap<String, usize>,
    pub resources: HashMap<String, String>,
    pub anchors: HashMap<(String, String), String>,
    pub expanded: HashMap<Rc<BTreeSet<usize>>, Node>,
    at: &'a str,
    spent: u64,
    most: u64,
}

/// Above this, doubles leave integers out.
const EXACT: f64 = 9_007_199_254_740_992.0;

impl<'a> Context<'a> {
    pub fn new(document: &'a Value, at: &'a str, options: Options, limits: &Limits) -> Context<'a> {
        Context {
            document,
            options,
            warnings: Vec::new(),
            patterns: Patterns::default(),
            level: 0,
            definitions: Vec::new(),
            known: HashMap::new(),
            resources: HashMap::new(),
            anchors: HashMap::new(),
            expanded: HashMap::new(),
            at,
            spent: 0,
            most: limits.nodes as u64,
        }
    }

    pub fn root(&mut self) -> Res<Node> {
        self.find_names();
        let number = self.resolve("#", "", "")?;
        self.expand(&Rc::new(BTreeSet::from([number])))
    }

    pub fn spend(&mut self, amount: u64) -> Res<()> {
        self.spent = self.spent.saturating_add(amount);
        if self.spent > self.most {
            return Err(Error::TooLarge(format!("{}: it takes more than {} parts", place(self.at), self.most)));
        }
        Ok(())
    }

    /// The keyword is left out where the caller has asked for that; else the error stands.
    fn leave_out(&mut self, error: Error) -> Res<()> {
        if !self.options.lenient || !matches!(error, Error::Unsupported(_)) {
            return Err(error);
        }
        self.warnings.push(error.message().to_string());
        Ok(())
    }

    pub fn parse(&mut self, schema: &Value, at: &str, base: &str) -> Res<Node> {
        self.spend(1)?;
        let s = match schema {
            Value::Bool(true) => return Ok(any()),
            Value::Bool(false) => return Ok(never()),
            Value::Object(s) => s,
            _ => return Err(Error::Invalid(format!("{}: it is no schema (an object or a boolean)", place(at)))),
        };
        let base = if s.get("$id").and_then(Value::as_str).is_some_and(|id| !id.starts_with('#')) { at } else { base };
        let mut node = self.by_type(s, at, base)?;
        for keyword in IN_PLACE.iter().chain(&["const"]) {
            let Some(v) = s.get(*keyword) else { continue };
            let level = self.level;
            let met = self.in_place(keyword, v, s, at, base);
            match met {
                Ok(Some(other)) => node = self.meet(&node, &other)?,
                Ok(None) => {}
                Err(e) => {
                    self.level = level;
                    self.leave_out(e)?;
                }
            }
        }
        Ok(node)
    }

    fn by_type(&mut self, s: &Map<String, Value>, at: &str, base: &str) -> Res<Node> {
        let fail = || invalid(at, "type", "is none of JSON Schema's types");
        let named: Vec<&str> = match s.get("type") {
            None => {
                let ours = |keys: &[&str]| keys.iter().any(|k| s.contains_key(*k));
                if !(ours(&NUMERIC) || ours(&TEXTUAL) || ours(&OF_ARRAYS) || ours(&OF_OBJECTS)) {
                    return Ok(any());
                }
                vec!["null", "boolean", "number", "string", "array", "object"]
            }
            Some(Value::String(t)) => vec![t],
            Some(Value::Array(list)) => list.iter().map(|t| t.as_str().ok_or_else(fail)).collect::<Res<_>>()?,
            Some(_) => return Err(fail()),
        };
        let mut alts = Vec::new();
        for name in named.iter().filter(|n| **n != "integer" || !named.contains(&"number")) {
            match *name {
                "null" => alts.push(Alt::Null),
                "boolean" => alts.extend([Alt::Bool(true), Alt::Bool(false)]),
                "number" | "integer" => alts.extend(self.parse_number(s, at, *name == "integer")?),
                "string" => alts.extend(self.parse_string(s, at)?),
                "array" => alts.extend(self.parse_array(s, at, base)?),
                "object" => {
                    self.object_leftovers(s, at)?;
                    alts.extend(self.parse_object(s, at, base)?);
                }
                _ => return Err(fail()),
            }
        }
        Ok(Rc::new(alts))
    }

    fn object_leftovers(&mut self, s: &Map<String, Value>, at: &str) -> Res<()> {
        let open = |v: &&Value| **v != Value::Bool(true) && v.as_object().is_none_or(|o| !o.is_empty());
        if applies_in_place(s) && s.get("unevaluatedProperties").filter(open).is_some() {
            let why = "it depends on which of the other keywords have matched";
            return self.leave_out(unsupported(at, "unevaluatedProperties", why));
        }
        Ok(())
    }

    fn parse_number(&mut self, s: &Map<String, Value>, at: &str, integer: bool) -> Res<Option<Alt>> {
        let mut n = Num { integer, ..Num::default() };
        for (keyword, low) in [("minimum", true), ("maximum", false)] {
            let exclusive = if low { "exclusiveMinimum" } else { "exclusiveMaximum" };
            let mut add = |bound: Bound| {
                let one = match low {
                    true => Num { low: Some(bound), ..Num::default() },
                    false => Num { high: Some(bound), ..Num::default() },
                };
                n = n.with(&one);
            };
            let inclusive = bound(s.get(keyword), low).ok_or_else(|| invalid(at, keyword, "is no number"))?;
            match s.get(exclusive) {
                // Draft 4 says with a boolean that the other bound is exclusive.
                Some(Value::Bool(open)) => {
                    if let Some(value) = inclusive {
                        add(Bound { value, open: *open });
                    }
                }
                v => {
                    let open = bound(v, low).ok_or_else(|| invalid(at, exclusive, "is no number"))?;
                    inclusive.into_iter().for_each(|value| add(Bound { value, open: false }));
                    open.into_iter().for_each(|value| add(Bound { value, open: true }));
                }
            }
        }
        if let Some(v) = s.get("multipleOf") {
            match v {
                Value::Number(m) if m.as_f64().is_some_and(|f| f > 0.0) => n.multiples.push(m.clone()),
                _ => return Err(invalid(at, "multipleOf", "is no number above zero")),
            }
        }
        Ok((!n.is_empty()).then_some(Alt::Num(n)))
    }

    fn parse_string(&mut self, s: &Map<String, Value>, at: &str) -> Res<Option<Alt>> {
        let mut out = Str { min: self.count(s, at, "minLength")?.unwrap_or(0), ..Str::default() };
        out.max = self.count(s, at, "maxLength")?;
        if let Some(v) = s.get("pattern") {
            let p = v.as_str().ok_or_else(|| invalid(at, "pattern", "is no string"))?;
            match self.pattern(p, at, "pattern") {
                Ok(p) => out.patterns.push(p),
                Err(e) => self.leave_out(e)?,
            }
        }
        if let Some(v) = s.get("format") {
            let f = v.as_str().ok_or_else(|| invalid(at, "format", "is no string"))?;
            out.formats.extend(FORMATS.contains(&f).then(|| f.to_string()));
        }
        Ok(self.trim_string(out)?.map(|s| Alt::Str(Rc::new(s))))
    }

    fn parse_array(&mut self, s: &Map<String, Value>, at: &str, base: &str) -> Res<Option<Alt>> {
        let mut a = Arr { min: self.count(s, at, "minItems")?.unwrap_or(0), ..Arr::default() };
        a.max = self.count(s, at, "maxItems")?;
        // Before draft 2020-12 "items" holds the first items and "additionalItems" the others.
        let (first, rest) = match s.get("items") {
            Some(v @ Value::Array(_)) => (Some(("items", v)), ("additionalItems", s.get("additionalItems"))),
            v => (s.get("prefixItems").map(|p| ("prefixItems", p)), ("items", v)),
        };
        if let Some((keyword, v)) = first {
            let list = v.as_array().ok_or_else(|| invalid(at, keyword, "is no array"))?;
            for (i, item) in list.iter().enumerate() {
                a.prefix.push(self.parse(item, &format!("{at}/{keyword}/{i}"), base)?);
            }
        }
        if let Some(v) = rest.1.or_else(|| s.get("unevaluatedItems").filter(|_| !applies_in_place(s))) {
            a.items = self.parse(v, &join(at, rest.0), base)?;
        }
        for e in array_leftovers(s, at, a.max) {
            self.leave_out(e)?;
        }
        Ok(trim_array(a).map(|a| Alt::Arr(Rc::new(a))))
    }

    fn in_place(&mut self, keyword: &str, v: &Value, s: &Map<String, Value>, at: &str, base: &str) -> Res<Option<Node>> {
        let here = join(at, keyword);
        Ok(Some(match keyword {
            "$ref" => {
                let text = v.as_str().ok_or_else(|| invalid(at, "$ref", "is no string"))?;
                let number = self.resolve(text, at, base)?;
                Rc::new(vec![Alt::Ref(Rc::new(BTreeSet::from([number])))])
            }
            "$dynamicRef" | "$recursiveRef" => return Err(unsupported(at, keyword, "it depends on the caller")),
            "allOf" => {
                let mut node = any();
                for part in self.parts(v, at, keyword, base)? {
                    node = self.meet(&node, &part)?;
                }
                node
            }
            "anyOf" => Rc::new(self.parts(v, at, keyword, base)?.iter().flat_map(|n| n.iter().cloned()).collect()),
            "oneOf" => self.one_of(v, at, base)?,
            "not" => {
                let inner = self.parse(v, &here, base)?;
                self.negate(&inner, &here)?
            }
            "if" => return self.condition(v, s, at, base),
            "then" | "else" => return Ok(None),
            "dependencies" | "dependentRequired" | "dependentSchemas" => self.dependencies(v, at, keyword, base)?,
            "const" => Rc::new(vec![self.literal(v, at)?]),
            _ => {
                let list = v.as_array().ok_or_else(|| invalid(at, keyword, "is no array"))?;
                self.literals(list, at)?
            }
        }))
    }

    fn parts(&mut self, v: &Value, at: &str, keyword: &str, base: &str) -> Res<Vec<Node>> {
        let list = v.as_array().filter(|l| !l.is_empty()).ok_or_else(|| invalid(at, keyword, "is no array of schemas"))?;
        let here = join(at, keyword);
        list.iter().enumerate().map(|(i, part)| self.parse(part, &format!("{here}/{i}"), base)).collect()
    }

    fn one_of(&mut self, v: &Value, at: &str, base: &str) -> Res<Node> {
        let parts = self.parts(v, at, "oneOf", base)?;
        for i in 0..parts.len() {
            for j in i + 1..parts.len() {
                let both = self.meet(&parts[i], &parts[j])?;
                if !self.is_empty(&both, 6)? {
                    let why = format!("its alternatives {i} and {j} may both match");
                    if !self.options.lenient {
                        return Err(unsupported(at, "oneOf", &why));
                    }
                    self.leave_out(unsupported(at, "oneOf", &why))?;
                }
            }
        }
        Ok(Rc::new(parts.iter().flat_map(|n| n.iter().cloned()).collect()))
    }

    /// Strings come as one alternative, whatever their number.
    fn literals(&mut self, list: &[Value], at: &str) -> Res<Node> {
        self.spend(list.len() as u64 / 8)?;
        let mut alts = Vec::new();
        let mut texts: Vec<String> = list.iter().filter_map(|v| v.as_str().map(str::to_string)).collect();
        let mut seen = std::collections::HashSet::new();
        texts.retain(|t| seen.insert(t.clone()));
        if !texts.is_empty() {
            alts.push(Alt::Str(Rc::new(Str { texts: Some(texts), ..Str::default() })));
        }
        for v in list.iter().filter(|v| !v.is_string()) {
            alts.push(self.literal(v, at)?);
        }
        Ok(Rc::new(alts))
    }

    pub fn literal(&mut self, v: &Value, at: &str) -> Res<Alt> {
        self.spend(1)?;
        Ok(match v {
            Value::Null => Alt::Null,
            Value::Bool(b) => Alt::Bool(*b),
            Value::Number(n) => {
                let value = n.as_f64().unwrap_or(f64::INFINITY);
                if value.abs() >= EXACT {
                    return Err(unsupported(at, "enum", "a number beyond 2^53 has no exact form"));
                }
                let bound = Some(Bound { value, open: false });
                Alt::Num(Num { low: bound, high: bound, integer: value.fract() == 0.0, multiples: Vec::new() })
            }
            Value::String(s) => Alt::Str(Rc::new(Str::text(s))),
            Value::Array(list) => {
                let prefix: Vec<Node> = list.iter().map(|x| Ok(Rc::new(vec![self.literal(x, at)?]))).collect::<Res<_>>()?;
                let length = prefix.len() as u64;
                Alt::Arr(Rc::new(Arr { min: length, max: Some(length), prefix, items: never() }))
            }
            Value::Object(map) => Alt::Obj(Rc::new(self.literal_object(map, at)?)),
        })
    }

    /// A count that is not negative.
    pub fn count(&mut self, s: &Map<String, Value>, at: &str, keyword: &str) -> Res<Option<u64>> {
        let Some(v) = s.get(keyword) else { return Ok(None) };
        let whole = v.as_u64().or_else(|| v.as_f64().filter(|f| *f >= 0.0 && f.fract() == 0.0 && *f < EXACT).map(|f| f as u64));
        let whole = whole.ok_or_else(|| invalid(at, keyword, "is no whole number"))?;
        let most = if keyword.ends_with("Length") { 1_000_000 } else { 20_000 };
        // No answer gets that long.
        if keyword.starts_with("max") && whole > u64::from(u32::MAX) {
            return Ok(None);
        }
        if whole > most {
            return Err(unsupported(at, keyword, "the number is too large for a grammar"));
        }
        Ok(Some(whole))
    }

    pub fn pattern(&mut self, p: &str, at: &str, keyword: &str) -> Res<String> {
        let p = from_ecma(p);
        self.patterns.check(&p).map_err(|e| unsupported(at, keyword, e.message()))?;
        Ok(p)
    }

    /// All types but objects.
    pub fn no_objects() -> Vec<Alt> {
        every_type().into_iter().filter(|a| !matches!(a, Alt::Obj(_))).collect()
    }
}

/// Outer None: no number. Numbers that a double does not hold exactly are moved inwards.
fn bound(v: Option<&Value>, low: bool) -> Option<Option<f64>> {
    let Some(v) = v else { return Some(None) };
    let value = v.as_f64().filter(|f| f.is_finite())?;
    Some(Some(match value.abs() > EXACT {
        true if low => value.next_up(),
        true => value.next_down(),
        false => value,
    }))
}

/// Keywords of arrays that have no form in a grammar, unless they say nothing here.
fn array_leftovers(s: &Map<String, Value>, at: &str, max: Option<u64>) -> Vec<Error> {
    let mut out = Vec::new();
    if s.get("uniqueItems") == Some(&Value::Bool(true)) && max.is_none_or(|m| m > 1) {
        out.push(unsupported(at, "uniqueItems", "a grammar does not remember items"));
    }
    if s.contains_key("contains") {
        let none = s.get("minContains").and_then(Value::as_f64) == Some(0.0) && !s.contains_key("maxContains");
        if !none {
            out.push(unsupported(at, "contains", "a grammar does not count items of a kind"));
        }
    }
    if applies_in_place(s) && s.get("unevaluatedItems").is_some_and(|v| *v != Value::Bool(true)) {
        out.push(unsupported(at, "unevaluatedItems", "it depends on which of the other keywords have matched"));
    }
    out
}
